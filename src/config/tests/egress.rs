//! Which URLs may be asked that others name.

use insta::assert_snapshot;

use super::{load, load_with, mistakes};
use crate::config::Options;
use crate::net::guard::{Guard, Policy};

#[test]
fn nothing_written_is_the_strict_policy() {
    assert_eq!(load("").egress, Policy::default());
}

#[test]
fn what_is_written_decides() {
    let text = "[egress]\nports = [443]\nallowed_hosts = ['*.example.com', 'Bücher.example']\n\
                denied_hosts = ['x.example.com']\nprivate_hosts = ['wiki']\n\
                private_addresses = ['10.1.0.0/16', '::1']\ndenied_addresses = ['203.0.114.7']\n\
                proxy = 'http://proxy.test:3128'\nproxy_login_env = 'LOGIN'\nproxy_resolves = true\n";
    let loaded = |login| load_with(text, &Options::default(), &[("LOGIN", login)]).unwrap();
    let settings = loaded("ann:hush");
    let guard = Guard::new(settings.egress.clone());
    for allowed in ["https://a.example.com/", "https://xn--bcher-kva.example", "https://wiki/", "https://10.1.2.3/"] {
        assert!(guard.parse(allowed).is_ok(), "{allowed}");
    }
    for refused in ["http://a.example.com/", "https://x.example.com/", "https://example.com/", "https://10.2.0.0/"] {
        assert!(guard.parse(refused).is_err(), "{refused}");
    }
    assert!(settings.egress.proxy.is_some() && settings.egress.proxy_resolves);
    assert!(!format!("{settings:?}").contains("hush"));
    let changes = settings.changes_to(&loaded("ann:other")).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(changes, ["egress.proxy_login_env: changed"]);
}

#[test]
fn mistakes_are_told() {
    assert_snapshot!(mistakes(r#"[egress]
ports = [0]
allowed_hosts = ["10.0.0.1"]
denied_hosts = ["https://a.test/"]
private_hosts = ["*"]
private_addresses = ["10.1.2.3/16"]
denied_addresses = ["a.test"]
proxy = "socks5://a.test"
proxy_login_env = "UNSET"
"#), @r#"
    loopgate.toml:2: egress.ports: must be an integer from 1 to 65535
    loopgate.toml:3: egress.allowed_hosts: this is not the name of a host such as "example.com", without a port, or "*.example.com" for all below one
    loopgate.toml:4: egress.denied_hosts: this is not the name of a host such as "example.com", without a port, or "*.example.com" for all below one
    loopgate.toml:5: egress.private_hosts: this is not the name of a host such as "example.com", without a port, or "*.example.com" for all below one
    loopgate.toml:6: egress.private_addresses: the network begins at 10.1.0.0/16
    loopgate.toml:7: egress.denied_addresses: this is not an address such as "10.1.2.3", or a network such as "10.1.0.0/16"
    loopgate.toml:8: egress.proxy: this is not a URL such as "http://proxy.internal:3128", or "none"
    loopgate.toml:9: egress.proxy_login_env: the environment variable UNSET is unset or empty
    "#);
}
