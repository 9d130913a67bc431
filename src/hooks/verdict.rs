//! Reads what a service or program says that a guardrail asks: one word of two, and why.
//!
//! Pure. Other than a hook's answer, one that is empty or has no verdict is a failure: a service that takes every message, or that
//! answers something else by mistake, judges nothing.

use serde::Deserialize;

use super::failure::HookFailure;
use crate::types::hook::{HookDecision, HookReply};

/// How many characters of a reason count.
const MOST_REASON: usize = 500;

#[derive(Debug, Deserialize)]
struct Said {
    verdict: Word,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Pass,
    Fail,
}

/// What this answer says of a text.
pub(super) fn parse(answer: &[u8]) -> Result<HookReply, HookFailure> {
    if answer.trim_ascii().first() != Some(&b'{') {
        return Err(HookFailure::new("its answer is no JSON object"));
    }
    // The error's own words may quote the answer.
    let said: Said = serde_json::from_slice(answer).map_err(|error| {
        HookFailure::new(format!("its answer has no verdict, in line {} column {}", error.line(), error.column()))
    })?;
    let decision = match said.verdict {
        Word::Pass => HookDecision::Pass,
        Word::Fail => HookDecision::Deny,
    };
    let reason = said.reason.map(|reason| reason.trim().chars().take(MOST_REASON).collect::<String>());
    Ok(HookReply { decision, reason: reason.filter(|reason| !reason.is_empty()), ..HookReply::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answer: &str) -> Result<(HookDecision, Option<String>), String> {
        parse(answer.as_bytes()).map(|reply| (reply.decision, reply.reason)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_verdict_is_said_in_so_many_words() {
        assert_eq!(said(r#"{"verdict": "pass"}"#), Ok((HookDecision::Pass, None)));
        assert_eq!(said(r#"{"verdict": "fail", "reason": " It is rude. ", "score": 0.9}"#), {
            Ok((HookDecision::Deny, Some("It is rude.".to_owned())))
        });
        let long = format!(r#"{{"verdict": "fail", "reason": "{}"}}"#, "é".repeat(2_000));
        assert_eq!(said(&long).unwrap().1.unwrap().chars().count(), MOST_REASON);
    }

    #[test]
    fn anything_else_is_a_failure_and_is_not_repeated() {
        for (answer, failure) in [
            ("", "its answer is no JSON object"),
            ("{}", "its answer has no verdict, in line 1 column 2"),
            (r#"["pass"]"#, "its answer is no JSON object"),
            (r#"{"verdict": "PASS"}"#, "its answer has no verdict, in line 1 column 18"),
            (r#"{"verdict": true}"#, "its answer has no verdict, in line 1 column 13"),
            (r#"{"decision": "block"}"#, "its answer has no verdict, in line 1 column 21"),
            (r#"{"verdict": "pass""#, "its answer has no verdict, in line 1 column 18"),
            (r#"{"verdict": "pass", "verdict": "fail"}"#, "its answer has no verdict, in line 1 column 29"),
        ] {
            assert_eq!(said(answer), Err(failure.to_owned()), "{answer}");
        }
    }
}
