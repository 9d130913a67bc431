//! Models that repeat their tool calls, and what they are asked beside the conversation.

use super::*;
use crate::types::context::ContextRules;
use crate::types::rules::{LoopFinding, LoopRule, Reflection};

fn guarded() -> RunSpec {
    RunSpec { rules: Arc::default(), ..spec() }
}

impl Story {
    /// A turn with these calls, each with its arguments, its effect and its answer. What is to be said of it is said.
    fn turn(&mut self, calls: &[(&str, &str, Effect, &str)]) -> Option<LoopFinding> {
        let minted = self.run.calls_minted();
        let named = |(number, (name, arguments, ..)): (u16, &(&str, &str, Effect, &str))| ToolCall {
            arguments: (*arguments).into(),
            ..call(number, name)
        };
        let made: Vec<_> = (minted..).zip(calls).map(named).collect();
        self.says("", made.clone(), usage(1, 1));
        for (call, (_, _, effect, answer)) in made.iter().zip(calls) {
            self.happens(Event::ToolStarted { step: self.run.step(), call: call.clone(), effect: *effect });
            match answer.strip_prefix('!') {
                Some(failure) => self.fails(call, failure),
                None => self.finishes(call, answer),
            }
        }
        self.completes_step();
        let Step::ReportLoop(finding) = self.run.next_step() else { return None };
        self.happens(Event::LoopGuardTriggered(Box::new(finding.clone())));
        Some(finding)
    }

    fn fails(&mut self, call: &ToolCall, why: &str) {
        let (step, name, outcome) = (self.run.step(), call.name.clone(), ToolOutcome::failed(why));
        self.happens(Event::ToolFinished { step, call_id: call.id.clone(), name, outcome });
    }
}

