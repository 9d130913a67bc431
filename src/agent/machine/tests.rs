mod attempts;
mod delegates;
mod fitting;
mod flushing;
mod handoffs;
mod histories;
mod hooks;
mod limits;
mod own;
mod pending;
mod repeats;
mod stops;
mod unknown;
mod window;

use super::*;
use crate::agent::ledger::log::encode;
use crate::llm::openai::messages::json;
use crate::types::clock::now_ms;
use crate::types::conversation::{Part, PartKind, Thinking};
use crate::types::event::{Asked, Decision, DiscardReason, Leg};
use crate::types::handoff::HandoffState;
use crate::types::offer::{ToolChoice, ToolDefinition};
use crate::types::price::PriceOrigin;
use crate::types::rules::{LoopGuardRules, LoopRules};
use crate::types::run::{OnDisconnect, OnLimit, OnUnknownOutcome, RunOptions};
use crate::types::{
    BudgetStatus, CallId, Effect, ErrorKind, Event, Limits, Micros, Outcome, Price, Role, RunId, Tenant, ToolCall,
    ToolOutcome, TurnEnd,
};

/// A run without limits but the ordinary ones.
pub(in crate::agent) fn spec() -> RunSpec {
    RunSpec {
        id: RunId::mint(),
        tenant: Tenant::default_tenant(),
        key_name: None,
        at_once: crate::types::share::RunsAtOnce::default(),
        session: None,
        concurrent: false,
        parent: None,
        tree: None,
        queued_at: None,
        created_ms: 1,
        model: "m".into(),
        agent: "default".into(),
        agent_version: None,
        upstream: "scripted".into(),
        upstream_model: "m".into(),
        fallbacks: Vec::new(),
        system: Vec::new(),
        history_len: 0,
        splices: 0,
        view: None,
        compacts: false,
        input_since: 0,
        input: vec![Message::text(Role::User, "question")],
        context_tokens: 10,
        tools: vec!["echo".into()],
        offer: crate::types::offer::OfferHash::default(),
        search: None,
        own_tools: Vec::new(),
        client_tools: Vec::new(),
        servers: None,
        trace: None,
        request_id: None,
        claim: None,
        metadata: std::collections::BTreeMap::new(),
        context_window: 128_000,
        max_output_tokens: 8_192,
        prompt: None,
        hedge_after_ms: None,
        guards: Arc::default(),
        guarded: Vec::new(),
        bounds_output: false,
        hides_content: false,
        streams: false,
        rules: Arc::new(LoopRules { loop_guard: LoopGuardRules::off(), ..LoopRules::default() }),
        limits: limits(),
        policy: None,
        price: Price::default(),
        price_origin: PriceOrigin::Known,
        hooks: Vec::new(),
        warnings: Vec::new(),
        on_limit: OnLimit::Stop,
        handoff: HandoffState::default(),
        options: options(),
    }
}

fn limits() -> Limits {
    Limits {
        max_iterations: 20,
        max_tool_calls: None,
        timeout_ms: 60_000,
        tool_timeout_ms: 1_000,
        token_budget: None,
        cost_budget: None,
    }
}

/// What most callers ask for.
pub(in crate::agent) fn options() -> RunOptions {
    RunOptions {
        tool_choice: ToolChoice::Auto,
        sampling: Arc::default(),
        parallel_tool_calls: true,
        on_disconnect: OnDisconnect::Continue,
        on_unknown_outcome: OnUnknownOutcome::Fail,
        reconnect_grace_ms: 15_000,
        hide_intermediate_text: false,
        stream_tool_arguments: false,
        max_discards: 2,
        response: None,
    }
}

/// A run and what happens in it, told in one word each.
struct Story {
    run: Run,
    seq: u64,
    records: Vec<Arc<Record>>,
}

impl Story {
    fn begin(spec: RunSpec) -> Self {
        let mut story = Self { run: Run::new(Arc::new(spec)), seq: 0, records: Vec::new() };
        story.happens(Event::RunStarted);
        story
    }

    fn happens(&mut self, event: Event) {
        let record = encode(&mut self.seq, now_ms(), event).0;
        self.run.apply(&record);
        self.records.push(record);
    }

    fn calls_model(&mut self) {
        let Step::CallModel { step, reserve, closing } = self.run.next_step() else {
            panic!("expected a model call, not {:?}", self.run.next_step())
        };
        let model = self.run.unnamed_model().cloned();
        self.happens(Event::StepStarted { step, reserved: reserve, model, closing });
    }

    fn says(&mut self, text: &str, calls: Vec<ToolCall>, usage: Usage) {
        self.calls_model();
        let end = if calls.is_empty() { TurnEnd::Stop } else { TurnEnd::ToolCalls };
        let text = (!text.is_empty()).then(|| Part::text(text));
        let calls = calls.into_iter().map(|call| PartKind::ToolCall(call).into());
        let turn = Turn { parts: text.into_iter().chain(calls).collect(), usage, end, ..Turn::default() };
        self.happens(Event::TurnFinished { step: self.run.step(), turn: Box::new(turn) });
    }

