//! Results of tools on the wire.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{call, encode, names, record, result};
use crate::api::wire::agent::stream::AgentEvents;
use crate::types::conversation::{Link, Part, PartKind, Source};
use crate::types::json::RawValueEq;
use crate::types::{Event, ToolOutcome};

#[test]
fn a_result_that_is_more_than_text_is_shown_by_its_parts() {
    let source = || Source::Base64 { media_type: "image/png".into(), data: "AAAA".into() };
    let link = Link { uri: "file:///a".into(), name: Some("a".into()), ..Link::default() };
    let parts = vec![
        Part::text("see"),
        PartKind::Image { source: source(), detail: None }.into(),
        PartKind::File { source: source(), name: Some("b".into()) }.into(),
        Part::link(link),
    ];
    let structured = Some(RawValueEq(RawValue::from_string("{\"n\": 1.50}".into()).unwrap()));
    let outcome = ToolOutcome { parts, structured, ..result() };
    let call_id = call().id;
    let finished = Event::ToolFinished { step: 1, call_id, name: "calculator".into(), outcome };
    let frame = encode(AgentEvents::new(names(), false), &record(vec![finished]));
    let json: Value = serde_json::from_str(frame.split("data: ").nth(1).unwrap()).unwrap();
    assert_eq!(
        json["parts"],
        json!([
            { "type": "text", "text": "see" },
            { "type": "image", "media_type": "image/png", "data": "AAAA" },
            { "type": "file", "media_type": "image/png", "data": "AAAA", "name": "b" },
            { "type": "link", "uri": "file:///a", "name": "a" },
        ])
    );
    assert_eq!(
        json["content"],
        "see\n[image, image/png, 3 bytes]\n[file b, image/png, 3 bytes]\n[link to file:///a, a]"
    );
    assert!(frame.contains("\"structured\":{\"n\": 1.50}"), "numbers are copied: {frame}");
}
