//! What the model said so far in one step, and what of it is still to be recorded.

use std::collections::{HashSet, VecDeque};

use crate::agent::context::recover::TextToolCalls;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::machine::Run;
use crate::agent::machine::budget::estimated_usage;
use crate::llm::{Delta, Model, ModelPart, said};
use crate::types::conversation::{Part, PartKind, Thinking};
use crate::types::event::{Reservation, Turn};
use crate::types::{Event, RunId, TurnEnd, Usage};

/// Whether a call of this name with these arguments would be valid.
type IsCall = Box<dyn Fn(&str, &str) -> bool + Send>;

/// What the model said in one step, until it is recorded.
pub struct TurnBuffer {
    step: u32,
    run: RunId,
    upstream: (String, String),
    calls_before: u16,
    /// Finds calls that are written as text; `None` where text is only text.
    scanner: Option<TextToolCalls<IsCall>>,
    /// Whether text is held until the turn is whole.
    hold_text: bool,
    show_arguments: bool,
    /// The text that may be shown, and thinking, in the model's order.
    parts: Vec<Part>,
    /// Everything that came, in bytes, for the estimate of what it took.
    bytes: usize,
    news: VecDeque<Event>,
}

impl TurnBuffer {
    /// Nothing said yet in `step`, which may be the closing answer, without tools.
    pub fn new(run: &Run, model: &dyn Model, tools: &Toolbox, step: u32, closing: bool) -> Self {
        let spec = run.spec();
        let scans = !closing && model.recovers_text_tool_calls() && tools.offers_any();
        let tools = tools.clone();
        Self {
            step,
            run: spec.id.clone(),
            upstream: (spec.upstream.clone(), spec.upstream_model.clone()),
            calls_before: run.calls_minted(),
            scanner: scans.then(|| {
                let is_call: IsCall = Box::new(move |name, arguments| tools.allows(name, arguments));
                TextToolCalls::new(is_call)
            }),
            hold_text: spec.options.hide_intermediate_text,
            show_arguments: spec.options.stream_tool_arguments,
            parts: Vec::new(),
            bytes: 0,
            news: VecDeque::new(),
        }
    }

    /// Takes in a delta that does not end the turn.
    pub fn push(&mut self, delta: Delta) {
        let step = self.step;
        match delta {
            Delta::Text(text) => {
                self.bytes += text.len();
                let text = match &mut self.scanner {
                    Some(scanner) => scanner.push(&text),
                    None => text,
                };
                self.keep_text(&text);
                if !self.hold_text && !text.is_empty() {
                    self.emit(Event::TextDelta { step, text });
                }
            }
            Delta::Thinking(text) => {
                self.bytes += text.len();
                self.keep_thinking(&text);
                self.emit(Event::ThinkingDelta { step, text });
            }
            Delta::CallArguments { index, delta } => {
                self.bytes += delta.len();
                if self.show_arguments {
                    let number = u16::try_from(index + 1).unwrap_or(u16::MAX);
                    let call_id = self.run.call(self.calls_before.saturating_add(number));
                    self.emit(Event::ToolArgumentsDelta { step, call_id, delta });
                }
            }
            Delta::Retry { attempt, delay, cause } => {
                let (upstream, model) = self.upstream.clone();
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                self.news.push_back(Event::ProviderRetry { step, upstream, model, attempt, delay_ms, cause });
            }
            Delta::Finished(_) => {}
        }
    }

    /// Whether something waits to be recorded.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The oldest of what waits.
    pub fn next_event(&mut self) -> Option<Event> {
        self.news.pop_front()
    }

    /// Whether the model said anything that the turn's failure voids.
    pub fn has_output(&self) -> bool {
        self.bytes > 0
    }

    /// What the call took, by estimate; nothing if it failed before it said anything.
    pub fn usage(&self, reserve: Reservation) -> Usage {
        if self.has_output() { estimated_usage(reserve, self.bytes) } else { Usage::default() }
    }

    /// The turn with the calls that are written as text taken for calls, and the text to show yet.
    /// `was_cut` says that the model's length limit ended it.
    pub fn finish(&mut self, turn: Vec<ModelPart>, was_cut: bool) -> (Vec<ModelPart>, String) {
        let (parts, rest) = match self.scanner.take() {
            None => (turn, String::new()),
            Some(scanner) => self.without_written_calls(scanner, turn, was_cut),
        };
        let calls = parts.iter().any(|part| matches!(part, ModelPart::Call(_)));
        let rest = match (self.hold_text, calls) {
            (false, _) => rest,
            (true, false) => said(&parts).into_owned(),
            (true, true) => String::new(),
        };
        (parts, rest)
    }

