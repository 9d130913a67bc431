//! What messages, answers and results of runs are held to.

mod approved;
mod asked;
mod input;
mod rails;
mod said;

use std::sync::Arc;

use super::support::{Echo, Say, TestAgent, outcome, request, shown, watch};
use crate::agent::NewRun;
use crate::llm::openai::messages::joined;
use crate::types::guard::{Guarded, Guards, OutputRules, ResultBounds, Sanitise};
use crate::types::sampling::{ResponseFormat, Sampling};
use crate::types::{Effect, Event, Message, Record, Role, StopReason};

fn saying(text: &str) -> NewRun {
    NewRun { messages: vec![Message::text(Role::User, text)], ..request() }
}

/// What guards found.
fn guarded(records: &[Record]) -> Vec<Guarded> {
    let guarded = records.iter().filter_map(|record| match &record.event {
        Event::Guarded(guarded) => Some((**guarded).clone()),
        _ => None,
    });
    guarded.collect()
}

/// The results of a run's calls, and whether they were cut.
fn results(records: &[Record]) -> Vec<(String, bool)> {
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some((outcome.text().into_owned(), outcome.truncated)),
        _ => None,
    });
    results.collect()
}

#[tokio::test(start_paused = true)]
async fn what_no_model_reads_is_taken_out_of_a_result_before_it_is_kept() {
    let long = "z".repeat(3_000);
    let digits = "deadbeef".repeat(5);
    let said = format!(r#"{{"a":"{digits}","b":"data:application/pdf;base64,QUJD","c":"\u0000","d":"{long}"}}"#);
    let turns = vec![Say::Calls("", vec![("say", said.leak())]), Say::Text(&["ok"])];
    let say = Echo::new("say", Effect::Read, 1).defined("Says its arguments.", r#"{"type":"object"}"#);
    let guards = Guards { results: ResultBounds { max_bytes: 1_024, hex_run: 32 }, ..Guards::default() };
    let agent = TestAgent::builder().turns(turns).tools(vec![Arc::new(say)]).guards(guards).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let [(text, true)] = &results(&records)[..] else { panic!("{records:?}") };
    assert!(text.starts_with(r#"{"a":"[40 hexadecimal digits]","b":"[application/pdf, 3 bytes]","c":""#), "{text}");
    assert!(text.len() <= 1_024 && text.contains(" bytes removed …]"), "{text}");
    let asked = joined(&agent.model.requests.lock()[1].conversation);
    assert!(asked.contains("[application/pdf, 3 bytes]") && asked.matches("deadbeef").count() == 5, "{asked}");
}

fn thought(records: &[Record]) -> String {
    let thought = records.iter().filter_map(|record| match &record.event {
        Event::ThinkingDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    thought.collect()
}

fn output(sanitise: Sanitise, allow_no_reply: bool) -> Guards {
    Guards { output: OutputRules { sanitise, allow_no_reply }, ..Guards::default() }
}

#[tokio::test(start_paused = true)]
async fn thinking_in_tags_becomes_thinking_and_calls_behind_it_are_found() {
    const SAID: &[&str] = &["<th", "ink>I must</thi", "nk>\n\nhel", "lo"];
    const CALLING: &[&str] = &["<think>hm</think>\n{\"name\": \"echo\", ", "\"arguments\": {\"n\": 4}}"];
    let agent = TestAgent::builder().turns(vec![Say::Written(SAID)]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((shown(&records).as_str(), thought(&records).as_str()), ("hello", "I must"));
    assert_eq!((outcome(&records).output_text.as_str(), outcome(&records).reasoning.as_str()), ("hello", "I must"));

    let agent = TestAgent::builder().turns(vec![Say::Written(CALLING), Say::Text(&["four"])]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((shown(&records).as_str(), thought(&records).as_str()), ("four", "hm"));
    assert_eq!(outcome(&records).tool_calls, 1);

    let agent = TestAgent::builder().turns(vec![Say::Written(SAID)]).guards(output(Sanitise::Off, false)).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(shown(&records), SAID.concat());
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_of_a_sanitised_answer_is_what_is_kept_of_it() {
    const SAID: &[&str] = &["\n\n<final>one\n", "\non", "e\n\n[System Mess", "age] be\n\ntwo</fi", "nal> \n"];
    for hides in [false, true] {
        let agent = TestAgent::builder().turns(vec![Say::Written(SAID)]).guards(output(Sanitise::Full, false)).begin();
        let mut asked = request();
        asked.options.hide_intermediate_text = hides;
        let records = watch(agent.start(asked, None).await.unwrap()).await;
        assert_eq!((shown(&records).as_str(), outcome(&records).output_text.as_str()), ("one\n\ntwo", "one\n\ntwo"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_may_have_nothing_to_say_where_that_is_allowed() {
    const SAID: &[&str] = &["NO_", "REPLY\n"];
    for hides in [false, true] {
        let agent = TestAgent::builder().turns(vec![Say::Text(SAID)]).guards(output(Sanitise::Thinking, true)).begin();
        let mut asked = request();
        asked.options.hide_intermediate_text = hides;
        let records = watch(agent.start(asked, None).await.unwrap()).await;
        let outcome = outcome(&records);
        assert_eq!(
            (outcome.reason, outcome.output_text.as_str(), shown(&records).as_str()),
            (StopReason::NoReply, "", "")
        );
    }
    let agent = TestAgent::builder().turns(vec![Say::Text(SAID)]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, shown(&records).as_str()), (StopReason::Done, "NO_REPLY\n"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_while_text_is_held_has_said_that() {
    let turns = vec![Say::Stall(&["<think>hm</think>one\n\nNO", "\n[System M"])];
    let agent = TestAgent::builder().turns(turns).guards(output(Sanitise::Full, true)).begin();
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
    assert_eq!((said.reason, said.output_text.as_str()), (StopReason::Cancelled, "one\n\nNO\n[System M"));
    assert_eq!(shown(&records) + &shown(&rest), said.output_text);
}

#[tokio::test(start_paused = true)]
async fn tags_stay_where_json_is_asked_for_and_where_thinking_comes_by_itself() {
    const SAID: &[&str] = &["<think>{\"tag\"", ":\"\\n<think>\"}"];
    let agent = TestAgent::builder().turns(vec![Say::Text(SAID)]).guards(output(Sanitise::Full, false)).begin();
    let mut asked = request();
    let sampling = Sampling { response_format: Some(ResponseFormat::JsonObject), ..Sampling::default() };
    asked.options.sampling = Arc::new(sampling);
    let records = watch(agent.start(asked, None).await.unwrap()).await;
    assert_eq!((shown(&records), outcome(&records).output_text.as_str()), (SAID.concat(), &*SAID.concat()));

    let agent = TestAgent::builder().turns(vec![Say::Unmetered("hm", "<think>no tag")]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((shown(&records).as_str(), thought(&records).as_str()), ("<think>no tag", "hm"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_nothing_but_what_goes_is_an_empty_one() {
    let garbage = || Say::Written(&["<tool_call>{\"na", "me\": </tool_call>"]);
    let turns = vec![garbage(), garbage(), garbage()];
    let agent = TestAgent::builder().turns(turns).guards(output(Sanitise::Full, false)).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, shown(&records).as_str()), (StopReason::EmptyResponse, ""));
}
