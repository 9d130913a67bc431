//! What the model has said so far in one step, and the part of that which is not recorded yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::context::filter::{TextFilter, has_calls};
use crate::agent::context::toolbox::Toolbox;
use crate::agent::machine::Run;
use crate::agent::machine::budget::{estimated_usage, whole_usage};
use crate::guard::hold::Hold;
use crate::guard::output::silence::is_silent;
use crate::guard::output::thinking::Piece;
use crate::guard::rails::failed;
use crate::llm::{Delta, Model, ModelPart, Spent, said};
use crate::types::conversation::{Part, PartKind, Thinking};
use crate::types::event::{Reservation, Turn};
use crate::types::guard::{GuardPoint, Triggered};
use crate::types::price::StepModel;
use crate::types::{Event, RunSpec, TurnEnd, Usage};

/// What the model said in one step, until it is recorded.
pub struct TurnBuffer {
    step: u32,
    upstream: (String, String),
    calls_before: u16,
    /// What its text passes.
    filter: TextFilter,
    /// What holds back what it says, as guardrails may object to that.
    holds: Option<Box<Holds>>,
    spec: Arc<RunSpec>,
    /// Whether an answer may say that there is nothing to say, which is not shown.
    allows_no_reply: bool,
    /// Whether text is held until the turn is whole.
    hold_text: bool,
    show_arguments: bool,
    /// The text that may be shown, and thinking, in the model's order.
    parts: Vec<Part>,
    /// Everything that came, in bytes, for the estimate of what it took.
    bytes: usize,
    /// When the model was asked.
    asked_at: Instant,
    /// When the first of it came.
    first_at: Option<Instant>,
    /// Whether its answer was asked for in one piece, which begins to arrive after its last token.
    in_one_piece: bool,
    /// Whether the upstream began to answer.
    begun: bool,
    /// Whether the call waits for its turn at the upstream.
    queued: bool,
    /// Until when surely nothing is sent, since the attempts so far have failed at no cost.
    pauses_until: Option<Instant>,
    /// What a call that failed says that it may have cost.
    failed_at: Option<Spent>,
    news: VecDeque<Event>,
}

/// What holds back what a model says: its text, and the text in which it declines.
#[derive(Debug)]
struct Holds {
    text: Hold,
    refusal: Hold,
}

/// A turn that is whole.
pub struct WholeTurn {
    /// What is left of it.
    pub parts: Vec<ModelPart>,
    /// What is left of it to show.
    pub rest: Vec<Event>,
    /// What it says to the user, if that is to be judged.
    pub said: String,
    /// The guardrails that this fails.
    pub triggered: Vec<Triggered>,
}

impl TurnBuffer {
    /// Nothing said yet in `step` by the model that is called, which may be the closing answer, without tools. Where no client reads the answer as it is
    /// said, it is asked for `in_one_piece` if the model may give it so.
    pub fn new(
        run: &Run,
        (model, called): (&dyn Model, &StepModel),
        tools: &Toolbox,
        step: u32,
        (closing, in_one_piece): (bool, bool),
    ) -> Self {
        let spec = run.spec();
        let rules = spec.guards.output.of_answer(spec.options.sampling.asks_for_json());
        let hold = Hold::new(&spec.guards.guardrails);
        let holds = hold.map(|hold| Box::new(Holds { text: hold.clone(), refusal: hold }));
        // The arguments of a question are words to the user.
        let holds_questions = holds.is_some() && spec.may_ask_user();
        Self {
            step,
            upstream: (called.upstream.clone(), called.model.clone()),
            calls_before: run.calls_minted(),
            filter: TextFilter::new(rules, (!closing).then_some(tools), model.written_calls()),
            holds,
            spec: spec.clone(),
            allows_no_reply: rules.allow_no_reply,
            hold_text: spec.options.hide_intermediate_text,
            show_arguments: spec.options.stream_tool_arguments && !holds_questions,
            parts: Vec::new(),
            bytes: 0,
            asked_at: Instant::now(),
            first_at: None,
            in_one_piece: in_one_piece && model.may_answer_in_one_piece(),
            begun: false,
            queued: false,
            pauses_until: None,
            failed_at: None,
            news: VecDeque::new(),
        }
    }

