//! Members of a request that its model does not take, whichever upstream has it: models that reason sample in a way of their own.
//!
//! Their upstreams refuse such a request as a whole. The members are left out instead, and the caller is told: a client that sets
//! a temperature for all models can use these too, also as fallbacks. What is said here of vendors' models is from their
//! documentation; another model is sent all of them.

use std::sync::Arc;

use super::ModelRequest;
use super::model_name::{claude_version, gemini_generation};
use super::own_member::own;
use crate::types::conversation::{Dialect, Extra};
use crate::types::json::Members;
use crate::types::sampling::Sampling;

/// All members that some model does not take.
const ALL: [&str; 5] = ["temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty"];
/// What models of OpenAI do not take that always reason.
const OF_REASONING: &[&str] = &["temperature", "top_p", "frequency_penalty", "presence_penalty"];
/// What models of OpenAI do not take while they reason.
const WHILE_REASONING: &[&str] = &["temperature", "top_p"];
/// What models of Anthropic do not take from 4.7 on.
const OF_CLAUDE: &[&str] = &["temperature", "top_p", "top_k"];
/// What models of Google do not take from 2.5 on.
const OF_GEMINI: &[&str] = &["frequency_penalty", "presence_penalty"];

/// When a model does not take these members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// Where it is asked to reason: it does not by itself.
    AskedToReason,
    /// Unless it is asked not to reason.
    NotAskedNotTo,
}

/// Models of OpenAI, by how their names begin: what stands first decides.
const OPENAI: [(&[&str], &[&str], When); 5] = [
    (&["gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat", "gpt-5.3-chat"], &[], When::Always),
    (
        &[
            "o1",
            "o3",
            "o4-mini",
            "gpt-5",
            "gpt-5.1-codex",
            "gpt-5.2-codex",
            "gpt-5.2-pro",
            "gpt-5.3-codex",
            "gpt-5.4-pro",
            "gpt-5.5-pro",
        ],
        OF_REASONING,
        When::Always,
    ),
    (&["gpt-6-astra", "gpt-6.1-sol"], WHILE_REASONING, When::Always),
    (&["gpt-5.1", "gpt-5.2", "gpt-5.4", "gpt-5.5"], WHILE_REASONING, When::AskedToReason),
    (&["gpt-5.6", "gpt-6", "gpt-6.1"], WHILE_REASONING, When::NotAskedNotTo),
];

/// The members of a request that this model does not take, but for those that ask for nothing.
pub fn given(model: &str, sampling: &Sampling) -> Vec<&'static str> {
    let asks = |name: &&&str| !is_default(sampling, name);
    members(model, sampling).iter().filter(asks).copied().collect()
}

/// The same request without members that its model does not take.
pub fn without(request: ModelRequest) -> ModelRequest {
    let members = members(&request.model, &request.sampling);
    if !members.iter().any(|name| is_given(&request.sampling, name)) {
        return request;
    }
    let mut sampling = Sampling::clone(&request.sampling);
    for name in members {
        leave_out(&mut sampling, name);
    }
    ModelRequest { sampling: Arc::new(sampling), ..request }
}

/// What a model does not take; nothing if the request gives none of it.
fn members(model: &str, sampling: &Sampling) -> &'static [&'static str] {
    if !ALL.iter().any(|name| is_given(sampling, name)) {
        return &[];
    }
    let name = model.rsplit('/').next().unwrap_or_default();
    let begins = |with: &&&str| name.strip_prefix(**with).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    if let Some((_, members, when)) = OPENAI.iter().find(|(names, ..)| names.iter().any(|with| begins(&with))) {
        let effort = sampling.reasoning_effort.as_deref();
        let holds = match when {
            When::Always => true,
            When::AskedToReason => effort.is_some_and(|effort| effort != "none"),
            When::NotAskedNotTo => effort != Some("none"),
        };
        return if holds { members } else { &[] };
    }
    match claude_version(name) {
        Some(version) if version >= (4, 7) => OF_CLAUDE,
        None if is_gemini_from_2_5(name) => OF_GEMINI,
        Some(_) | None => &[],
    }
}

