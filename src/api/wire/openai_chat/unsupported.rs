//! Members that ask for an answer which the endpoints cannot give back yet. They are refused before anything is spent:
//! the caller would pay for audio and log probabilities and never see them.

use crate::api::wire::error::WireError;
use crate::types::json::Members;

/// What the caller of `web_search_options` should know.
const NO_SOURCES: &str =
    "the sources that the model names beside its text (annotations) are not passed back; ask for them in the text";

/// Refuses members whose answers could not be passed back.
pub fn check_supported(members: &Members) -> Result<(), WireError> {
    for (name, json) in members.as_slice() {
        let what = match (name.as_str(), json.get()) {
            ("logprobs", "false") | ("top_logprobs", "0") => continue,
            ("logprobs" | "top_logprobs", _) => "log probabilities are not supported; leave it out",
            ("audio", _) => "answers in audio are not supported; leave it out",
            ("modalities", json) if is_text_alone(json) => continue,
            ("modalities", _) => "must be [\"text\"]: answers in audio or images are not supported",
            _ => continue,
        };
        return Err(WireError::invalid(name.as_str(), what));
    }
    Ok(())
}

/// What of the answer to these members the caller will not see.
pub fn unseen(members: &Members) -> Option<String> {
    members.as_slice().iter().any(|(name, _)| name == "web_search_options").then(|| NO_SOURCES.to_owned())
}

fn is_text_alone(modalities: &str) -> bool {
    serde_json::from_str::<Vec<String>>(modalities).is_ok_and(|all| all.iter().all(|modality| modality == "text"))
}
