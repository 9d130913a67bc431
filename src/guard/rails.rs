//! Judges a text by guardrails that need nothing but the text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;
use regex::{Regex, RegexBuilder};

use crate::guard::plain::readings;
use crate::types::guard::{GuardPoint, Guardrail, GuardrailRule, MAX_COMPILED};

/// Most expressions that are kept compiled.
const MAX_KEPT: usize = 1_024;

/// Compiled expressions, as runs name them.
static COMPILED: LazyLock<RwLock<HashMap<String, Regex>>> = LazyLock::new(RwLock::default);

/// The guardrails of `point` that one of these texts fails, in their order.
pub fn failed<'g>(
    guardrails: &'g [Guardrail],
    point: GuardPoint,
    texts: &[&'g str],
) -> impl Iterator<Item = &'g Guardrail> + use<'g> {
    let texts: Vec<Vec<Cow<'g, str>>> = match point {
        GuardPoint::Input | GuardPoint::Output => texts.iter().map(|text| vec![Cow::Borrowed(*text)]).collect(),
        // What stands there is JSON, or may be.
        GuardPoint::ToolArguments | GuardPoint::ToolResult => texts.iter().map(|text| readings(text)).collect(),
    };
    let rails = guardrails.iter().filter(move |rail| rail.on == point);
    rails.filter(move |rail| texts.iter().any(|readings| fails(rail, readings)))
}

/// Whether a text fails a guardrail, of which this is the text itself and how else it reads.
fn fails(rail: &Guardrail, readings: &[Cow<'_, str>]) -> bool {
    match &rail.rule {
        // An expression that was accepted once compiles.
        GuardrailRule::Regex { pattern } => {
            compiled(pattern).is_ok_and(|regex| readings.iter().any(|reading| regex.is_match(reading)))
        }
        GuardrailRule::MaxLength { chars } => {
            let text = &readings[0];
            let most = usize::try_from(*chars).unwrap_or(usize::MAX);
            text.len() > most && text.chars().nth(most).is_some()
        }
        // Whoever is asked says that.
        GuardrailRule::Webhook { .. } | GuardrailRule::Model(_) => false,
    }
}

/// The expression, or what is wrong with it.
pub fn compiled(pattern: &str) -> Result<Regex, String> {
    if let Some(known) = COMPILED.read().get(pattern) {
        return Ok(known.clone());
    }
    let regex = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build().map_err(|error| error.to_string())?;
    let mut kept = COMPILED.write();
    if kept.len() >= MAX_KEPT {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::guard::Severity;

    fn rail(name: &str, on: GuardPoint, rule: GuardrailRule) -> Guardrail {
        Guardrail { name: name.into(), on, rule, tripwire: true, severity: Severity::High }
    }

    #[test]
    fn a_text_fails_the_guardrails_of_its_point_that_it_breaks() {
        let cards = GuardrailRule::Regex { pattern: r"\b\d{16}\b".into() };
        let rails = [
            rail("cards", GuardPoint::Output, cards.clone()),
            rail("short", GuardPoint::Output, GuardrailRule::MaxLength { chars: 20 }),
            rail("elsewhere", GuardPoint::Input, cards),
        ];
        let names =
            |text: &str| failed(&rails, GuardPoint::Output, &[text]).map(|rail| rail.name.clone()).collect::<Vec<_>>();
        assert_eq!(names("4111111111111111"), ["cards"]);
        assert_eq!(names("41111111111111112"), [""; 0]);
        assert_eq!(names("no more than twenty."), [""; 0]);
        assert_eq!(names("é 4111111111111111 is long"), ["cards", "short"]);
        let twice = failed(&rails, GuardPoint::Output, &["4111111111111111", "4111111111111111"]);
        assert_eq!(twice.count(), 1, "lengths are not added up");
        assert!(compiled("(").is_err() && compiled(r"\w{9999}{9}").is_err());
    }
}