/// Whether it is a Gemini model that is not older than 2.5. One that does not tell its generation stands for a new model.
fn is_gemini_from_2_5(name: &str) -> bool {
    let is_newest = name.starts_with("gemini-") && name.ends_with("-latest") && gemini_generation(name).is_none();
    is_newest || name.starts_with("gemini-2.5") || gemini_generation(name).is_some_and(|number| number > 2)
}

fn is_given(sampling: &Sampling, name: &str) -> bool {
    match name {
        "temperature" => sampling.temperature.is_some(),
        "top_p" => sampling.top_p.is_some(),
        "frequency_penalty" => sampling.frequency_penalty.is_some(),
        "presence_penalty" => sampling.presence_penalty.is_some(),
        other => own(sampling, other).is_some(),
    }
}

/// Whether a member is absent, or has the value that every model has by itself.
fn is_default(sampling: &Sampling, name: &str) -> bool {
    let is = |number: Option<f64>, usual: f64| number.is_none_or(|number| (number - usual).abs() < f64::EPSILON);
    match name {
        "temperature" => is(sampling.temperature, 1.0),
        "top_p" => is(sampling.top_p, 1.0),
        "frequency_penalty" => is(sampling.frequency_penalty, 0.0),
        "presence_penalty" => is(sampling.presence_penalty, 0.0),
        other => own(sampling, other).is_none(),
    }
}

fn leave_out(sampling: &mut Sampling, name: &str) {
    match name {
        "temperature" => sampling.temperature = None,
        "top_p" => sampling.top_p = None,
        "frequency_penalty" => sampling.frequency_penalty = None,
        "presence_penalty" => sampling.presence_penalty = None,
        other => {
            let kept = sampling.extra.members(Dialect::OpenaiChat).iter().filter(|(known, _)| known != other);
            sampling.extra = Extra::new(Dialect::OpenaiChat, Members(kept.cloned().collect()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::llm::testing;
    use crate::types::{Message, Role};

    fn sampling(effort: Option<&str>) -> Sampling {
        let members = json!({ "temperature": 0.5, "top_p": 1.0, "frequency_penalty": 0.5, "reasoning_effort": effort });
        let sampling: Sampling = serde_json::from_value(members).unwrap();
        let extra: Members = serde_json::from_str(r#"{"top_k":40,"user_id":"u"}"#).unwrap();
        Sampling { extra: Extra::new(Dialect::OpenaiChat, extra), ..sampling }
    }

    #[test]
    fn a_model_is_not_sent_how_to_sample_where_it_would_refuse_that() {
        let (all, reasoning, claude) =
            (["temperature", "frequency_penalty"], ["temperature"], ["temperature", "top_k"]);
        for (model, effort, expected) in [
            ("gpt-4.1", None, &[][..]),
            ("gpt-5", None, &all),
            ("openai/gpt-5-mini-2025-08-07", Some("low"), &all),
            ("gpt-5-chat-latest", None, &[]),
            ("o3-pro", None, &all),
            ("o30", None, &[]),
            ("gpt-5.1", None, &[]),
            ("gpt-5.1", Some("none"), &[]),
            ("gpt-5.1-2025-11-13", Some("high"), &reasoning),
            ("gpt-5.1-codex-max", None, &all),
            ("gpt-5.6-luna", None, &reasoning),
            ("gpt-6-sol", Some("none"), &[]),
            ("gpt-6-astra", Some("none"), &reasoning),
            ("claude-sonnet-4-6", None, &[]),
            ("claude-opus-4-7", None, &claude),
            ("anthropic.claude-opus-4-8", None, &claude),
            ("claude-sonnet-5", None, &claude),
            ("gemini-2.0-flash", None, &[]),
            ("gemini-2.5-pro", None, &["frequency_penalty"]),
            ("google/gemini-3.8-flash", None, &["frequency_penalty"]),
            ("qwen3", None, &[]),
        ] {
            let sampling = sampling(effort);
            assert_eq!(given(model, &sampling), expected, "{model} {effort:?}");
            let request = testing::request(model, [Message::text(Role::User, "hi")]);
            let sent = without(ModelRequest { sampling: Arc::new(sampling.clone()), ..request }).sampling;
            for name in ALL {
                let is_kept = is_given(&sampling, name) && !members(model, &sampling).contains(&name);
                assert_eq!(is_given(&sent, name), is_kept, "{model} {name}");
            }
            assert_eq!(own(&sent, "user_id"), Some("\"u\""), "{model}");
        }
    }
}