    /// Takes in a delta that does not end the turn.
    pub fn push(&mut self, delta: Delta) {
        let (step, before) = (self.step, self.bytes);
        match delta {
            Delta::Text(text) => {
                self.bytes += text.len();
                let (parts, news, shows) = (&mut self.parts, &mut self.news, !self.hold_text);
                let holds = &mut self.holds;
                self.filter.push(text, |piece| match piece {
                    Piece::Text(text) => {
                        let text = released(holds, text);
                        keep_text(parts, &text);
                        if shows && !text.is_empty() {
                            emit(news, Event::TextDelta { step, text });
                        }
                    }
                    Piece::Thinking(text) => {
                        keep_thinking(parts, &text);
                        emit(news, Event::ThinkingDelta { step, text });
                    }
                });
            }
            Delta::Refusal(text) => {
                self.bytes += text.len();
                let text = released_refusal(&mut self.holds, text);
                keep_refusal(&mut self.parts, &text);
                if !text.is_empty() {
                    emit(&mut self.news, Event::RefusalDelta { step, text });
                }
            }
            Delta::Thinking(text) => {
                self.filter.separate_thinking();
                self.bytes += text.len();
                keep_thinking(&mut self.parts, &text);
                emit(&mut self.news, Event::ThinkingDelta { step, text });
            }
            Delta::CallArguments { index, delta } => {
                self.bytes += delta.len();
                if self.show_arguments {
                    let number = u16::try_from(index + 1).unwrap_or(u16::MAX);
                    let call_id = self.spec.id.call(self.calls_before.saturating_add(number));
                    emit(&mut self.news, Event::ToolArgumentsDelta { step, call_id, delta });
                }
            }
            Delta::Retry { attempt, delay, kind, cause } => {
                let (upstream, model) = self.upstream.clone();
                self.pauses_until = Some(Instant::now() + delay);
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let run = &self.spec.id;
                tracing::warn!(%run, step, %upstream, %model, attempt, delay_ms, %cause, "a model call failed; trying again");
                self.news.push_back(Event::ProviderRetry { step, upstream, model, attempt, delay_ms, kind, cause });
            }
            Delta::Queued => self.queued = true,
            Delta::Dequeued { .. } => (self.queued, self.asked_at) = (false, Instant::now()),
            Delta::Begun => self.begun = true,
            Delta::Finished(_) => {}
        }
        if before == 0 && self.bytes > 0 {
            self.first_at = Some(Instant::now());
        }
    }

    /// When the model will have said nothing for so long since it was asked; `None` while it is not asked, as its call waits for
    /// its turn at the upstream.
    pub fn is_silent_for(&self, patience: Duration) -> Option<Instant> {
        (!self.queued).then(|| self.asked_at + patience)
    }

    /// Whether the answer is asked for in one piece.
    pub fn is_in_one_piece(&self) -> bool {
        self.in_one_piece
    }

    /// How long the first piece of the answer took, if it came in pieces: milliseconds.
    pub fn first_token_ms(&self) -> Option<u64> {
        let after = self.first_at.filter(|_| !self.in_one_piece)?.saturating_duration_since(self.asked_at);
        u64::try_from(after.as_millis()).ok()
    }

    /// Whether something waits to be recorded.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// All that waits, oldest first.
    pub fn take_news(&mut self) -> impl Iterator<Item = Event> + use<> {
        let first = self.news.pop_front();
        // As a rule that is all, and then the queue keeps its memory.
        let rest = if self.news.is_empty() { VecDeque::new() } else { std::mem::take(&mut self.news) };
        first.into_iter().chain(rest)
    }

