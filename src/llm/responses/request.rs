//! A model request as the body of `POST …/responses`.

use super::items::items;
use super::{sampling, tools};
use crate::config::ReasoningSummary;
use crate::llm::ModelRequest;
use crate::llm::object::Object;

/// How the names of models begin that do not reason, and refuse to be asked for their reasoning or a summary of it.
const NEVER_REASON: [&str; 4] = ["gpt-3", "gpt-4", "chatgpt-4", "gpt-5-chat"];

/// How an upstream is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Whether it is OpenAI itself.
    pub(super) is_openai: bool,
    /// Whether it is sent members that are not known.
    pub(super) takes_unknown: bool,
    /// Which summary of its reasoning a model is asked for.
    pub(super) summary: Option<ReasoningSummary>,
    /// Whether a model is asked for its reasoning, encrypted; `None` where its name decides.
    pub(super) encrypted: Option<bool>,
}

/// The JSON body, with the reasoning that `author` signed. Messages that were encoded before are copied.
pub(super) fn body(request: &ModelRequest, author: Option<&str>, manner: Manner) -> String {
    // No reasoning is signed with an empty name.
    let author = author.unwrap_or_default();
    let input: Vec<_> = request.conversation.iter().map(|message| items(message, author)).collect();
    let mut out = Vec::with_capacity(512 + input.iter().map(|items| items.len() + 1).sum::<usize>());
    let mut object = Object::new(&mut out);
    object.text("model", &request.model);
    object.value("stream", &true);
    // Neither the answer nor the conversation stays at the upstream.
    object.value("store", &false);
    if manner.encrypted.unwrap_or_else(|| may_reason(&request.model)) {
        object.value("include", &["reasoning.encrypted_content"]);
    }
    if manner.is_openai {
        // Without this each event is padded with random characters, which would all have to be read. Other servers do not
        // pad, and may not know the member.
        object.nested("stream_options", |options| options.value("include_obfuscation", &false));
    }
    if let Some(most) = request.max_tokens {
        object.value("max_output_tokens", &most);
    }
    let summary = manner.summary.filter(|_| may_reason(&request.model));
    sampling::write(&request.sampling, manner.takes_unknown, summary, &mut object);
    if !request.tools.is_empty() {
        object.raw("tools", |out| tools::write_list(&request.tools, out));
        tools::write_choice(&request.tool_choice, &mut object);
        // True is the default.
        if !request.parallel_tool_calls {
            object.value("parallel_tool_calls", &false);
        }
    }
    object.raw("input", |out| {
        out.push(b'[');
        for (index, items) in input.iter().filter(|items| !items.is_empty()).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(items.as_bytes());
        }
        out.push(b']');
    });
    object.close();
    String::from_utf8(out).expect("it was written from strings")
}

/// Whether a model may reason, by its name, with which a router may have put others before.
fn may_reason(model: &str) -> bool {
    let own = model.rsplit('/').next().unwrap_or(model);
    let own = own.strip_prefix("ft:").unwrap_or(own);
    !NEVER_REASON.iter().any(|begin| own.starts_with(begin))
}

#[cfg(test)]
mod tests;
