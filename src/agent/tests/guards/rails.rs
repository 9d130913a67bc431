//! Guardrails of an agent: what fails them, and what that ends.

use super::super::support::{Say, TestAgent, outcome, request, shown, watch};
use super::{guarded, results, saying};
use crate::agent::{AskedPrompt, NewRun};
use crate::config::PromptConfig;
use crate::types::guard::{GuardPoint, Guarded, Guardrail, GuardrailRule, Guards, Severity};
use crate::types::prompt::PromptLayer;
use crate::types::{Record, StopReason};

fn rail(on: GuardPoint, pattern: &str, tripwire: bool) -> Guardrail {
    let rule = GuardrailRule::Regex { pattern: pattern.into() };
    Guardrail { name: "no-secrets".into(), on, rule, tripwire, severity: Severity::High }
}

pub(super) fn railed(on: GuardPoint, pattern: &str, tripwire: bool) -> Guards {
    Guards { guardrails: vec![rail(on, pattern, tripwire)], ..Guards::default() }
}

pub(super) fn triggered(records: &[Record]) -> Vec<(String, bool)> {
    let triggered = guarded(records).into_iter().filter_map(|guarded| match guarded {
        Guarded::Triggered(triggered) => Some((triggered.on.as_str().to_owned(), triggered.tripwire)),
        _ => None,
    });
    triggered.collect()
}

#[tokio::test(start_paused = true)]
async fn a_tripwire_on_the_input_ends_the_run_before_the_model_is_asked() {
    let agent =
        TestAgent::builder().turns(vec![Say::Text(&["ok"])]).guards(railed(GuardPoint::Input, "secret", true)).begin();
    let records = watch(agent.start(saying("my secret"), None).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!((outcome.reason, triggered(&records)), (StopReason::Guardrail, vec![("input".to_owned(), true)]));
    assert!(outcome.output_text.starts_with("The guardrail \"no-secrets\" stopped the run"), "{}", outcome.output_text);
    assert!(agent.model.requests.lock().is_empty());
}

/// What a request says in its prompt is no way around what users may not say.
#[tokio::test(start_paused = true)]
async fn guardrails_on_the_input_judge_what_a_request_says_in_its_prompt() {
    let config = || PromptConfig { max_extra_context: Some(99), request_layers: true, ..PromptConfig::default() };
    let context = AskedPrompt { extra_context: Some("my secret".into()), ..AskedPrompt::default() };
    let layer = AskedPrompt { layers: vec![PromptLayer::new("own", "my secret")], ..AskedPrompt::default() };
    for asked in [context, layer] {
        let builder =
            TestAgent::builder().prompt("Be brief.", config()).guards(railed(GuardPoint::Input, "secret", true));
        let agent = builder.turns(vec![Say::Text(&["ok"])]).begin();
        let new = NewRun { prompt: Some(Box::new(asked)), ..saying("question") };
        let records = watch(agent.start(new, None).await.unwrap()).await;
        assert_eq!((outcome(&records).reason, triggered(&records).len()), (StopReason::Guardrail, 1));
        assert!(agent.model.requests.lock().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_guardrail_without_a_tripwire_tells_once_and_the_run_goes_on() {
    let turns = vec![Say::Calls("", vec![("echo", "{}")]), Say::Text(&["ok"])];
    let agent = TestAgent::builder().turns(turns).guards(railed(GuardPoint::Input, "secret", false)).begin();
    let records = watch(agent.start(saying("my secret"), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, triggered(&records).len()), (StopReason::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_of_what_fails_is_shown_or_kept_of_an_answer() {
    const SAID: &[&str] = &[
        "The card is 4111",
        "111111111111 and more text follows here, ",
        "enough for it to be shown if it were not held",
    ];
    for pattern in [r"\b\d{16}\b", r"\d{16}.*"] {
        let agent =
            TestAgent::builder().turns(vec![Say::Text(SAID)]).guards(railed(GuardPoint::Output, pattern, true)).begin();
        let records = watch(agent.start(request(), None).await.unwrap()).await;
        let outcome = outcome(&records);
        assert_eq!((outcome.reason, triggered(&records)), (StopReason::Guardrail, vec![("output".to_owned(), true)]));
        let log = serde_json::to_string(&records).unwrap();
        assert!(!shown(&records).contains("4111") && !log.contains("4111"), "{log}");
        assert!(outcome.usage.total() == 15, "the call is charged as it was");
    }
    let agent =
        TestAgent::builder().turns(vec![Say::Text(SAID)]).guards(railed(GuardPoint::Output, "[0-9]{20}", true)).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((shown(&records), outcome(&records).output_text), (SAID.concat(), SAID.concat()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_shows_what_was_held_unless_it_fails() {
    const BEFORE: &str = "A text of more than a hundred and twenty-eight bytes, so that the beginning of it is shown while \
                          the end of it is held: the number is ";
    for (number, is_shown) in [("4111111111111111", false), ("4111", true)] {
        let turns = vec![Say::Stall(if is_shown { &[BEFORE, "4111"] } else { &[BEFORE, "4111111111111111"] })];
        let guards = railed(GuardPoint::Output, r"\b\d{16}\b", true);
        let agent = TestAgent::builder().turns(turns).guards(guards).begin();
        let mut started = agent.start(request(), None).await.unwrap();
        let (tenant, run) = (request().tenant, started.head.id.clone());
        let mut records: Vec<Record> = Vec::new();
        while shown(&records).is_empty() {
            let page = started.follower.next().await.unwrap().unwrap();
            records.extend(page.into_iter().map(|record| (*record).clone()));
        }
        agent.runs().cancel(&tenant, &run).await.unwrap();
        let rest = watch(started).await;
        let said = outcome(&rest);
        let all = shown(&records) + &shown(&rest);
        assert_eq!((said.reason, said.output_text.as_str()), (StopReason::Cancelled, all.as_str()));
        assert_eq!((all.contains(number), BEFORE.starts_with(all.trim_end_matches(number))), (is_shown, true), "{all}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_arguments_fail_is_not_made_and_a_result_that_fails_is_withheld() {
    for (point, result, made) in [
        (GuardPoint::ToolArguments, "The call was not made", 0),
        (GuardPoint::ToolResult, "The result was withheld", 1),
    ] {
        let turns = vec![Say::Calls("", vec![("echo", r#"{"n":13}"#), ("save", r#"{"n":2}"#)]), Say::Text(&["ok"])];
        let agent = TestAgent::builder().turns(turns).guards(railed(point, "13", true)).begin();
        let records = watch(agent.start(request(), None).await.unwrap()).await;
        assert_eq!((outcome(&records).reason, triggered(&records).len()), (StopReason::Guardrail, 1));
        let results = results(&records);
        assert!(results.len() == 2 && results.iter().any(|(text, _)| text.starts_with(result)), "{results:?}");
        assert_eq!(agent.journal.lock().len(), made, "{point:?}");
    }
}
