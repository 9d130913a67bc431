//! The members of a request: passed on, written otherwise, left out with a warning, or refused. Never lost.

use std::sync::Arc;

use serde_json::{Value, json};

use super::asked::{Kind, Kinds};
use super::markdown;
use crate::llm::{ModelRequest, Place, openai};
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::Members;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::sampling::Sampling;

/// The members that the server reads itself; the others are kept as they came.
const READ: [&str; 12] = [
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
    "reasoning_effort",
    "verbosity",
    "user",
    "safety_identifier",
    "service_tier",
    "prompt_cache_key",
];

/// A member with a value, and what a reader should know besides.
struct Row {
    label: &'static str,
    name: &'static str,
    value: Value,
    note: &'static str,
}

fn row(name: &'static str, value: Value) -> Row {
    Row { label: "", name, value, note: "" }
}

impl Row {
    fn labelled(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    fn noted(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    fn label(&self) -> String {
        if self.label.is_empty() { format!("`{}`", self.name) } else { self.label.to_owned() }
    }
}

fn rows() -> Vec<Row> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let format = |schema: Value| json!({"type": "json_schema", "json_schema": schema});
    vec![
        row("temperature", json!(0.5)),
        row("temperature", json!(1.5)).labelled("`temperature` above 1"),
        row("top_p", json!(0.5)),
        row("stop", json!(["END"])),
        row("seed", json!(7)),
        row("seed", json!(1_u64 << 40)).labelled("`seed` of more than 31 bits"),
        row("frequency_penalty", json!(0.5)).noted("0 asks for nothing, and is taken everywhere. Gemini 2.0 alone takes others"),
        row("presence_penalty", json!(0.5)).noted("as for `frequency_penalty`"),
        row("logit_bias", json!({"50256": -100})),
        row("prediction", json!({"type": "content", "content": "x"})),
        row("web_search_options", json!({"search_context_size": "low"})).noted("the sources that a model names are not passed on"),
        row("response_format", format(json!({"name": "a", "schema": schema, "strict": true})))
            .labelled("`response_format` with a schema")
            .noted("models before Gemini 3 refuse it beside tools"),
        row("response_format", format(json!({"name": "a"}))).labelled("`response_format` `json_schema` without one"),
        row("response_format", json!({"type": "json_object"})).labelled("`response_format` `json_object`"),
        row("reasoning_effort", json!("low")).noted(
            "Claude: adaptive thinking and `output_config.effort` from 4.6 on, before that a budget of tokens; not before a tool \
             call that is forced. Gemini: a level from 3 on, before that a budget, of half of the output at most where that is bounded. Where a model cannot do without, `none` is \
             the least that it has",
        ),
        row("verbosity", json!("low")),
        row("user", json!("ann")),
        row("safety_identifier", json!("ann")),
        row("service_tier", json!("default")).labelled("`service_tier` `default`"),
        row("service_tier", json!("flex")).labelled("`service_tier` `flex`").noted("of a tier that costs more see [prices](operations.md#prices)"),
        row("prompt_cache_key", json!("k")),
        row("prompt_cache_retention", json!("24h")),
        row("store", json!(true)),
        row("top_k", json!(40)),
        row("min_p", json!(0.1)).labelled("`min_p`, `repetition_penalty` and the like"),
        row("thinking", json!({"type": "enabled", "budget_tokens": 2_048})),
        row("thinking_config", json!({"thinkingLevel": "low"})),
        row("safety_settings", json!([{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}])),
        row("chat_template_kwargs", json!({"enable_thinking": false})),
        row("reasoning", json!({"effort": "low"})),
        row("truncation", json!("auto")),
        row("previous_response_id", json!("resp_1")).noted("the conversation is kept by Loopgate, and by no upstream"),
        row("something_else", json!(1)).labelled("any other"),
    ]
}

/// The members as a table.
pub(super) async fn table(kinds: &Kinds) -> String {
    let mut rows_of_table = Vec::new();
    for row in rows() {
        let mut cells = Vec::new();
        for kind in &kinds.all {
            cells.push(cell(kinds, kind, &row).await);
        }
        rows_of_table.push((row.label(), cells, row.note));
    }
    for (label, note, change) in of_request() {
        let mut cells = Vec::new();
        for kind in &kinds.all {
            let before = kinds.body(kind, offer_tools).await;
            let after = kinds
                .body(kind, |request| {
                    offer_tools(request);
                    change(request);
                })
                .await;
            cells.push(told(label, kind, &before, &after));
        }
        rows_of_table.push((format!("`{label}`"), cells, note));
    }
    markdown("member", &kinds.columns(), &rows_of_table)
}

/// What becomes of a member.
async fn cell(kinds: &Kinds, kind: &Kind, row: &Row) -> String {
    let sampling = sampling(row.name, &row.value);
    if let Some(refused) = kind.model.refuses(&sampling, &[]) {
        assert_eq!(refused.place, Place::Member(row.name));
        assert!(refused.message.contains(row.name), "{}", refused.message);
        return "400".to_owned();
    }
    if kind.model.unsent(kind.name, &sampling).contains(&row.name) {
        return "left out with a warning".to_owned();
    }
    let before = kinds.body(kind, |_| {}).await;
    let after = kinds.body(kind, |request| request.sampling = Arc::new(sampling)).await;
    if after.get(row.name) == Some(&row.value) {
        return "passed on".to_owned();
    }
    told(row.name, kind, &before, &after)
}

/// What a request says more than another.
fn told(name: &str, kind: &Kind, before: &Value, after: &Value) -> String {
    let mut places = Vec::new();
    differences(before, after, "", &mut places);
    assert!(!places.is_empty(), "{name} is lost on the way to {}: {after}", kind.column);
    if places == [name] {
        return "passed on".to_owned();
    }
    format!("as {}", places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(" and "))
}

/// Where a body says more than another, or something else.
fn differences(before: &Value, after: &Value, path: &str, found: &mut Vec<String>) {
    for (name, value) in after.as_object().into_iter().flatten() {
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (before.get(name), value.as_object()) {
            (Some(known), _) if known == value => {}
            (Some(known), Some(_)) => differences(known, value, &place, found),
            (None, Some(members)) if members.len() == 1 => differences(&Value::Null, value, &place, found),
            (_, _) => found.push(place),
        }
    }
}

fn sampling(name: &str, value: &Value) -> Sampling {
    if name == "response_format" {
        let response_format = openai::sampling::response_format(&value.to_string());
        assert!(response_format.is_some(), "{value}");
        return Sampling { response_format, ..Sampling::default() };
    }
    if READ.contains(&name) {
        let read = serde_json::from_value(json!({name: value})).expect("it is a member");
        assert_ne!(read, Sampling::default(), "{name}");
        return read;
    }
    let members: Members = serde_json::from_str(&json!({name: value}).to_string()).expect("it is an object");
    Sampling { extra: Extra::new(Dialect::OpenaiChat, members), ..Sampling::default() }
}

type Change = fn(&mut ModelRequest);

/// What a request says outside of sampling.
fn of_request() -> [(&'static str, &'static str, Change); 2] {
    [
        (
            "max_completion_tokens",
            "`max_tokens` too. OpenAI's Responses take 16 at least. Reasoning is part of it. Anthropic wants a bound: without one, \
             and without a budget, see `max_tokens` of the [upstream](configuration.md#upstreams)",
            |request| request.max_tokens = Some(999),
        ),
        ("tool_choice", "Claude models that always think refuse to be forced", |request| {
            request.tool_choice = ToolChoice::Required;
        }),
    ]
}

fn offer_tools(request: &mut ModelRequest) {
    request.tools = [Arc::new(ToolDefinition { name: "f".into(), ..ToolDefinition::default() })].into_iter().collect();
}
