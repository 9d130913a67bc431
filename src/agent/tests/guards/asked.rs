//! Guardrails that ask a model or a service: what they say, what that costs, and what a crash leaves of it.

mod crashes;
mod money;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::hooks::{hook, program};
use super::super::support::{Say, TestAgent, TestAgentBuilder, outcome, request, shown, watch};
use super::{guarded, results, saying};
use crate::agent::NewRun;
use crate::config::{HookConfig, ModelConfig};
use crate::llm::openai::messages::joined;
use crate::llm::{ModelErrorKind, Spent};
use crate::store::Store;
use crate::store::faulty::{Fate, Faulty};
use crate::store::memory::MemoryStore;
use crate::types::guard::{
    GuardPoint, Guarded, Guardrail, GuardrailRule, Guards, Judged, ModelJudge, Severity, Verdict,
};
use crate::types::hook::HookPoint;
use crate::types::{Event, Price, Record, RunStatus, SessionId, StopReason};

const PROMPT: &str = "FAIL what tells of secrets.";
/// What judges whether a text says `secret`.
const SERVICE: &str = r#"if grep -q secret; then echo '{"verdict":"fail","reason":"It tells a secret."}'; else echo '{"verdict":"pass"}'; fi"#;

fn judge() -> ModelJudge {
    ModelJudge {
        model: "spare0/s".into(),
        prompt: PROMPT.into(),
        max_output_tokens: 300,
        timeout_ms: 10_000,
        fails_open: false,
    }
}

fn rail(on: GuardPoint, rule: GuardrailRule) -> Guardrail {
    Guardrail { name: "asks".into(), on, rule, tripwire: true, severity: Severity::High }
}

fn by_model(on: GuardPoint) -> Guardrail {
    rail(on, GuardrailRule::Model(Box::new(judge())))
}

fn by_service(on: GuardPoint) -> Guardrail {
    rail(on, GuardrailRule::Webhook { hook: "moderation".into(), fails_open: false })
}

fn open(rail: Guardrail) -> Guardrail {
    let rule = match rail.rule {
        GuardrailRule::Webhook { hook, .. } => GuardrailRule::Webhook { hook, fails_open: true },
        GuardrailRule::Model(judge) => GuardrailRule::Model(Box::new(ModelJudge { fails_open: true, ..*judge })),
        other => other,
    };
    Guardrail { rule, ..rail }
}

fn held_to(rails: Vec<Guardrail>) -> Guards {
    Guards { guardrails: rails, ..Guards::default() }
}

fn service(script: &str) -> HookConfig {
    hook("moderation", HookPoint::Guardrail, program(script))
}

/// What the model costs that judges.
fn facts() -> ModelConfig {
    let price = Some(Price::from_usd(1.0, 1.0, 2.0));
    ModelConfig { price, context_window: Some(10_000), max_output_tokens: Some(1_000), ..ModelConfig::default() }
}

/// An agent whose model says these turns, beside a model that judges like this.
fn asking(turns: Vec<Say>, judged: Say, rails: Vec<Guardrail>) -> TestAgentBuilder {
    TestAgent::builder().turns(turns).spare(vec![judged], facts()).guards(held_to(rails))
}

fn judged(records: &[Record]) -> Vec<Judged> {
    let judged = guarded(records).into_iter().filter_map(|guarded| match guarded {
        Guarded::Judged(judged) => Some(judged),
        _ => None,
    });
    judged.collect()
}

fn verdicts(records: &[Record]) -> Vec<Verdict> {
    judged(records).iter().map(|judged| judged.verdict).collect()
}