/// One call that reads.
fn reads<'a>(name: &'a str, arguments: &'a str, answer: &'a str) -> [(&'a str, &'a str, Effect, &'a str); 1] {
    [(name, arguments, Effect::Read, answer)]
}

#[test]
fn a_model_that_repeats_itself_is_warned_and_then_stopped() {
    let mut story = Story::begin(guarded());
    let mut found = Vec::new();
    for turn in 1..=5 {
        // However the same arguments are written.
        let arguments = if turn % 2 == 0 { r#"{"a":1,"b":2}"# } else { r#"{ "b": 2, "a": 1 }"# };
        let finding = story.turn(&reads("look", arguments, "nothing"));
        found.push(finding.map(|finding| (finding.rule, finding.repeats, finding.tools.join(","), finding.stops)));
        let notes = story.run.prompts();
        assert_eq!(notes.len(), usize::from(turn >= 3), "{turn}: {notes:?}");
        assert!(turn < 3 || notes[0].contains("`look`") && notes[0].contains(&format!("{turn} times")), "{notes:?}");
    }
    let told = |repeats, stops| Some((LoopRule::SameCalls, repeats, "look".to_owned(), stops));
    assert_eq!(found, [None, None, told(3, false), None, told(5, true)]);
    let results = story.run.messages().iter().filter(|message| message.role == Role::Tool).count();
    assert_eq!((results, story.run.messages().len()), (5, 11), "the warning is no part of the history");
    let outcome = story.ends();
    assert_eq!((outcome.reason, outcome.status()), (StopReason::LoopGuard, RunStatus::Incomplete));
    assert!(outcome.message().unwrap().contains("repeated tool calls"));
}

#[test]
fn what_ends_a_loop_is_as_the_caller_wants_it() {
    for on_limit in [OnLimit::Error, OnLimit::Synthesize] {
        let mut story = Story::begin(RunSpec { on_limit, ..guarded() });
        for _ in 0..5 {
            story.turn(&reads("look", "{}", "nothing"));
        }
        if on_limit == OnLimit::Error {
            assert_eq!(story.ends().error.unwrap().kind, ErrorKind::LoopGuard);
            continue;
        }
        let closing = Some(StopReason::LoopGuard);
        assert!(matches!(story.run.next_step(), Step::CallModel { closing: found, .. } if found == closing));
    }
}

#[test]
fn what_brings_something_new_is_no_loop() {
    // Another answer each time, as where something is waited for that goes on.
    let mut story = Story::begin(guarded());
    for turn in 0..10 {
        assert_eq!(story.turn(&reads("status", "{}", &format!("{turn}0 %"))), None);
    }
    // Something new in between, and the same call again from time to time.
    let mut story = Story::begin(guarded());
    for turn in 0..9 {
        let new = format!("page {turn}");
        let arguments = format!(r#"{{"page":{turn}}}"#);
        let calls =
            [("rules", "{}", Effect::Read, "Be brief."), ("read", arguments.as_str(), Effect::Read, new.as_str())];
        assert_eq!(story.turn(&calls), None);
    }
    // What changes something answers the same each time.
    let mut story = Story::begin(guarded());
    for turn in 0..9 {
        let arguments = format!(r#"{{"row":{turn}}}"#);
        assert_eq!(story.turn(&[("insert", arguments.as_str(), Effect::Write, "ok")]), None);
    }
    // Calls of one turn, of which none could know what another brought.
    let mut story = Story::begin(guarded());
    assert_eq!(story.turn(&[("look", "{}", Effect::Read, "nothing"); 9]), None);
}

#[test]
fn turns_that_alternate_are_a_loop_too() {
    for cycle in [2, 3] {
        let mut story = Story::begin(guarded());
        let names = &["a", "b", "c"][..cycle];
        let mut found = Vec::new();
        for turn in 0..5 * cycle {
            let finding = story.turn(&reads(names[turn % cycle], "{}", "same"));
            found.extend(finding.map(|finding| (turn + 1, finding.repeats, finding.tools.len(), finding.stops)));
        }
        assert_eq!(found, [(3 * cycle, 3, cycle, false), (5 * cycle, 5, cycle, true)]);
    }
}

#[test]
fn other_arguments_that_bring_the_same_are_a_loop_too() {
    for (effect, answer) in [(Effect::Read, "nothing found"), (Effect::Write, "!no permission")] {
        let mut story = Story::begin(guarded());
        let mut found = Vec::new();
        for turn in 1..=12 {
            let arguments = format!(r#"{{"q":{turn}}}"#);
            let finding = story.turn(&[("search", arguments.as_str(), effect, answer)]);
            found.extend(finding.map(|finding| (finding.rule, finding.repeats, finding.stops)));
        }
        assert_eq!(found, [(LoopRule::SameResults, 4, false), (LoopRule::SameResults, 12, true)]);
    }
}

#[test]
fn a_loop_that_was_left_counts_anew_and_a_new_question_begins_one() {
    let mut story = Story::begin(guarded());
    for turn in 0..12 {
        let answer = if turn % 4 == 3 { format!("{turn}") } else { "nothing".to_owned() };
        let finding = story.turn(&reads("look", "{}", &answer));
        assert_eq!(finding.map(|finding| (finding.repeats, finding.stops)), (turn % 4 == 2).then_some((3, false)));
        assert_eq!(story.run.prompts().len(), usize::from(turn % 4 == 2), "{turn}");
    }
    let mut story = Story::begin(guarded());
    for turn in 0..8 {
        assert!(story.turn(&reads("look", "{}", "nothing")).is_none_or(|finding| !finding.stops), "{turn}");
        let messages = vec![Message::text(Role::User, "look again")];
        if turn % 3 == 2 {
            story.happens(Event::CommandsApplied { upto: turn, messages });
        }
    }
}

#[test]
fn calls_that_may_repeat_neither_count_nor_interrupt_a_count() {
    let mut rules = LoopRules::default();
    rules.loop_guard.ignored = vec!["wait*".into()];
    let mut story = Story::begin(RunSpec { rules: Arc::new(rules), ..spec() });
    for _ in 0..6 {
        assert_eq!(story.turn(&reads("wait_a_while", "{}", "waited")), None);
    }
    for turn in 1..=3 {
        let finding = story.turn(&reads("look", "{}", "nothing"));
        assert_eq!(finding.is_some(), turn == 3, "{turn}");
        story.turn(&reads("wait_a_while", "{}", "waited"));
    }
    let prompts = story.run.prompts();
    assert_eq!(prompts.len(), 1, "nothing new came meanwhile");
    assert!(prompts[0].contains("`look`") && !prompts[0].contains("wait"), "{prompts:?}");
}

#[test]
fn a_plan_is_asked_for_in_the_first_call_alone() {
    let rules = LoopRules { planning: Some("Plan first.".into()), ..LoopRules::default() };
    let mut story = Story::begin(RunSpec { rules: Arc::new(rules), ..spec() });
    let Step::Plan(text) = story.run.next_step() else { panic!("no plan") };
    story.happens(Event::PlanCreated { step: 1, text });
    story.calls_model();
    assert_eq!(story.run.prompts(), ["Plan first."]);
    story.happens(Event::RunResumed { leg: None });
    let (reason, usage) = (DiscardReason::Interrupted, Usage::default());
    story.happens(Event::StepDiscarded { step: 1, reason, usage, unconfirmed: Used::default() });
    assert_eq!(story.run.prompts(), ["Plan first."], "the call is made again");
    story.turn(&reads("look", "{}", "something"));
    assert_eq!((story.run.prompts().len(), story.run.messages().len()), (0, 3), "no history has it");
    assert!(matches!(story.run.next_step(), Step::CallModel { .. }));
}

#[test]
fn a_model_is_asked_how_far_it_has_come_after_so_many_calls() {
    let reflection = Some(Reflection { every: 3, prompt: "How far are you?".into() });
    let rules = LoopRules { reflection, loop_guard: LoopGuardRules::off(), ..LoopRules::default() };
    let mut story = Story::begin(RunSpec { rules: Arc::new(rules), ..spec() });
    let mut asked = Vec::new();
    for calls in [1, 1, 1, 2, 0, 4, 1, 1] {
        if let Step::Reflect(text) = story.run.next_step() {
            story.happens(Event::ReflectionStarted { step: story.run.step() + 1, text });
            assert_eq!(story.run.prompts(), ["How far are you?"]);
            asked.push(story.run.step() + 1);
        }
        if calls == 0 {
            // The step is void, and what it asked is asked again.
            let before = story.run.prompts();
            story.calls_model();
            let (step, reason, usage) = (story.run.step(), DiscardReason::StreamBroke, Usage::default());
            story.happens(Event::StepDiscarded { step, reason, usage, unconfirmed: Used::default() });
            assert_eq!(story.run.prompts(), before);
            continue;
        }
        story.turn(&vec![("look", "{}", Effect::Read, "something"); calls]);
        assert!(roles(story.run.messages())[1..].iter().all(|role| *role != Role::User), "no history has it");
    }
    assert_eq!(asked, [4, 7], "after 3 calls, and after 2 and 4 more");
}

#[test]
fn what_the_client_brings_is_new() {
    let mut story = Story::begin(RunSpec { client_tools: vec![client_tool("ask")], ..guarded() });
    for number in 1..=6 {
        let [looked, asked] = [call(story.run.calls_minted(), "look"), call(story.run.calls_minted() + 1, "ask")];
        story.says("", vec![looked.clone(), asked.clone()], usage(1, 1));
        story.answers(&looked, Effect::Read);
        story.completes_step();
        assert_eq!(story.run.next_step(), Step::Finish(StopReason::ClientTools), "{number}");
        story.ends();
        let answers = vec![Message::tool(&asked.id, "the same again")];
        story.happens(Event::RunResumed { leg: Some(Leg { number, ..leg(answers, Vec::new()) }) });
        assert!(matches!(story.run.next_step(), Step::CallModel { .. }), "{number}");
    }
}

#[test]
fn what_a_model_is_asked_fits_its_window_and_its_budget() {
    let prompt = "p".repeat(4_000);
    let rules = LoopRules {
        planning: Some(prompt.clone()),
        reflection: Some(Reflection { every: 1, prompt }),
        loop_guard: LoopGuardRules::off(),
        context: ContextRules::off(),
        ..LoopRules::default()
    };
    let rules = Arc::new(rules);
    let reserved = |rules: Arc<LoopRules>| {
        let mut story = Story::begin(RunSpec { rules, context_tokens: 100, ..spec() });
        if let Step::Plan(text) = story.run.next_step() {
            story.happens(Event::PlanCreated { step: 1, text });
        }
        let Step::CallModel { reserve, .. } = story.run.next_step() else { panic!("no call") };
        reserve.input_tokens
    };
    assert_eq!(
        reserved(rules.clone()) - reserved(Arc::default()),
        1_100,
        "a plan of 1,000 tokens, with a margin of a tenth"
    );
    // A conversation that nearly fills the window has no room for a reflection, and goes on.
    let rules = Arc::new(LoopRules { planning: None, ..(*rules).clone() });
    let mut story = Story::begin(RunSpec { rules, context_tokens: 100, context_window: 2_000, ..spec() });
    story.turn(&reads("look", "{}", &"r".repeat(6_000)));
    assert!(story.run.prompts().is_empty());
    assert!(matches!(story.run.next_step(), Step::CallModel { .. }), "{:?}", story.run.next_step());
}
