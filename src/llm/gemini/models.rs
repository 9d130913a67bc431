//! The names of models, and what they tell of the model.

use serde::Deserialize;

use crate::llm::model_name::gemini_generation;
use crate::llm::offered::{OfferedModel, Sizes, Tokens};

/// The collections that a model's name may begin with. Without one it is one of the vendor's.
const COLLECTIONS: [&str; 2] = ["models", "tunedModels"];

/// The collection of a model and its name in it.
pub(super) fn place(model: &str) -> (&str, &str) {
    let place = model.split_once('/').filter(|(collection, _)| COLLECTIONS.contains(collection));
    place.unwrap_or((COLLECTIONS[0], model))
}

/// What a model wants of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wants {
    /// Whether it refuses calls without a signature.
    pub(super) signatures: bool,
    /// Whether it reads pictures in the results of calls.
    pub(super) pictures_in_results: bool,
}

impl Wants {
    /// Of the model of this name. One that does not tell its generation, such as `gemini-flash-latest`, stands for a new model;
    /// the API refuses calls without a signature from 2.5 on.
    pub(super) fn of(model: &str) -> Self {
        let is_older = model.contains("gemma") || gemini_generation(model).is_some_and(|number| number < 2);
        Self {
            signatures: !is_older && !model.contains("gemini-2.0"),
            pictures_in_results: !is_older && gemini_generation(model) != Some(2),
        }
    }
}

/// The models in the vendor's list that generate content.
pub(super) fn offered(list: &[u8]) -> Option<Vec<OfferedModel>> {
    #[derive(Deserialize)]
    struct List {
        models: Vec<Entry>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        name: String,
        supported_generation_methods: Option<Vec<String>>,
        #[serde(default)]
        input_token_limit: Tokens,
        #[serde(default)]
        output_token_limit: Tokens,
    }

    let list: List = serde_json::from_slice(list).ok()?;
    let generates = |entry: &Entry| {
        let methods = entry.supported_generation_methods.as_ref();
        methods.is_none_or(|methods| methods.iter().any(|method| method == "generateContent"))
    };
    let models = list.models.into_iter().filter(generates).map(|entry| {
        let own = entry.name.strip_prefix("models/").map(str::to_owned);
        // The output has room beside the input.
        let sizes = Sizes { context_window: entry.input_token_limit.0, max_output_tokens: entry.output_token_limit.0 };
        OfferedModel { name: own.unwrap_or(entry.name), sizes }
    });
    Some(models.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_may_be_named_with_its_collection() {
        assert_eq!(place("gemini-2.5-flash"), ("models", "gemini-2.5-flash"));
        assert_eq!(place("models/gemini-2.5-flash"), ("models", "gemini-2.5-flash"));
        assert_eq!(place("tunedModels/mine"), ("tunedModels", "mine"));
        assert_eq!(place("vendor/model"), ("models", "vendor/model"));
    }

    #[test]
    fn a_model_is_taken_for_a_new_one_unless_its_name_tells_otherwise() {
        for (model, signatures, pictures_in_results) in [
            ("gemma-3-27b-it", false, false),
            ("gemini-1.5-pro-002", false, false),
            ("gemini-2.0-flash", false, false),
            ("gemini-2.5-flash-lite", true, false),
            ("gemini-3-flash", true, true),
            ("gemini-12", true, true),
            ("gemini-flash-latest", true, true),
            ("gemini-pro-latest", true, true),
            ("tunedModels/mine", true, true),
        ] {
            assert_eq!(Wants::of(model), Wants { signatures, pictures_in_results }, "{model}");
        }
    }

    #[test]
    fn only_models_that_generate_content_are_listed_with_what_they_take() {
        let list = br#"{"models":[
            {"name":"models/gemini-2.5-flash","displayName":"x","inputTokenLimit":1048576,
             "outputTokenLimit":65536,"supportedGenerationMethods":["generateContent","countTokens"]},
            {"name":"models/gemini-embedding-001","supportedGenerationMethods":["embedContent"]},
            {"name":"tunedModels/mine"}],"nextPageToken":""}"#;
        let sizes = Sizes { context_window: Some(1_048_576), max_output_tokens: Some(65_536) };
        let flash = OfferedModel { name: "gemini-2.5-flash".to_owned(), sizes };
        assert_eq!(offered(list), Some(vec![flash, "tunedModels/mine".into()]));
        for other in [&b"{}"[..], b"{\"data\":[]}", b"[]", b"<html>"] {
            assert_eq!(offered(other), None);
        }
    }
}