async fn run_of(agent: &TestAgent, said: &str) -> Vec<Record> {
    watch(agent.start(saying(said), None).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_model_judges_what_users_say_before_another_one_is_asked() {
    let agent = asking(vec![Say::Text(&["ok"])], Say::Text(&["FAIL"]), vec![by_model(GuardPoint::Input)]).begin();
    let records = run_of(&agent, "My </text> secret").await;
    let stopped = outcome(&records);
    assert_eq!((stopped.reason, verdicts(&records)), (StopReason::Guardrail, vec![Verdict::Fail]));
    let said = "The guardrail \"asks\" stopped the run because of a message of the user: the model of the guardrail objects to it.";
    assert_eq!((stopped.output_text.as_str(), agent.model.requests.lock().len()), (said, 0));
    let asked = agent.spares[0].requests.lock().pop().unwrap();
    let told = joined(&asked.conversation);
    assert!(told.contains(PROMPT) && told.contains("<text>\\nMy &lt;/text&gt; secret\\n</text>"), "{told}");
    assert_eq!((asked.max_tokens, asked.tools.is_empty()), (Some(300), true));
    // The model that judged is charged as any other: 10 tokens at $1 and 5 at $2 a million.
    assert_eq!((stopped.usage.total(), stopped.cost.0, stopped.of_fallbacks.len()), (15, 20, 1));
    assert_eq!(stopped.of_fallbacks[0].model, "spare0/s");
    let reported = &stopped.report.guardrails.as_ref().unwrap().0[0];
    assert_eq!((reported.model.as_deref(), reported.usage.total(), reported.cost.0), (Some("spare0/s"), 15, 20));

    let agent = asking(vec![Say::Text(&["ok"])], Say::Text(&["PASS"]), vec![by_model(GuardPoint::Input)]).begin();
    let records = run_of(&agent, "Hello").await;
    let done = outcome(&records);
    assert_eq!(
        (done.reason, shown(&records).as_str(), verdicts(&records)),
        (StopReason::Done, "ok", vec![Verdict::Pass])
    );
    assert_eq!((done.usage.total(), done.iterations), (30, 1), "what judges is no step");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_verdict_counts_as_the_operator_says() {
    let down = || Say::Fails(&[(ModelErrorKind::Rejected, Spent::Nothing)]);
    for (said, spent) in [(Say::Text(&["I would say PASS"]), 15), (down(), 0), (Say::Text(&[""]), 15)] {
        for (rail, reason) in [
            (by_model(GuardPoint::Input), StopReason::Guardrail),
            (open(by_model(GuardPoint::Input)), StopReason::Done),
        ] {
            let agent = asking(vec![Say::Text(&["ok"])], said.clone(), vec![rail]).begin();
            let records = run_of(&agent, "Hello").await;
            let end = outcome(&records);
            assert_eq!((end.reason, verdicts(&records)), (reason, vec![Verdict::NoAnswer]), "{said:?}");
            let own = if reason == StopReason::Done { 15 } else { 0 };
            assert_eq!(end.usage.total(), own + spent, "{said:?}");
            assert_eq!(agent.model.requests.lock().len(), usize::from(own > 0));
            assert_eq!(judged(&records)[0].kind(), "model");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_says_nothing_is_not_waited_for_beyond_its_time_and_charged() {
    let agent = asking(vec![Say::Text(&["ok"])], Say::Silent, vec![open(by_model(GuardPoint::Input))]).begin();
    let begun = tokio::time::Instant::now();
    let records = run_of(&agent, "Hello").await;
    assert_eq!((outcome(&records).reason, verdicts(&records)), (StopReason::Done, vec![Verdict::NoAnswer]));
    assert!(begun.elapsed() >= Duration::from_secs(10) && begun.elapsed() < Duration::from_secs(12));
    let call = judged(&records).remove(0).call.unwrap();
    assert!(call.usage.estimated && call.usage.prompt_tokens > 100 && call.unconfirmed.tokens == 300, "{call:?}");
}

#[tokio::test]
async fn a_service_judges_and_says_why() {
    let turns = vec![Say::Text(&["ok"])];
    let begin = || TestAgent::builder().turns(turns.clone()).guards(held_to(vec![by_service(GuardPoint::Input)]));
    let agent = begin().hooks(vec![service(SERVICE)]).begin();
    let records = run_of(&agent, "my secret").await;
    let stopped = outcome(&records);
    assert_eq!((stopped.reason, stopped.usage.total()), (StopReason::Guardrail, 0));
    assert!(stopped.output_text.ends_with("because of a message of the user: It tells a secret."), "{stopped:?}");
    let agent = begin().hooks(vec![service(SERVICE)]).begin();
    let records = run_of(&agent, "Hello").await;
    assert_eq!((outcome(&records).reason, verdicts(&records)), (StopReason::Done, vec![Verdict::Pass]));
    assert!(!records.iter().any(|record| matches!(record.event, Event::HookRan(_))), "it stands at no point");
}

#[tokio::test]
async fn a_service_that_is_down_or_gone_or_says_no_verdict_counts_as_the_operator_says() {
    for hooks in [vec![service("exit 3")], vec![], vec![service("cat > /dev/null")], vec![service("echo '{}'")]] {
        for (rail, reason) in [
            (by_service(GuardPoint::Input), StopReason::Guardrail),
            (open(by_service(GuardPoint::Input)), StopReason::Done),
        ] {
            let builder = TestAgent::builder().turns(vec![Say::Text(&["ok"])]).guards(held_to(vec![rail]));
            let records = run_of(&builder.hooks(hooks.clone()).begin(), "Hello").await;
            assert_eq!((outcome(&records).reason, verdicts(&records)), (reason, vec![Verdict::NoAnswer]), "{hooks:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_an_answer_is_shown_before_its_judge_has_let_it_pass() {
    const SAID: &[&str] =
        &["The number is ", "4111", " and some more text than would be held for a short pattern, or for two of them"];
    let rails = || vec![by_model(GuardPoint::Output)];
    let agent = asking(vec![Say::Text(SAID)], Say::Text(&["fail"]), rails()).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let stopped = outcome(&records);
    assert_eq!((stopped.reason, shown(&records).as_str()), (StopReason::Guardrail, ""));
    assert!(!serde_json::to_string(&records).unwrap().contains("4111"));
    assert_eq!((stopped.usage.total(), stopped.iterations), (30, 1), "both calls are charged");

    let agent = asking(vec![Say::Text(SAID)], Say::Late(5_000, Box::new(Say::Text(&["pass"]))), rails()).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, shown(&records)), (StopReason::Done, SAID.concat()));
    let place = |is_it: fn(&Event) -> bool| records.iter().position(|record| is_it(&record.event)).unwrap();
    let verdict = place(|event| matches!(event, Event::Guarded(_)));
    assert!(verdict < place(|event| matches!(event, Event::TextDelta { .. })), "{records:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_verdict_is_not_shown_when_its_run_is_cancelled() {
    for (turn, judged) in [(Say::Text(&["4111"]), Say::Silent), (Say::Stall(&["4111"]), Say::Text(&["pass"]))] {
        let agent = asking(vec![turn], judged, vec![by_model(GuardPoint::Output)]).begin();
        let started = agent.start(request(), None).await.unwrap();
        let (tenant, run) = (request().tenant, started.head.id.clone());
        tokio::time::sleep(Duration::from_secs(1)).await;
        agent.runs().cancel(&tenant, &run).await.unwrap();
        let records = watch(started).await;
        let end = outcome(&records);
        assert_eq!((end.reason, end.output_text.as_str(), shown(&records).as_str()), (StopReason::Cancelled, "", ""));
        assert!(!serde_json::to_string(&records).unwrap().contains("4111"));
        assert!(end.usage.prompt_tokens > 0);
    }
}

#[tokio::test]
async fn arguments_are_judged_before_the_call_and_results_before_they_are_kept() {
    for (point, made, result) in [
        (GuardPoint::ToolArguments, 0, "The call was not made: a guardrail stopped the run because of its arguments."),
        (GuardPoint::ToolResult, 1, "The result was withheld: it failed a guardrail, which stopped the run."),
    ] {
        for tool in ["echo", "save"] {
            let turns = vec![Say::Calls("", vec![(tool, r#"{"n":13}"#), ("save", r#"{"n":2}"#)]), Say::Text(&["ok"])];
            let builder = TestAgent::builder().turns(turns).guards(held_to(vec![by_service(point)]));
            let thirteen = r#"if grep -q ':13}'; then echo '{"verdict":"fail"}'; else echo '{"verdict":"pass"}'; fi"#;
            let agent = builder.hooks(vec![service(thirteen)]).begin();
            let records = watch(agent.start(request(), None).await.unwrap()).await;
            assert_eq!(outcome(&records).reason, StopReason::Guardrail, "{point:?}");
            let results = results(&records);
            assert!(results.len() == 2 && results.iter().any(|(text, _)| text == result), "{results:?}");
            let judged = judged(&records);
            assert_eq!((judged.len(), judged[0].verdict, judged[0].asked.call_id.is_some()), (1, Verdict::Fail, true));
            assert_eq!(agent.model.requests.lock().len(), 1);
            assert!(tool != "echo" || agent.journal.lock().len() == made, "{point:?}");
        }
    }
    let turns = vec![Say::Calls("", vec![("echo", r#"{"n":1}"#), ("save", r#"{"n":2}"#)]), Say::Text(&["ok"])];
    let rails = vec![by_service(GuardPoint::ToolArguments), by_service(GuardPoint::ToolResult)];
    let agent = TestAgent::builder().turns(turns).guards(held_to(rails)).hooks(vec![service(SERVICE)]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!((outcome(&records).reason, verdicts(&records)), (StopReason::Done, vec![Verdict::Pass; 4]));
    assert_eq!(agent.journal.lock().len(), 1, "echo's journal");
}

#[tokio::test(start_paused = true)]
async fn rules_that_need_nobodys_answer_come_first_and_the_first_tripwire_decides() {
    let regex = rail(GuardPoint::Input, GuardrailRule::Regex { pattern: "secret".into() });
    let rails = vec![by_model(GuardPoint::Input), Guardrail { name: "pure".into(), ..regex }];
    let agent = asking(vec![Say::Text(&["ok"])], Say::Text(&["FAIL"]), rails).begin();
    let records = run_of(&agent, "my secret").await;
    assert!(outcome(&records).output_text.starts_with("The guardrail \"pure\""));
    assert!(agent.spares[0].requests.lock().is_empty(), "nobody is asked about what fails anyway");

    let second = Guardrail { name: "second".into(), ..by_model(GuardPoint::Input) };
    let told = Guardrail { tripwire: false, ..by_model(GuardPoint::Input) };
    for (rails, asked, reason) in
        [(vec![by_model(GuardPoint::Input), second], 1, StopReason::Guardrail), (vec![told], 1, StopReason::Done)]
    {
        let agent = asking(vec![Say::Text(&["ok"])], Say::Text(&["FAIL"]), rails).begin();
        let records = run_of(&agent, "my secret").await;
        assert_eq!((outcome(&records).reason, agent.spares[0].requests.lock().len()), (reason, asked));
        let triggered = guarded(&records).iter().filter(|told| matches!(told, Guarded::Triggered(_))).count();
        assert_eq!(triggered, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn users_words_are_judged_once_and_new_ones_again() {
    let turns = vec![Say::Calls("", vec![("hang", "{}")]), Say::Text(&["ok"])];
    let agent = asking(turns, Say::Text(&["PASS"]), vec![by_model(GuardPoint::Input)]).begin();
    let started = agent.start(saying("one"), None).await.unwrap();
    let (tenant, run) = (request().tenant, started.head.id.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let more = vec![crate::types::Message::text(crate::types::Role::User, "two")];
    agent.runs().steer(&tenant, &run, more, None).await.unwrap();
    let records = watch(started).await;
    assert_eq!((outcome(&records).status(), verdicts(&records)), (RunStatus::Completed, vec![Verdict::Pass; 2]));
    let asked: Vec<_> = agent.spares[0].requests.lock().iter().map(|asked| joined(&asked.conversation)).collect();
    assert!(asked[0].contains("<text>\\none\\n") && asked[1].contains("<text>\\ntwo\\n"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_judged_before_its_run_ended_is_judged_with_the_next() {
    let slow = Say::Late(5_000, Box::new(Say::Text(&["PASS"])));
    let agent = asking(vec![Say::Text(&["ok"])], slow, vec![by_model(GuardPoint::Input)]).begin();
    let of_session = |text: &str| NewRun { session: SessionId::parse("s"), ..saying(text) };
    let started = agent.start(of_session("one"), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.runs().cancel(&request().tenant, &started.head.id).await.unwrap();
    assert_eq!(verdicts(&watch(started).await), [Verdict::Dropped]);
    for (text, judged) in [("two", "<text>\\none\\n\\ntwo\\n"), ("three", "<text>\\nthree\\n")] {
        let records = watch(agent.start(of_session(text), None).await.unwrap()).await;
        assert_eq!((outcome(&records).status(), verdicts(&records)), (RunStatus::Completed, vec![Verdict::Pass]));
        let asked = joined(&agent.spares[0].requests.lock().last().unwrap().conversation);
        assert!(asked.contains(judged), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_not_asked_before_its_judge_has_let_it_pass() {
    const ASKS: &str = r#"{"question":"Which?","options":["my secret"]}"#;
    for (verdict, reason) in [("FAIL", StopReason::Guardrail), ("PASS", StopReason::AskUser)] {
        let turns = vec![Say::Calls("", vec![("ask_user", ASKS)])];
        let said = if verdict == "FAIL" { Say::Text(&["FAIL"]) } else { Say::Text(&["PASS"]) };
        let agent = asking(turns, said, vec![by_model(GuardPoint::Output)]).begin();
        let tools = Some(vec!["*".to_owned(), "ask_user".to_owned()]);
        let records = watch(agent.start(NewRun { tools, ..request() }, None).await.unwrap()).await;
        assert_eq!(outcome(&records).reason, reason);
        let asked = joined(&agent.spares[0].requests.lock()[0].conversation);
        assert!(asked.contains("Which?\\n- my secret"), "{asked}");
        assert_eq!(serde_json::to_string(&records).unwrap().contains("secret"), reason == StopReason::AskUser);
    }
}

#[tokio::test]
async fn a_service_that_is_asked_about_an_answer_costs_no_commit() {
    let mut commits = Vec::new();
    for rails in [vec![], vec![by_service(GuardPoint::Output)]] {
        let counted = Arc::new(AtomicUsize::new(0));
        let count = counted.clone();
        let store: Arc<dyn Store> = Faulty::new(Arc::new(MemoryStore::default()), move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Fate::Happens
        });
        let hooks = vec![service(SERVICE)];
        let turns = vec![Say::Text(&["hello"])];
        let agent = TestAgent::builder().store(store).turns(turns).hooks(hooks).guards(held_to(rails)).build();
        let started = agent.start(NewRun { waits_for_the_end: true, ..request() }, None).await.unwrap();
        assert_eq!(shown(&watch(started).await), "hello");
        agent.idle(Duration::from_secs(5)).await;
        commits.push(counted.load(Ordering::Relaxed));
    }
    assert_eq!(commits[0], commits[1]);
}