    fn answers(&mut self, call: &ToolCall, effect: Effect) {
        let step = self.run.step();
        self.happens(Event::ToolStarted { step, call: call.clone(), effect });
        self.finishes(call, "result");
    }

    fn finishes(&mut self, call: &ToolCall, content: &str) {
        let outcome = ToolOutcome { parts: vec![Part::text(content)], ..ToolOutcome::default() };
        let (step, name) = (self.run.step(), call.name.clone());
        self.happens(Event::ToolFinished { step, call_id: call.id.clone(), name, outcome });
    }

    fn completes_step(&mut self) {
        assert_eq!(self.run.next_step(), Step::CompleteStep);
        let (step, usage, turn_end) = (self.run.step(), Usage::default(), TurnEnd::Stop);
        self.happens(Event::StepCompleted { step, usage, turn_end, latency_ms: 0, budget: BudgetStatus::default() });
    }

    fn ends(&mut self) -> Outcome {
        let Step::Finish(reason) = self.run.next_step() else {
            panic!("expected the end, not {:?}", self.run.next_step())
        };
        let outcome = self.run.outcome(reason, 100);
        self.happens(Event::RunFinished(Box::new(outcome.clone())));
        outcome
    }
}

fn call(number: u16, name: &str) -> ToolCall {
    ToolCall { id: CallId::foreign(&format!("call_{number}")), name: name.into(), arguments: "{}".into() }
}

fn usage(prompt_tokens: u64, completion_tokens: u64) -> Usage {
    Usage { prompt_tokens, completion_tokens, ..Usage::default() }
}

fn roles(messages: &[Message]) -> Vec<Role> {
    messages.iter().map(|message| message.role).collect()
}

fn client_tool(name: &str) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition { name: name.into(), ..ToolDefinition::default() })
}

/// What the second request of a run brings.
fn leg(answers: Vec<Message>, decisions: Vec<(CallId, Decision)>) -> Leg {
    let asked = Asked {
        model: None,
        system: Vec::new(),
        client_tools: Vec::new(),
        max_output_tokens: None,
        options: options(),
    };
    Leg {
        number: 1,
        claim: None,
        asked: Box::new(asked),
        answers,
        decisions,
        warnings: Vec::new(),
        guarded: Vec::new(),
    }
}

#[test]
fn a_paused_turn_goes_on_with_what_was_said_so_far() {
    for discarded in [None, Some(DiscardReason::StreamBroke), Some(DiscardReason::Interrupted)] {
        let mut story = Story::begin(spec());
        for (text, end) in [("one ", TurnEnd::Paused), ("two ", TurnEnd::Paused), ("three", TurnEnd::Stop)] {
            if let Some(reason) = discarded {
                story.calls_model();
                let (step, usage) = (story.run.step(), Usage::default());
                story.happens(Event::StepDiscarded { step, reason, usage, unconfirmed: Used::default() });
            }
            story.calls_model();
            let turn = Turn { parts: vec![Part::text(text)], usage: usage(3, 2), end, ..Turn::default() };
            story.happens(Event::TurnFinished { step: story.run.step(), turn: Box::new(turn) });
            story.completes_step();
        }
        let outcome = story.ends();
        let said = (outcome.reason, outcome.output_text.as_str());
        assert_eq!(said, (StopReason::Done, "one two three"), "{discarded:?}");
        assert_eq!((outcome.usage.total(), outcome.iterations), (15, 3));
        assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant, Role::Assistant, Role::Assistant]);
    }
}

#[test]
fn a_turn_that_pauses_without_end_is_stopped_by_the_limit_of_model_calls() {
    let mut story = Story::begin(spec());
    for _ in 0..20 {
        story.calls_model();
        let turn = Turn { parts: vec![Part::text("on")], end: TurnEnd::Paused, ..Turn::default() };
        story.happens(Event::TurnFinished { step: story.run.step(), turn: Box::new(turn) });
        story.completes_step();
    }
    assert_eq!(story.ends().reason, StopReason::MaxIterations);
}

#[test]
fn an_answer_without_calls_ends_the_run() {
    let mut story = Story::begin(spec());
    story.says("hello", vec![], usage(3, 2));
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "hello"));
    assert_eq!((outcome.usage.total(), outcome.iterations), (5, 1));
    assert_eq!(story.run.next_step(), Step::Done);
    assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant]);
}