    /// How many bytes the model said.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that the call failed, having cost so much at most.
    pub fn note_failure(&mut self, spent: Spent) {
        self.failed_at = Some(spent);
    }

    /// What the call may have cost so far.
    pub fn spent(&self) -> Spent {
        let pauses = self.pauses_until.is_some_and(|until| Instant::now() < until);
        match self.failed_at {
            _ if self.begun || self.bytes > 0 => Spent::Unknown,
            Some(spent) => spent,
            None if pauses || self.queued => Spent::Nothing,
            None if self.in_one_piece => Spent::Unknown,
            None => Spent::Input,
        }
    }

    /// Ends the turn: it becomes what was shown of it, or what it writes as calls. If a guardrail that it fails ends the run,
    /// nothing is left of the turn but what was shown.
    pub fn finish(&mut self, mut turn: Vec<ModelPart>, end: &TurnEnd) -> WholeTurn {
        let (step, mut rest) = (self.step, VecDeque::new());
        let (shows, holds) = (!self.hold_text, &mut self.holds);
        self.filter.finish(&mut turn, end, |piece| match piece {
            Piece::Text(text) => {
                let text = released(holds, text);
                if shows && !text.is_empty() {
                    emit(&mut rest, Event::TextDelta { step, text });
                }
            }
            Piece::Thinking(text) => emit(&mut rest, Event::ThinkingDelta { step, text }),
        });
        let (words, triggered) = self.judge(&turn);
        if triggered.iter().any(|triggered| triggered.tripwire) {
            let parts = std::mem::take(&mut self.parts).into_iter().map(ModelPart::Part).collect();
            return WholeTurn { parts, rest: Vec::new(), said: words, triggered };
        }
        if let Some(holds) = self.holds.as_deref_mut() {
            show_rest(&mut rest, step, (holds.text.finish(), holds.refusal.finish()), shows);
        }
        if self.hold_text && !has_calls(&turn) {
            let text = said(&turn).into_owned();
            if !(text.is_empty() || self.allows_no_reply && is_silent(&text)) {
                emit(&mut rest, Event::TextDelta { step, text });
            }
        }
        WholeTurn { parts: turn, rest: rest.into(), said: words, triggered }
    }

    /// What was shown of a turn of which nothing more is.
    pub fn take_shown(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }

    /// What a turn that is whole says to the user, if that is to be judged, and which guardrails it fails.
    fn judge(&self, turn: &[ModelPart]) -> (String, Vec<Triggered>) {
        let guards = &self.spec.guards;
        if !guards.judges(GuardPoint::Output) {
            return (String::new(), Vec::new());
        }
        let said = said_to_user(turn, &self.spec);
        let texts: Vec<&str> = said.iter().map(String::as_str).collect();
        let failed = failed(&guards.guardrails, GuardPoint::Output, &texts);
        let triggered = failed.map(|rail| Triggered::new(rail, self.step)).collect();
        (texts.join("\n\n"), triggered)
    }

    /// The turn as far as it came before it was interrupted, and what is left of it to show. Half-written calls are not part of
    /// it, unless as text. Once the answer had begun its usage is unknown: the upstream may have billed thinking that it does
    /// not show.
    pub fn take_partial(&mut self, reserve: Reservation, bound: Option<u64>, latency_ms: u64) -> (Turn, Vec<Event>) {
        let (step, shows) = (self.step, !self.hold_text);
        let (parts, holds) = (&mut self.parts, &mut self.holds);
        let mut rest = VecDeque::new();
        let show = |parts: &mut Vec<Part>, rest: &mut VecDeque<Event>, text: String| {
            keep_text(parts, &text);
            if shows && !text.is_empty() {
                emit(rest, Event::TextDelta { step, text });
            }
        };
        self.filter.finish(&mut Vec::new(), &TurnEnd::Interrupted, |piece| match piece {
            Piece::Text(text) => show(parts, &mut rest, released(holds, text)),
            Piece::Thinking(text) => {
                keep_thinking(parts, &text);
                emit(&mut rest, Event::ThinkingDelta { step, text });
            }
        });
        // Nothing of what a guardrail objects to.
        if let Some(holds) = holds.as_deref_mut() {
            let (text, refusal) = (holds.text.break_off(), holds.refusal.break_off());
            keep_text(parts, &text);
            keep_refusal(parts, &refusal);
            show_rest(&mut rest, step, (text, refusal), shows);
        }
        let usage = match self.spent() {
            Spent::Unknown => whole_usage(reserve, bound, self.bytes()),
            Spent::Input => estimated_usage(reserve, 0),
            Spent::Nothing => Usage::default(),
        };
        let (parts, first_token_ms) = (std::mem::take(&mut self.parts), self.first_token_ms());
        (Turn { parts, usage, end: TurnEnd::Interrupted, latency_ms, first_token_ms }, rest.into())
    }
}

