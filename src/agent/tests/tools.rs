use std::sync::Arc;

use super::support::{Say, TestAgent, client_tool, outcome, request, shown, watch};
use crate::agent::NewRun;
use crate::store::Order;
use crate::types::conversation::Origin;
use crate::types::event::{Asked, Leg};
use crate::types::run::RunOptions;
use crate::types::sampling::Sampling;
use crate::types::{CallId, ErrorKind, Event, Message, Record, Role, RunId, RunStatus, SessionId, StopReason, Tenant};

fn results(records: &[Record]) -> Vec<(String, bool)> {
    let results = records.iter().filter_map(|record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some((outcome.text().into_owned(), outcome.is_error)),
        _ => None,
    });
    results.collect()
}

#[tokio::test(start_paused = true)]
async fn tool_calls_run_and_the_model_answers_from_their_results() {
    let turns =
        vec![Say::Calls("look", vec![("echo", r#"{"n":1}"#), ("save", r#"{"n":2}"#)]), Say::Text(&["he", "llo"])];
    let agent = TestAgent::builder().turns(turns).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(results(&records), [(r#"{"n":1}"#.to_owned(), false), (r#"{"n":2}"#.to_owned(), false)]);
    let outcome = outcome(&records);
    assert_eq!((outcome.output_text.as_str(), outcome.iterations, outcome.tool_calls), ("hello", 2, 2));
    assert_eq!(shown(&records), "lookhello");
    let numbers: Vec<u64> = records.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>(), "numbered without gaps");
    assert_eq!(outcome.usage.total(), 30);
}

#[tokio::test(start_paused = true)]
async fn calls_that_cannot_run_are_told_to_the_model() {
    let calls = vec![("nope", "{}"), ("echo", "{\"n\":"), ("echo", r#"{"n":"x"}"#), ("echo", "[]")];
    let agent = TestAgent::builder().turns(vec![Say::Calls("", calls), Say::Text(&["ok"])]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let results = results(&records);
    assert!(results.iter().all(|(_, is_error)| *is_error), "{results:?}");
    assert!(results[0].0.contains("no tool named \"nope\""));
    assert!(agent.journal.lock().is_empty(), "nothing ran");
    assert_eq!(outcome(&records).reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_is_stopped() {
    let agent = TestAgent::builder()
        .turns(vec![Say::Calls("", vec![("hang", "{}"), ("echo", "{}")]), Say::Text(&["ok"])])
        .begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let results = results(&records);
    assert_eq!(results[0], ("{}".to_owned(), false), "shown in the order of completion");
    assert!(results[1].1, "{results:?}");
    assert_eq!(outcome(&records).output_text, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_text_that_is_nothing_but_a_call_becomes_a_call_and_is_not_shown() {
    let written = &["```json\n{\"name\": \"ec", "ho\", \"arguments\": {\"n\": 4}}\n```\n"];
    let agent = TestAgent::builder().turns(vec![Say::Written(written), Say::Text(&["four"])]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(results(&records), [(r#"{"n": 4}"#.to_owned(), false)]);
    assert_eq!(shown(&records), "four");
}

/// Quoting is not calling.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_model_only_shows_is_text() {
    const QUOTING: &[&str] =
        &["To save you would send:\n```json\n{\"name\": \"save\", \"arg", "uments\": {\"n\": 4}}\n```\nShall I?"];
    const BEFORE: &[&str] = &["{\"name\": \"save\", \"arguments\": {\"n\": 4}}\n", "Shall I do that?"];
    for text in [QUOTING, BEFORE] {
        let agent = TestAgent::builder().turns(vec![Say::Written(text)]).begin();
        let records = watch(agent.start(request(), None).await.unwrap()).await;
        assert_eq!((results(&records).len(), shown(&records)), (0, text.concat()));
        assert_eq!(outcome(&records).output_text, text.concat());
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_repeats_its_written_call_until_it_is_cut_off_made_one_call() {
    const CALL: &str = "{\"name\": \"save\", \"arguments\": {\"n\": 4}}\n";
    let agent = TestAgent::builder()
        .turns(vec![Say::Rambled(&[CALL, CALL, CALL, "{\"name\": \"sa"]), Say::Text(&["saved"])])
        .begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(results(&records).len(), 1);
    assert_eq!(shown(&records).trim(), "saved");
}

#[tokio::test(start_paused = true)]
async fn text_is_held_until_it_is_known_to_be_the_answer() {
    let agent = TestAgent::builder()
        .turns(vec![Say::Calls("thinking aloud", vec![("echo", "{}")]), Say::Text(&["the ", "answer"])])
        .begin();
    let mut request = request();
    request.options.hide_intermediate_text = true;
    let records = watch(agent.start(request, None).await.unwrap()).await;
    assert_eq!(shown(&records), "the answer");
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_is_voided_where_that_can_be_shown_and_fails_elsewhere() {
    let agent = TestAgent::builder().turns(vec![Say::Break(&["half"])]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let discarded = records.iter().filter(|record| matches!(record.event, Event::StepDiscarded { .. })).count();
    assert_eq!((discarded, outcome(&records).reason), (3, StopReason::ProviderError), "twice again, then no more");

    let mut strict = request();
    strict.options.max_discards = 0;
    let records = watch(agent.start(strict, None).await.unwrap()).await;
    let error = outcome(&records).error.unwrap();
    assert_eq!(error.kind, ErrorKind::UpstreamUnavailable);
    assert_eq!(shown(&records), "half");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_resumes_with_its_clients_answers_however_they_come() {
    for way in ["session", "run", "transcript"] {
        let turns = vec![Say::Calls("", vec![("ask", "{}"), ("echo", "{}")]), Say::Text(&["thanks"])];
        let agent = TestAgent::builder().turns(turns).begin();
        let mut first = request();
        first.client_tools = vec![client_tool("ask")];
        first.session = (way == "session").then(|| SessionId::parse("s").unwrap());
        let started = agent.start(first.clone(), None).await.unwrap();
        let run = started.head.id.clone();
        let waiting = outcome(&watch(started).await);
        assert_eq!(waiting.status(), RunStatus::RequiresAction);
        let call = waiting.required_calls[0].call.id.clone();

        let mut second = request();
        second.session = first.session.clone();
        second.run = (way == "run").then(|| run.clone());
        second.answered = vec![call.clone()];
        second.messages = vec![Message::tool(&call, "yes")];
        if way == "transcript" {
            second.messages.splice(0..0, [Message::text(Role::User, "question"), Message::assistant("", &[])]);
            second.answers_from = 2;
        }
        let started = agent.start(second, None).await.unwrap();
        assert_eq!(started.head.id, run, "{way}");
        let records = watch(started).await;
        assert!(matches!(records[0].event, Event::RunResumed { .. }), "{way}: {:?}", records[0]);
        assert_eq!(outcome(&records).output_text, "thanks", "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_the_wrong_call_leaves_the_run_waiting() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["thanks"])]).begin();
    let mut first = request();
    first.client_tools = vec![client_tool("ask")];
    let started = agent.start(first, None).await.unwrap();
    let run = started.head.id.clone();
    watch(started).await;
    let wrong = CallId::foreign("call_other");
    let mut second = request();
    second.run = Some(run.clone());
    second.answered = vec![wrong.clone()];
    second.messages = vec![Message::tool(&wrong, "?")];
    assert!(agent.start(second, None).await.is_err());
    let tenant = crate::types::Tenant::default_tenant();
    assert_eq!(agent.runs().get(&tenant, &run).await.unwrap().head.status, RunStatus::RequiresAction);
    assert_eq!(agent.runs().cancel(&tenant, &run).await.unwrap().head.status, RunStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn every_message_says_where_it_came_from() {
    let turns = vec![Say::Calls("", vec![("echo", "{}")]), Say::Calls("", vec![("ask", "{}")]), Say::Text(&["fine"])];
    let agent = TestAgent::builder().turns(turns).begin();
    let session = SessionId::parse("s");
    let first = NewRun { client_tools: vec![client_tool("ask")], session: session.clone(), ..request() };
    let waiting = watch(agent.start(first, None).await.unwrap()).await;
    let call = outcome(&waiting).required_calls[0].call.id.clone();
    let messages = vec![Message::tool(&call, "yes"), Message::text(Role::User, "and?")];
    let answered = vec![call.clone()];
    let second = NewRun { messages, answered, session: session.clone(), ..request() };
    let records = watch(agent.start(second, None).await.unwrap()).await;
    assert_eq!(outcome(&records).output_text, "fine");
    let (messages, _) = agent
        .sessions()
        .messages(&crate::types::Tenant::default_tenant(), &session.unwrap(), 0, 10, Order::Ascending)
        .await
        .unwrap();
    let run = call.run().unwrap();
    let request = |leg, index| Origin::Request { run: run.clone(), leg, index };
    let step = |step| Origin::Step { run: run.clone(), step };
    let origins: Vec<Origin> = messages.into_iter().map(|message| message.origin).collect();
    assert_eq!(origins, [request(0, 0), step(1), step(1), step(2), request(1, 0), request(1, 1), step(3)]);
}

#[tokio::test(start_paused = true)]
async fn the_log_names_the_model_and_its_price_at_the_first_step_that_calls_it() {
    let call = || Say::Calls("", vec![("echo", "{}")]);
    let agent = TestAgent::builder().turns(vec![call(), call(), Say::Text(&["fine"])]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let named = records.iter().filter_map(|record| match &record.event {
        Event::StepStarted { model, .. } => {
            Some(model.as_ref().map(|model| (&*model.upstream, &*model.model, model.price.output)))
        }
        _ => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), [Some(("scripted", "m", 15_000_000)), None, None]);
    assert_eq!(outcome(&records).reason, StopReason::Done);
}

#[tokio::test(start_paused = true)]
async fn the_log_keeps_what_each_request_of_a_run_asked_for() {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["fine"])]).begin();
    let first = NewRun { client_tools: vec![client_tool("ask")], ..request() };
    let waiting = watch(agent.start(first, None).await.unwrap()).await;
    let call = outcome(&waiting).required_calls[0].call.id.clone();
    let sampling = Sampling { temperature: Some(0.2), ..Sampling::default() };
    let second = NewRun {
        run: call.run(),
        model: None,
        system: vec![Message::text(Role::System, "Be brief.")],
        messages: vec![Message::tool(&call, "yes")],
        answered: vec![call.clone()],
        client_tools: vec![client_tool("ask")],
        max_output_tokens: Some(64),
        options: RunOptions { sampling: Arc::new(sampling), parallel_tool_calls: false, ..request().options },
        ..request()
    };
    watch(agent.start(second.clone(), None).await.unwrap()).await;
    let (tenant, run) = (Tenant::default_tenant(), call.run().unwrap());
    let mut follower = agent.runs().follow(&tenant, &run, 0).await.unwrap().follower.unwrap();
    let stored = follower.available().await.unwrap();
    let legs: Vec<&Leg> = stored
        .iter()
        .filter_map(|record| match &record.event {
            Event::RunResumed { leg } => leg.as_ref(),
            _ => None,
        })
        .collect();
    let [leg] = legs[..] else { panic!("{legs:?}") };
    let expected = Asked {
        model: None,
        system: second.system,
        client_tools: vec!["ask".to_owned()],
        max_output_tokens: Some(64),
        options: second.options,
    };
    assert_eq!((leg.number, &*leg.asked), (1, &expected));
}

/// A run in the session `s` that waits for its client.
async fn waiting_in_a_session() -> (TestAgent, RunId) {
    let agent = TestAgent::builder().turns(vec![Say::Calls("", vec![("ask", "{}")]), Say::Text(&["fine"])]).begin();
    let mut first = request();
    first.client_tools = vec![client_tool("ask")];
    first.session = SessionId::parse("s");
    let started = agent.start(first, None).await.unwrap();
    let waiting = started.head.id.clone();
    watch(started).await;
    (agent, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_client_asks_something_else_is_not_blocked() {
    let (agent, abandoned) = waiting_in_a_session().await;
    let mut second = request();
    second.session = SessionId::parse("s");
    assert_eq!(outcome(&watch(agent.start(second, None).await.unwrap()).await).output_text, "fine");
    let tenant = crate::types::Tenant::default_tenant();
    assert_eq!(agent.runs().get(&tenant, &abandoned).await.unwrap().head.status, RunStatus::Cancelled);
    let (messages, _) =
        agent.sessions().messages(&tenant, &SessionId::parse("s").unwrap(), 0, 10, Order::Ascending).await.unwrap();
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    let paired = [Role::User, Role::Assistant, Role::Tool, Role::User, Role::Assistant];
    assert_eq!(roles, paired, "the abandoned call has a result too");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_leaves_the_waiting_run_as_it_was() {
    let (agent, waiting) = waiting_in_a_session().await;
    let mut unknown = request();
    unknown.session = SessionId::parse("s");
    unknown.model = Some("nope/nope".into());
    let mut poor = request();
    poor.session = SessionId::parse("s");
    poor.limits.token_budget = Some(1);
    for refused in [unknown, poor] {
        assert!(agent.start(refused, None).await.is_err());
    }
    let tenant = crate::types::Tenant::default_tenant();
    assert_eq!(agent.runs().get(&tenant, &waiting).await.unwrap().head.status, RunStatus::RequiresAction);
}
