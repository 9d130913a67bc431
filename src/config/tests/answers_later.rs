//! Tools that are answered later.

use std::time::Duration;

use super::{load, mistakes};

const TOOL: &str =
    "[tools.render]\ndescription = 'Renders.'\nurl = 'http://render.test/'\nmethod = 'POST'\nasync_timeout = '90m'\n";

#[test]
fn a_tool_says_how_long_its_service_may_take() {
    let settings = load(&format!("[server]\npublic_url = 'https://agents.test/base'\n{TOOL}"));
    let later = settings.tools[0].answers_later.as_ref().unwrap();
    assert_eq!((later.timeout, later.public_url.as_str()), (Duration::from_secs(5_400), "https://agents.test/base"));
    assert_eq!(settings.server.hosts, ["agents.test"], "services may call the server by this name");
    let plain = load(&TOOL.replace("async_timeout = '90m'\n", ""));
    assert!(plain.tools[0].answers_later.is_none() && plain.server.hosts.is_empty());
}

#[test]
fn a_server_that_services_cannot_reach_has_no_such_tools() {
    let told = mistakes(TOOL);
    assert!(told.contains("tools.render.async_timeout: needs server.public_url"), "{told}");
    let told = mistakes(&format!("[server]\npublic_url = 'https://ann:hush@agents.test'\n{TOOL}"));
    assert!(told.contains("server.public_url: this is not a URL such as") && !told.contains("hush"), "{told}");
    let told = mistakes("[openapi.shop]\ndocument = 'https://docs.test/a.json'\nasync_operations = ['render_*']\n");
    assert!(told.contains("openapi.shop.async_operations: needs server.public_url"), "{told}");
}

#[test]
fn operations_of_a_document_are_answered_later_where_they_are_named() {
    let settings = load(
        "[server]\npublic_url = 'http://127.0.0.1:8080'\n[openapi.shop]\ndocument = 'https://docs.test/a.json'\n\
         async_operations = ['render_*']\n",
    );
    let shop = &settings.openapi[0];
    assert_eq!(shop.answer_later("render_scene").map(|later| later.timeout), Some(Duration::from_secs(3_600)));
    assert!(shop.answer_later("orders_get").is_none());
    assert!(settings.server.hosts.is_empty(), "addresses are always allowed");
}