/// What a turn says to the user: its text, the texts in which it declines, and what it asks.
fn said_to_user(turn: &[ModelPart], spec: &RunSpec) -> Vec<String> {
    let more = turn.iter().filter_map(|part| match part {
        ModelPart::Part(part) => part.as_refusal().map(str::to_owned),
        ModelPart::Call(call) => spec.question(&call.name, &call.arguments).map(|question| question.text()),
    });
    std::iter::once(said(turn).into_owned()).chain(more).filter(|text| !text.is_empty()).collect()
}

/// What may be shown of a text that guardrails may object to.
fn released(holds: &mut Option<Box<Holds>>, text: String) -> String {
    match holds {
        Some(holds) => holds.text.push(&text),
        None => text,
    }
}

/// The same of a text in which the model declines.
fn released_refusal(holds: &mut Option<Box<Holds>>, text: String) -> String {
    match holds {
        Some(holds) => holds.refusal.push(&text),
        None => text,
    }
}

/// Shows what was held back of a model's text, if text is shown, and of that in which it declines.
fn show_rest(rest: &mut VecDeque<Event>, step: u32, (text, refusal): (String, String), shows_text: bool) {
    if shows_text && !text.is_empty() {
        emit(rest, Event::TextDelta { step, text });
    }
    if !refusal.is_empty() {
        emit(rest, Event::RefusalDelta { step, text: refusal });
    }
}

fn keep_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut().map(|part| &mut part.kind) {
        Some(PartKind::Text(last)) => last.push_str(text),
        _ if text.is_empty() => {}
        _ => parts.push(Part::text(text)),
    }
}

fn keep_refusal(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut().map(|part| &mut part.kind) {
        Some(PartKind::Refusal(last)) => last.push_str(text),
        _ if text.is_empty() => {}
        _ => parts.push(PartKind::Refusal(text.to_owned()).into()),
    }
}

fn keep_thinking(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut().map(|part| &mut part.kind) {
        Some(PartKind::Thinking(last)) => last.text.push_str(text),
        _ => parts.push(PartKind::Thinking(Thinking { text: text.to_owned(), seal: None }).into()),
    }
}

/// Hands an event to the recorder, joined to the last one if that one still waits and both are pieces of one text, or of
/// the arguments of one call.
fn emit(news: &mut VecDeque<Event>, event: Event) {
    match (news.back_mut(), event) {
        (
            Some(Event::ToolArgumentsDelta { call_id, delta, .. }),
            Event::ToolArgumentsDelta { call_id: of, delta: more, .. },
        ) if *call_id == of => delta.push_str(&more),
        (Some(Event::TextDelta { text, .. }), Event::TextDelta { text: more, .. })
        | (Some(Event::RefusalDelta { text, .. }), Event::RefusalDelta { text: more, .. })
        | (Some(Event::ThinkingDelta { text, .. }), Event::ThinkingDelta { text: more, .. }) => {
            text.push_str(&more);
        }
        (_, event) => news.push_back(event),
    }
}
