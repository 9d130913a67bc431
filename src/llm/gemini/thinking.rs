//! How much the model is to think.
//!
//! Models of the second generation are given a budget of tokens, later ones a level. What a caller writes as
//! `thinking_config` is passed on.

use std::borrow::Cow;

use crate::llm::ModelRequest;
use crate::llm::own_member::own;

/// What the model is told for a word of `reasoning_effort`.
struct Effort {
    word: &'static str,
    budget: u64,
    level: &'static str,
}

/// The words of `reasoning_effort`, from the least to the most. The budgets are those that Google's own endpoint for
/// clients of OpenAI's dialect gives.
const EFFORTS: [Effort; 7] = [
    Effort { word: "none", budget: 0, level: "minimal" },
    Effort { word: "minimal", budget: 1_024, level: "minimal" },
    Effort { word: "low", budget: 1_024, level: "low" },
    Effort { word: "medium", budget: 8_192, level: "medium" },
    Effort { word: "high", budget: 24_576, level: "high" },
    Effort { word: "xhigh", budget: 24_576, level: "high" },
    Effort { word: "max", budget: 24_576, level: "high" },
];
/// The models that have the least level. For the others the next one is the least.
const OF_LEAST_LEVEL: [&str; 3] = ["gemini-3-flash", "gemini-3.1-flash", "gemini-3.5-flash"];
/// The least budget of models of the second generation: of those that always think, and of those that else think nothing.
const LEAST_OF_PRO: u64 = 128;
const LEAST_OF_LITE: u64 = 512;

impl Effort {
    fn level(&self, model: &str) -> &'static str {
        let has_least = OF_LEAST_LEVEL.iter().any(|known| model.contains(known));
        if self.level == "minimal" && !has_least { "low" } else { self.level }
    }

    /// The budget of a call with so much output at most, of which the answer takes its part.
    fn budget(&self, model: &str, most_output: Option<u64>) -> u64 {
        let budget = self.budget.min(most_output.map_or(u64::MAX, |most| most / 2));
        if model.contains("-pro") {
            budget.max(LEAST_OF_PRO)
        } else if model.contains("-lite") && budget < LEAST_OF_LITE {
            0
        } else {
            budget
        }
    }
}

/// Whether `reasoning_effort` may say this.
pub(super) fn is_effort(word: &str) -> bool {
    EFFORTS.iter().any(|effort| effort.word == word)
}

/// The member `thinkingConfig` of a call; `None` if nothing was asked, or the model does not think.
pub(super) fn config(request: &ModelRequest, generation: Option<u32>) -> Option<Cow<'_, str>> {
    let (sampling, model) = (&request.sampling, request.model.as_str());
    if let Some(own) = own(sampling, "thinking_config") {
        return Some(Cow::Borrowed(own));
    }
    let word = sampling.reasoning_effort.as_deref()?;
    let effort = EFFORTS.iter().find(|effort| effort.word == word)?;
    let budget = effort.budget(model, request.max_tokens);
    let (told, thinks) = match generation {
        Some(2) if !model.contains("gemini-2.0") => (format!("\"thinkingBudget\":{budget}"), budget > 0),
        Some(3..) => (format!("\"thinkingLevel\":\"{}\"", effort.level(model)), true),
        // Names such as `gemini-flash-latest` are of new models.
        None if model.contains("gemini") => (format!("\"thinkingLevel\":\"{}\"", effort.level(model)), true),
        Some(0..3) | None => return None,
    };
    // What it thinks is shown where it was asked to think.
    let shows = if thinks && effort.budget > 0 { ",\"includeThoughts\":true" } else { "" };
    Some(Cow::Owned(format!("{{{told}{shows}}}")))
}