    fn without_written_calls(
        &mut self,
        scanner: TextToolCalls<IsCall>,
        turn: Vec<ModelPart>,
        was_cut: bool,
    ) -> (Vec<ModelPart>, String) {
        let (mut rest, mut found) = scanner.finish();
        // Small models repeat themselves until their length limit cuts them off: the same call again is
        // no second call, and half a call is no answer.
        let mut seen = HashSet::new();
        found.retain(|call| seen.insert((call.name.clone(), call.arguments.clone())));
        if was_cut && !found.is_empty() && rest.trim_start().starts_with(['{', '[', '`', '<']) {
            rest.clear();
        }
        self.keep_text(&rest);
        let shown: String = std::mem::take(&mut self.parts).iter().filter_map(Part::as_text).collect();
        let mut turn = saying(turn, &shown);
        if !turn.iter().any(|part| matches!(part, ModelPart::Call(_))) {
            turn.extend(found.into_iter().map(ModelPart::Call));
        }
        (turn, rest)
    }

    /// The turn as far as it came before it was interrupted. Half-written calls are not part of it.
    pub fn take_partial(&mut self, reserve: Reservation, latency_ms: u64) -> Turn {
        Turn {
            parts: std::mem::take(&mut self.parts),
            usage: estimated_usage(reserve, self.bytes),
            end: TurnEnd::Interrupted,
            latency_ms,
        }
    }

    fn keep_text(&mut self, text: &str) {
        match self.parts.last_mut().map(|part| &mut part.kind) {
            Some(PartKind::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.parts.push(Part::text(text)),
        }
    }

    fn keep_thinking(&mut self, text: &str) {
        match self.parts.last_mut().map(|part| &mut part.kind) {
            Some(PartKind::Thinking(last)) => last.text.push_str(text),
            _ => self.parts.push(PartKind::Thinking(Thinking { text: text.to_owned(), seal: None }).into()),
        }
    }

    /// Hands an event to the recorder, joined to the last one if both are text and that one still waits.
    fn emit(&mut self, event: Event) {
        match (self.news.back_mut(), event) {
            (Some(Event::TextDelta { text, .. }), Event::TextDelta { text: more, .. })
            | (Some(Event::ThinkingDelta { text, .. }), Event::ThinkingDelta { text: more, .. }) => {
                text.push_str(&more);
            }
            (_, event) => self.news.push_back(event),
        }
    }
}

/// The turn with `shown` for all that it says, and everything else in its place. Parts of which nothing was
/// taken stay as they are; where it was taken out of several, the first of them says what is left.
fn saying(mut turn: Vec<ModelPart>, mut shown: &str) -> Vec<ModelPart> {
    let mut said: VecDeque<&mut String> = turn.iter_mut().filter_map(words).collect();
    while let Some(rest) = said.front().and_then(|first| shown.strip_prefix(first.as_str())) {
        shown = rest;
        said.pop_front();
    }
    while let Some(rest) = said.back().and_then(|last| shown.strip_suffix(last.as_str())) {
        shown = rest;
        said.pop_back();
    }
    let mut left = shown;
    for words in said {
        left.clone_into(words);
        left = "";
    }
    turn.retain(|part| !matches!(part, ModelPart::Part(part) if part.as_said() == Some("")));
    turn
}

/// The text of a part that is an answer to the client.
fn words(part: &mut ModelPart) -> Option<&mut String> {
    match part {
        ModelPart::Part(Part { kind: PartKind::Text(text) | PartKind::Refusal(text), .. }) => Some(text),
        ModelPart::Part(_) | ModelPart::Call(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::ModelCall;
    use crate::types::conversation::{Proof, Seal};

    #[test]
    fn what_is_taken_out_of_a_text_leaves_the_rest_of_the_turn_in_place() {
        let seal = Seal { upstream: "a".into(), id: None, proof: Proof::Signature("s".into()) };
        let thinking = Thinking { text: "hm".into(), seal: Some(Box::new(seal)) };
        let call = ModelPart::Call(ModelCall { name: "f".into(), arguments: "{}".into() });
        let refusal = |text: &str| ModelPart::Part(PartKind::Refusal(text.into()).into());
        let text = |text: &str| ModelPart::Part(Part::text(text));
        let thinking = ModelPart::Part(PartKind::Thinking(thinking).into());
        let turn = |first: &str, second: &str, last: &str| {
            vec![text(first), thinking.clone(), call.clone(), text(second), refusal(last)]
        };
        let whole = turn("a {call} b", "c", "no");
        assert_eq!(saying(whole.clone(), "a {call} bcno"), whole);
        assert_eq!(saying(whole.clone(), "a  bcno"), turn("a  b", "c", "no"));
        assert_eq!(
            saying(turn("a", "{call}", "no"), "ano"),
            vec![text("a"), thinking.clone(), call.clone(), refusal("no")]
        );
        assert_eq!(
            saying(turn("a {call}", "{call} b", "no"), "a  bno"),
            vec![text("a  b"), thinking.clone(), call.clone(), refusal("no")]
        );
    }
}
