//! The parts of a turn stay in the order in which the model gave them.

use super::*;
use crate::llm::ModelPart;
use crate::types::conversation::{Part, PartKind, Thinking};

#[test]
fn parts_keep_the_models_order() {
    let turn = turn(&[
        said(json!({ "reasoning_content": "hm" })),
        said(json!({ "content": "Let me " })),
        said(json!({ "content": "look." })),
        call(0, "call_a", "add", "{}"),
        said(json!({ "reasoning_content": "and" })),
        said(json!({ "content": "Then" })),
        call(1, "call_b", "sub", "{}"),
        said(json!({ "refusal": "no" })),
        ended("tool_calls"),
    ]);
    let thinking = |text: &str| ModelPart::Part(PartKind::Thinking(Thinking { text: text.into(), seal: None }).into());
    let text = |text: &str| ModelPart::Part(Part::text(text));
    let call = |name: &str| ModelPart::Call(ModelCall { name: name.into(), arguments: "{}".into() });
    let refusal = ModelPart::Part(PartKind::Refusal("no".into()).into());
    let expected =
        [thinking("hm"), text("Let me look."), call("add"), thinking("and"), text("Then"), call("sub"), refusal];
    assert_eq!(turn.parts, expected);
}