#[test]
fn results_enter_the_history_in_call_order() {
    let mut story = Story::begin(spec());
    let (first, second) = (call(1, "echo"), call(2, "echo"));
    story.says("", vec![first.clone(), second.clone()], usage(1, 1));
    assert_eq!(story.run.next_step(), Step::RunTools(vec![first.clone(), second.clone()]));
    for call in [&first, &second] {
        let (step, effect) = (story.run.step(), Effect::Read);
        story.happens(Event::ToolStarted { step, call: call.clone(), effect });
    }
    story.finishes(&second, "two");
    story.finishes(&first, "one");
    story.completes_step();
    let messages = story.run.messages();
    assert!(json(&messages[2]).contains("one") && json(&messages[3]).contains("two"));
    assert!(matches!(story.run.next_step(), Step::CallModel { step: 2, .. }));
    let order: Vec<_> = story.run.last_step().unwrap().tool_calls.iter().map(|report| &report.call_id).collect();
    assert_eq!(order, [&first.id, &second.id], "the report is in call order too");
}

#[test]
fn client_calls_wait_for_the_client_and_the_deadline_pauses() {
    let mut spec = spec();
    spec.client_tools = vec![client_tool("ask_user")];
    let mut story = Story::begin(spec);
    let (ours, theirs) = (call(1, "echo"), call(2, "ask_user"));
    story.says("", vec![theirs.clone(), ours.clone()], usage(1, 1));
    assert_eq!(story.run.next_step(), Step::RunTools(vec![ours.clone()]), "ours run first");
    story.answers(&ours, Effect::Read);
    story.completes_step();
    let outcome = story.ends();
    assert_eq!((outcome.reason, &outcome.required_calls[0].call), (StopReason::ClientTools, &theirs));
    assert_eq!((story.run.status(), story.run.next_step()), (RunStatus::RequiresAction, Step::Done));

    let before = story.run.left_ms();
    let answer = Message::tool(&theirs.id, "yes");
    let resumed =
        Record { seq: 99, at_ms: u64::MAX / 2, event: Event::RunResumed { leg: Some(leg(vec![answer], Vec::new())) } };
    story.run.apply(&resumed);
    assert_eq!(story.run.left_ms(), before, "waiting does not count");
    assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
    assert!(matches!(story.run.next_step(), Step::CallModel { .. }));
}

#[test]
fn every_call_gets_a_result_even_when_the_run_is_stopped() {
    let mut spec = spec();
    spec.client_tools = vec![client_tool("ask_user")];
    let mut story = Story::begin(spec);
    let (ours, theirs) = (call(1, "echo"), call(2, "ask_user"));
    story.says("", vec![ours.clone(), theirs], usage(1, 1));
    story.happens(Event::stop(StopReason::Cancelled));
    assert_eq!(story.run.next_step(), Step::SkipTools(vec![ours.clone()]));
    story.answers(&ours, Effect::Read);
    story.completes_step();
    let outcome = story.ends();
    assert_eq!(outcome.status(), RunStatus::Cancelled);
    assert_eq!(roles(story.run.messages()), [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
}

#[test]
fn a_model_that_answers_nothing_is_asked_once_more() {
    let mut story = Story::begin(spec());
    for _ in 0..2 {
        story.says("", vec![], usage(1, 0));
        assert_eq!(story.run.next_step(), Step::DiscardStep(DiscardReason::EmptyResponse));
        let step = story.run.step();
        let (reason, usage) = (DiscardReason::EmptyResponse, Usage::default());
        story.happens(Event::StepDiscarded { step, reason, usage, unconfirmed: Used::default() });
    }
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.usage.total()), (StopReason::EmptyResponse, 2), "both calls are charged");
    assert_eq!(outcome.error.unwrap().kind, ErrorKind::EmptyResponse);
}

#[test]
fn a_run_that_is_interrupted_again_and_again_ends() {
    // A replica that left the run by order did not die of it, and those that die after it did.
    for handed_over in 0..3 {
        let mut story = Story::begin(spec());
        let mut resumed = 0;
        while let Step::CallModel { .. } = story.run.next_step() {
            story.calls_model();
            if resumed < handed_over {
                story.happens(Event::HandedOff);
            }
            story.happens(Event::RunResumed { leg: None });
            assert_eq!(story.run.next_step(), Step::DiscardStep(DiscardReason::Interrupted));
            let (step, reason, usage) = (story.run.step(), DiscardReason::Interrupted, usage(1, 1));
            story.happens(Event::StepDiscarded { step, reason, usage, unconfirmed: Used::default() });
            resumed += 1;
            assert!(resumed < 10, "it is gone on with for ever");
        }
        assert_eq!((story.ends().reason, resumed), (StopReason::CrashLoop, 4 + handed_over));
    }
}

#[test]
fn thinking_that_no_vendor_knows_again_stays_in_the_log() {
    let mut story = Story::begin(spec());
    story.calls_model();
    let thinking = PartKind::Thinking(Thinking { text: "hm".repeat(50_000), seal: None });
    let turn = Turn { parts: vec![thinking.into(), Part::text("yes")], ..Turn::default() };
    story.happens(Event::TurnFinished { step: 1, turn: Box::new(turn) });
    assert_eq!(story.run.messages()[1].bytes(), 3);
}
