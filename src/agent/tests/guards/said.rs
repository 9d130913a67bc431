//! What guardrails judge, wherever it is said: questions, refusals, answers of the user, JSON however it is written, and what
//! comes just before the end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::super::support::{Echo, Say, TestAgent, outcome, request, watch};
use super::rails::{railed, triggered};
use super::{guarded, results};
use crate::agent::NewRun;
use crate::llm::openai::messages::joined;
use crate::tools::{CallContext, Source, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::guard::{GuardPoint, Guarded, Guardrail, GuardrailRule, Guards, Severity};
use crate::types::json::RawValueEq;
use crate::types::run::OnLimit;
use crate::types::{Effect, Event, Message, Record, Role, SessionId, StopReason, Tenant, ToolProgress};

/// A question with a number that only its JSON hides.
const ASKS: &str = r#"{"question":"Is it yours?","options":["the card 4111\u00311111"]}"#;
const NUMBER: &str = "411111111";

fn may_ask(messages: Vec<Message>) -> NewRun {
    NewRun { tools: Some(vec!["*".to_owned(), "ask_user".to_owned()]), messages, ..request() }
}

fn says(text: &str) -> NewRun {
    may_ask(vec![Message::text(Role::User, text)])
}

async fn play(agent: &TestAgent, new: NewRun) -> Vec<Record> {
    watch(agent.start(new, None).await.unwrap()).await
}

/// What the model declined with, as it was shown.
fn declined(records: &[Record]) -> String {
    let declined = records.iter().filter_map(|record| match &record.event {
        Event::RefusalDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    declined.collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_model_asks_the_user_is_judged_as_what_it_says() {
    for (tripwire, reason) in [(true, StopReason::Guardrail), (false, StopReason::AskUser)] {
        let turns = vec![Say::Calls("One question.", vec![("ask_user", ASKS)])];
        let agent = TestAgent::builder().turns(turns).guards(railed(GuardPoint::Output, NUMBER, tripwire)).begin();
        let records = play(&agent, says("hello")).await;
        assert_eq!((outcome(&records).reason, triggered(&records)), (reason, vec![("output".to_owned(), tripwire)]));
        let log = serde_json::to_string(&records).unwrap();
        assert_eq!(log.contains("Is it yours?"), !tripwire, "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_not_shown_while_it_is_written_where_its_words_may_fail() {
    for (tripwire, asks, is_shown) in [(true, true, false), (true, false, true), (false, true, true)] {
        let guards = railed(GuardPoint::Output, NUMBER, tripwire);
        let agent = TestAgent::builder().turns(vec![Say::Writes(1, "hm")]).guards(guards).begin();
        let mut new = if asks { says("hello") } else { request() };
        new.options.stream_tool_arguments = true;
        let started = agent.start(new, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        agent.runs().cancel(&Tenant::default_tenant(), &started.head.id).await.unwrap();
        let records = watch(started).await;
        let shown = records.iter().any(|record| matches!(record.event, Event::ToolArgumentsDelta { .. }));
        assert_eq!(shown, is_shown, "tripwire: {tripwire}, asks: {asks}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_model_declines_with_is_held_and_judged() {
    const SAID: &[&str] = &[
        "I will not tell that the card is 4111",
        "11111 and more text follows here, ",
        "enough for it to be shown if it were not held, so long is it",
    ];
    let agent = |guards| TestAgent::builder().turns(vec![Say::Declines(SAID)]).guards(guards).begin();
    let records = play(&agent(railed(GuardPoint::Output, NUMBER, true)), request()).await;
    let stopped = outcome(&records);
    assert_eq!((stopped.reason, triggered(&records).len()), (StopReason::Guardrail, 1));
    let log = serde_json::to_string(&records).unwrap();
    assert!(!log.contains("4111") && stopped.refusal == declined(&records), "{log}");

    for guards in [railed(GuardPoint::Output, "[0-9]{20}", true), railed(GuardPoint::Output, "x.*y", true)] {
        let records = play(&agent(guards), request()).await;
        let end = outcome(&records);
        assert_eq!((declined(&records), end.refusal, end.reason), (SAID.concat(), SAID.concat(), StopReason::Done));
    }
}

#[tokio::test(start_paused = true)]
async fn no_way_to_write_json_hides_what_it_says() {
    const WRITTEN: [&str; 4] = [
        r#"{"command":"rm\u0020-rf"}"#,
        r#"{"rm\u0020\u002drf":1}"#,
        r#"{"command":"\"rm\\u0020-rf\""}"#,
        r#"{"command":"rm\t-rf"}"#,
    ];
    for written in WRITTEN {
        for (point, made) in [(GuardPoint::ToolArguments, 0), (GuardPoint::ToolResult, 1)] {
            let say = Echo::new("say", Effect::Read, 1).defined("Says its arguments.", r#"{"type":"object"}"#);
            let journal = say.journal.clone();
            let turns = vec![Say::Calls("", vec![("say", written)]), Say::Text(&["ok"])];
            let length = Guardrail {
                name: "short".into(),
                on: point,
                rule: GuardrailRule::MaxLength { chars: u32::try_from(written.len()).unwrap() },
                tripwire: true,
                severity: Severity::Low,
            };
            let mut guards = railed(point, r"rm\s-rf", true);
            guards.guardrails.push(length);
            let agent = TestAgent::builder().tools(vec![Arc::new(say)]).turns(turns).guards(guards).begin();
            let records = play(&agent, request()).await;
            assert_eq!(outcome(&records).reason, StopReason::Guardrail, "{written}");
            assert_eq!((triggered(&records).len(), journal.lock().len()), (1, made), "{written}");
        }
    }
}

/// Answers in words, and in JSON that says something else.
#[derive(Debug)]
struct Twofold(ToolSpec);

#[async_trait]
impl Tool for Twofold {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        let json = RawValue::from_string(r#"{"note":"4111\u00311111"}"#.to_owned()).unwrap();
        Ok(ToolAnswer { structured: Some(RawValueEq(json)), ..ToolAnswer::text("all is well") })
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "look".into(),
        description: "Looks.".into(),
        parameters: RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap(),
        effect: Effect::Read,
        timeout: None,
        source: Source::Builtin,
    }
}

#[tokio::test(start_paused = true)]
async fn the_json_beside_the_words_of_a_result_is_judged_too() {
    for (pattern, reason) in [(NUMBER, StopReason::Guardrail), ("all is ill", StopReason::Done)] {
        let turns = vec![Say::Calls("", vec![("look", "{}")]), Say::Text(&["ok"])];
        let guards = railed(GuardPoint::ToolResult, pattern, true);
        let agent = TestAgent::builder().tools(vec![Arc::new(Twofold(spec()))]).turns(turns).guards(guards).begin();
        let records = play(&agent, request()).await;
        assert_eq!(outcome(&records).reason, reason);
        let log = serde_json::to_string(&records).unwrap();
        assert_eq!(log.contains("4111"), reason == StopReason::Done, "{log}");
    }
}

/// An agent of which the user is asked something.
async fn asked(guards: Guards) -> (TestAgent, NewRun) {
    let turns = vec![Say::Calls("", vec![("ask_user", r#"{"question":"Which?"}"#)]), Say::Text(&["fine"])];
    let agent = TestAgent::builder().turns(turns).guards(guards).begin();
    let waits = outcome(&play(&agent, says("hello")).await);
    assert_eq!(waits.reason, StopReason::AskUser);
    let call = waits.required_calls[0].call.id.clone();
    let answer =
        NewRun { run: call.run(), answered: vec![call.clone()], ..may_ask(vec![Message::tool(&call, "my secret")]) };
    (agent, answer)
}

#[tokio::test(start_paused = true)]
async fn what_the_user_answers_is_judged_as_what_a_user_says() {
    for in_words in [true, false] {
        for (pattern, reason) in [("secret", StopReason::Guardrail), ("nothing", StopReason::Done)] {
            let (agent, answer) = asked(railed(GuardPoint::Input, pattern, true)).await;
            let answer = if in_words { NewRun { run: answer.run.clone(), ..says("my secret") } } else { answer };
            let records = play(&agent, answer).await;
            assert_eq!(outcome(&records).reason, reason, "in words: {in_words}");
            assert_eq!(triggered(&records).len(), usize::from(reason == StopReason::Guardrail));
            assert_eq!(agent.model.requests.lock().len(), 1 + usize::from(reason == StopReason::Done));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_user_answers_is_cut_as_a_message_is() {
    for in_words in [true, false] {
        let (agent, answer) = asked(Guards { max_message_chars: 5, ..Guards::default() }).await;
        let answer = if in_words { NewRun { run: answer.run.clone(), ..says("my secret") } } else { answer };
        let records = play(&agent, answer).await;
        assert_eq!(guarded(&records), [Guarded::InputTruncated { message: 0, chars: 9, kept: 5 }]);
        let sent = joined(&agent.model.requests.lock().last().unwrap().conversation);
        assert!(sent.contains("my se\\n[This message was cut: 4 of its 9 characters are missing here.]"), "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_a_closing_answer_is_judged_before_it_is_asked_for() {
    for (by_time, reason) in [(true, StopReason::Timeout), (false, StopReason::MaxIterations)] {
        for (text, is_asked) in [("my secret", false), ("hello", true)] {
            let turns = vec![Say::Calls("", vec![("hang", "{}")])];
            let agent = TestAgent::builder().turns(turns).guards(railed(GuardPoint::Input, "secret", true)).begin();
            let mut new = NewRun { on_limit: Some(OnLimit::Synthesize), ..request() };
            if by_time {
                new.limits.timeout_ms = Some(2_000);
            } else {
                new.limits.max_iterations = Some(1);
            }
            let started = agent.start(new, None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let more = vec![Message::text(Role::User, text)];
            agent.runs().steer(&Tenant::default_tenant(), &started.head.id, more, None).await.unwrap();
            let records = watch(started).await;
            let expected = if is_asked { (reason, 2) } else { (StopReason::Guardrail, 1) };
            assert_eq!((outcome(&records).reason, agent.model.requests.lock().len()), expected, "{text}");
            assert!(!results(&records).is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_guardrail_refused_is_in_no_later_request_of_its_session() {
    let of_session = |new: NewRun| NewRun { session: SessionId::parse("s"), ..new };
    let agent =
        TestAgent::builder().turns(vec![Say::Text(&["ok"])]).guards(railed(GuardPoint::Input, "secret", true)).begin();
    assert_eq!(outcome(&play(&agent, of_session(says("my secret"))).await).reason, StopReason::Guardrail);
    let next = outcome(&play(&agent, of_session(says("What did I say?"))).await);
    assert_eq!(next.reason, StopReason::Done);

    let turns = vec![Say::Calls("", vec![("ask_user", r#"{"question":"Which?"}"#)]), Say::Text(&["fine"])];
    let asks = TestAgent::builder().turns(turns).guards(railed(GuardPoint::Input, "secret", true)).begin();
    assert_eq!(outcome(&play(&asks, of_session(says("hello"))).await).reason, StopReason::AskUser);
    assert_eq!(outcome(&play(&asks, of_session(says("my secret"))).await).reason, StopReason::Guardrail);
    assert_eq!(outcome(&play(&asks, of_session(says("What did I say?"))).await).reason, StopReason::Done);
    for agent in [agent, asks] {
        let sent = joined(&agent.model.requests.lock().last().unwrap().conversation);
        assert!(sent.contains("What did I say?") && !sent.contains("secret"), "{sent}");
    }
}

/// Tells of its progress, then answers.
#[derive(Debug)]
struct Tells(ToolSpec);

#[async_trait]
impl Tool for Tells {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        context.progress.report(ToolProgress { message: Some("so far 411111111".into()), ..ToolProgress::default() });
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(ToolAnswer::text("done"))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_of_its_progress_is_shown_if_it_passes() {
    for (pattern, is_shown) in [(NUMBER, false), ("nothing", true)] {
        let turns = vec![Say::Calls("", vec![("look", "{}")]), Say::Text(&["ok"])];
        let guards = railed(GuardPoint::ToolResult, pattern, true);
        let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Tells(spec()))];
        let agent = TestAgent::builder().tools(tools).turns(turns).guards(guards).begin();
        let records = play(&agent, request()).await;
        let told = records.iter().find_map(|record| match &record.event {
            Event::ToolProgress { progress, .. } => Some(progress.message.is_some()),
            _ => None,
        });
        assert_eq!((told, outcome(&records).reason), (Some(is_shown), StopReason::Done));
    }
}
