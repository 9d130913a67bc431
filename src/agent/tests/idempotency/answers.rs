//! Requests that answer a run that waits for its client, and their duplicates.

use super::*;

fn resumes_a_run(tx: &Tx) -> bool {
    let resumed =
        |entry: &bytes::Bytes| entry.windows(11).any(|part| part == b"RunResumed\"" || part == b"run_resumed");
    tx.writes.iter().any(|write| matches!(write, Write::Append { entries, .. } if entries.iter().any(resumed)))
}

fn weather() -> Arc<ToolDefinition> {
    client_tool("weather")
}

/// A run that waits for its client, and the request that answers it with its whole transcript.
pub(in crate::agent::tests) async fn handed_over(
    agent: &TestAgent,
    session: Option<SessionId>,
) -> (RunId, u64, NewRun) {
    let asked = NewRun { client_tools: vec![weather()], session: session.clone(), ..request() };
    let (run, records, _) = watch(agent.start(asked, Some(&by_key())).await.unwrap()).await;
    let outcome = outcome(&records);
    assert_eq!(outcome.reason, StopReason::ClientTools);
    let id: CallId = outcome.required_calls[0].call.id.clone();
    let result = Message::tool(&id, "rain");
    let answer = NewRun {
        messages: vec![result],
        answers_from: 0,
        answered: vec![id],
        client_tools: vec![weather()],
        session,
        ..request()
    };
    (run, records.len() as u64, answer)
}

pub(in crate::agent::tests) fn handing_over(store: &Arc<dyn Store>) -> TestAgent {
    let turns = vec![Say::Calls("", vec![("weather", "{}")]), Say::Text(&["rain it is"])];
    TestAgent::builder().store(store.clone()).turns(turns).build()
}

fn answering() -> RequestKey {
    RequestKey { name: "answer".into(), fingerprint: "answer".into(), kind: RequestKeyKind::Key }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_is_resumed_once() {
    for session in [None, SessionId::parse("s")] {
        let store = memory();
        let (one, two) = (handing_over(&store), handing_over(&store));
        let (run, waited_at, answer) = handed_over(&one, session).await;
        let mut tasks = JoinSet::new();
        for number in 0..10 {
            let (agent, answer) = (if number % 2 == 0 { one.clone() } else { two.clone() }, answer.clone());
            tasks.spawn(async move { watch(agent.start(answer, Some(&answering())).await.unwrap()).await });
        }
        let all = tasks.join_all().await;
        for (other, records, _) in &all {
            assert_eq!((other, records), (&run, &all[0].1));
            assert_eq!(records[0].seq, waited_at + 1, "only what came of the answer");
            assert!(matches!(records[0].event, Event::RunResumed { .. }));
            assert_eq!(outcome(records).output_text, "rain it is");
        }
        assert_eq!(runs_named(&store).await, 1);
        let again = one.start(answer, Some(&answering())).await.unwrap();
        assert_eq!(watch(again).await, (run, all[0].1.clone(), true));
        let asked = NewRun { client_tools: vec![weather()], ..request() };
        let (_, first, replayed) = watch(one.start(asked, Some(&by_key())).await.unwrap()).await;
        assert_eq!((first.len() as u64, replayed), (waited_at, true), "the question's answer is what it was");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_still_names_its_run_when_the_run_has_waited_for_its_client() {
    let agent = handing_over(&memory());
    handed_over(&agent, None).await;
    for after in [Duration::from_secs(24 * 3600), RETENTION.wait] {
        tokio::time::sleep(after).await;
        let again = agent.start(NewRun { client_tools: vec![weather()], ..request() }, Some(&by_key())).await;
        assert!(matches!(again, Err(StartError::Claim(ClaimError::Gone))), "no second run begins: {again:?}");
    }
}

/// Each wait is shorter than a run may wait, and all together are longer than a claim is made for.
#[tokio::test(start_paused = true)]
async fn keys_still_name_their_run_when_it_has_waited_for_its_client_again_and_again() {
    const DAYS: Duration = Duration::from_secs(6 * 24 * 3600);
    let retention = Retention { wait: DAYS + Duration::from_secs(3600), ..RETENTION };
    let asks = Say::Calls("", vec![("weather", "{}")]);
    let turns = vec![asks.clone(), asks.clone(), asks, Say::Text(&["rain it is"])];
    let agent = TestAgent::builder().turns(turns).retention(retention).build();
    let (run, _, first) = handed_over(&agent, None).await;
    let mut answer = first.clone();
    for number in 0..3 {
        tokio::time::sleep(DAYS).await;
        let key = RequestKey { name: format!("answer {number}"), ..answering() };
        let (continued, records, _) = watch(agent.start(answer, Some(&key)).await.unwrap()).await;
        assert_eq!(continued, run);
        let calls = outcome(&records).required_calls;
        let answered: Vec<CallId> = calls.into_iter().map(|required| required.call.id).collect();
        let messages = answered.iter().map(|id| Message::tool(id, "rain")).collect();
        answer = NewRun { messages, answered, ..first.clone() };
        agent.idle(Duration::from_secs(5)).await;
    }
    let asked = NewRun { client_tools: vec![weather()], ..request() };
    let (again, _, replayed) = watch(agent.start(asked, Some(&by_key())).await.unwrap()).await;
    assert_eq!((again, replayed), (run.clone(), true), "no second run begins");
    let key = RequestKey { name: "answer 0".into(), ..answering() };
    let (again, _, replayed) = watch(agent.start(first, Some(&key)).await.unwrap()).await;
    assert_eq!((again, replayed), (run, true), "nor does its first answer begin one");
}

#[tokio::test(start_paused = true)]
async fn the_next_duplicate_resumes_the_run_that_a_dead_one_did_not() {
    for fate in [Fate::Hangs, Fate::FailsAfterwards] {
        let faulty = Faulty::memory();
        let store: Arc<dyn Store> = faulty.clone();
        let dead = handing_over(&store);
        let (run, waited_at, answer) = handed_over(&dead, None).await;
        faulty.next(resumes_a_run, fate);
        let key = answering();
        let cut_off = dead.start(answer.clone(), Some(&key));
        drop(tokio::time::timeout(Duration::from_millis(1), cut_off).await);
        assert!(faulty.has_struck(), "{fate:?}");
        let agent = handing_over(&store);
        agent.begin();
        let (other, records, _) = watch(agent.start(answer, Some(&answering())).await.unwrap()).await;
        assert_eq!((other, records[0].seq), (run, waited_at + 1), "{fate:?}");
        assert_eq!(outcome(&records).output_text, "rain it is", "{fate:?}");
        assert_eq!(runs_named(&store).await, 1, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_does_not_end_a_run_that_waits_already() {
    let store = memory();
    let agent = handing_over(&store);
    let session = SessionId::parse("s").unwrap();
    let (run, _, _) = handed_over(&agent, Some(session.clone())).await;
    let late = NewRun { id: run.clone(), session: Some(session), ..request() };
    let refused = agent.start(late, None).await;
    assert!(matches!(refused, Err(StartError::Claim(ClaimError::Busy))), "{refused:?}");
    assert_eq!(agent.runs().get(&tenant(), &run).await.unwrap().head.status, RunStatus::RequiresAction);
}
