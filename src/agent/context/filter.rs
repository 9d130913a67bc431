//! What the text of a model passes before it is shown: thinking is split off, calls in writing are found, and what no
//! reader is meant to see goes.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::agent::context::recover::alone::LoneCalls;
use crate::agent::context::toolbox::Toolbox;
use crate::guard::output::Sanitiser;
use crate::guard::output::silence::Silence;
use crate::guard::output::thinking::{Piece, ThinkingSplit};
use crate::llm::{ModelPart, ModelTurn, said};
use crate::types::TurnEnd;
use crate::types::conversation::{Part, PartKind, Thinking};
use crate::types::guard::{OutputRules, Sanitise};
use crate::types::tool::WrittenCalls;

/// Whether a call of this name with these arguments would be valid.
type IsCall = Box<dyn Fn(&str, &str) -> bool + Send>;

/// Makes calls of what a turn that nobody is shown writes as such, where these are made.
pub fn find_written_calls(turn: &mut ModelTurn, rules: OutputRules, (tools, written): (&Toolbox, WrittenCalls)) {
    let mut filter = TextFilter::new(rules, Some(tools), written);
    filter.push(said(&turn.parts).into_owned(), |_| {});
    filter.finish(&mut turn.parts, &turn.end, |_| {});
}

/// What the text of one turn passes.
pub(super) struct TextFilter {
    thinking: Option<ThinkingSplit>,
    /// How many bytes of text came.
    bytes: usize,
    /// How many of them came before the upstream told the model's thinking by itself: tags in the text behind them are text.
    separates_from: Option<usize>,
    answer: AnswerFilter,
}

/// What the text of an answer passes, without the thinking in it.
struct AnswerFilter {
    /// Finds calls that are written as text; `None` where text is only text.
    scanner: Option<LoneCalls<IsCall>>,
    sanitiser: Option<Box<Sanitiser>>,
    silence: Option<Silence>,
}

impl TextFilter {
    /// For a turn that is subject to `rules`, of a model that may call `tools`; `None` in a closing answer. Of the calls that
    /// it writes as text, these are made.
    pub(super) fn new(rules: OutputRules, tools: Option<&Toolbox>, written: WrittenCalls) -> Self {
        let tools = tools.filter(|tools| written != WrittenCalls::None && tools.offers_any()).cloned();
        let scanner = tools.map(|tools| {
            let is_call: IsCall = Box::new(move |name, arguments| tools.allows(name, arguments, written));
            LoneCalls::new(is_call)
        });
        let sanitiser = (rules.sanitise == Sanitise::Full).then(Box::default);
        let silence = rules.allow_no_reply.then(Silence::default);
        Self {
            thinking: (rules.sanitise != Sanitise::Off).then(ThinkingSplit::default),
            bytes: 0,
            separates_from: None,
            answer: AnswerFilter { scanner, sanitiser, silence },
        }
    }

    /// Takes the next piece of text, and gives what may be shown of it.
    pub(super) fn push(&mut self, text: String, mut take: impl FnMut(Piece)) {
        let Self { thinking, bytes, answer, .. } = self;
        *bytes += text.len();
        let Some(thinking) = thinking else { return answer.push(text, take) };
        thinking.push(text, |piece| match piece {
            Piece::Text(text) => answer.push(text, &mut take),
            Piece::Thinking(thought) => take(Piece::Thinking(thought)),
        });
    }

    /// Notes that the upstream tells the model's thinking by itself.
    pub(super) fn separate_thinking(&mut self) {
        if let Some(thinking) = &mut self.thinking
            && self.separates_from.is_none()
        {
            thinking.stop();
            self.separates_from = Some(self.bytes);
        }
    }

    /// Ends the text of a turn that ended so, and gives what is left to show. The turn becomes what was shown of it; one
    /// that is nothing but calls in writing becomes these.
    pub(super) fn finish(&mut self, turn: &mut Vec<ModelPart>, end: &TurnEnd, mut take: impl FnMut(Piece)) {
        let Self { thinking, separates_from, answer, .. } = self;
        if let Some(thinking) = thinking {
            thinking.finish(|piece| match piece {
                Piece::Text(text) => answer.push(text, &mut take),
                Piece::Thinking(thought) => take(Piece::Thinking(thought)),
            });
            if thinking.found_any() {
                split_thinking(turn, separates_from.unwrap_or(usize::MAX));
            }
        }
        if let Some(scanner) = answer.scanner.take() {
            // A model that can call tools does not write its calls, and what was held back is no call.
            let rest = if has_calls(turn) || !may_end_in_calls(end) {
                scanner.into_text()
            } else {
                take_written_calls(scanner, turn, *end == TurnEnd::Length)
            };
            answer.push(rest, &mut take);
        }
        if answer.sanitiser.is_some() {
            sanitise(turn);
        }
        answer.finish(take);
    }
}

impl AnswerFilter {
    fn push(&mut self, text: String, mut take: impl FnMut(Piece)) {
        let text = match &mut self.scanner {
            Some(scanner) => scanner.push(text),
            None => text,
        };
        let text = match &mut self.sanitiser {
            Some(sanitiser) => sanitiser.push(&text),
            None => text,
        };
        let text = match &mut self.silence {
            Some(silence) => silence.push(text),
            None => text,
        };
        if !text.is_empty() {
            take(Piece::Text(text));
        }
    }

    /// Ends a text whose calls were taken out.
    fn finish(&mut self, mut take: impl FnMut(Piece)) {
        if let Some(mut sanitiser) = self.sanitiser.take() {
            let rest = sanitiser.finish();
            self.push(rest, &mut take);
        }
        let held = self.silence.as_mut().map(Silence::finish).unwrap_or_default();
        if !held.is_empty() {
            take(Piece::Text(held));
        }
    }
}

/// Whether a turn calls tools.
pub(super) fn has_calls(parts: &[ModelPart]) -> bool {
    parts.iter().any(|part| matches!(part, ModelPart::Call(_)))
}

/// Whether a turn that ended so may be nothing but calls in writing.
fn may_end_in_calls(end: &TurnEnd) -> bool {
    match end {
        TurnEnd::Stop | TurnEnd::ToolCalls | TurnEnd::Length => true,
        TurnEnd::ContentFilter | TurnEnd::Paused | TurnEnd::Interrupted | TurnEnd::Other(_) => false,
    }
}

/// Puts the calls that the turn's text holds in place of the text. Returns the text to show, if it is a text.
fn take_written_calls(scanner: LoneCalls<IsCall>, turn: &mut Vec<ModelPart>, was_cut: bool) -> String {
    let (rest, mut found) = scanner.finish(was_cut);
    if !found.is_empty() {
        // Small models repeat themselves until their length limit cuts them off: the same call again is no second
        // call.
        let mut seen = HashSet::new();
        found.retain(|call| seen.insert((call.name.clone(), call.arguments.clone())));
        turn.retain(|part| !is_text(part));
        turn.extend(found.into_iter().map(ModelPart::Call));
    }
    rest
}

fn is_text(part: &ModelPart) -> bool {
    matches!(part, ModelPart::Part(part) if part.as_text().is_some())
}

/// Makes parts of their own of the thinking that stands in tags in the first bytes of a turn's texts.
fn split_thinking(turn: &mut Vec<ModelPart>, mut bytes: usize) {
    let mut split = ThinkingSplit::default();
    let mut parts: Vec<ModelPart> = Vec::with_capacity(turn.len() + 1);
    for part in turn.drain(..) {
        match part {
            ModelPart::Part(Part { kind: PartKind::Text(text), .. }) => {
                let (tagged, rest) = text.split_at(text.floor_char_boundary(bytes));
                bytes -= tagged.len();
                split.push(tagged.to_owned(), |piece| add(&mut parts, piece));
                if !rest.is_empty() {
                    split.stop();
                    split.push(rest.to_owned(), |piece| add(&mut parts, piece));
                }
            }
            other @ (ModelPart::Part(_) | ModelPart::Call(_)) => parts.push(other),
        }
    }
    split.finish(|piece| add(&mut parts, piece));
    *turn = parts;
}

/// Adds a piece to the last part, if that is of its kind.
fn add(parts: &mut Vec<ModelPart>, piece: Piece) {
    let last = parts.last_mut().and_then(|part| match part {
        ModelPart::Part(part) => Some(&mut part.kind),
        ModelPart::Call(_) => None,
    });
    match (last, piece) {
        (Some(PartKind::Text(said)), Piece::Text(text)) => said.push_str(&text),
        (Some(PartKind::Thinking(Thinking { text: thought, seal: None })), Piece::Thinking(text)) => {
            thought.push_str(&text);
        }
        (_, Piece::Text(text)) => parts.push(ModelPart::Part(Part::text(text))),
        (_, Piece::Thinking(text)) => {
            parts.push(ModelPart::Part(PartKind::Thinking(Thinking { text, seal: None }).into()));
        }
    }
}

/// Sanitises the texts of a turn as one text.
fn sanitise(turn: &mut Vec<ModelPart>) {
    let mut sanitiser = Sanitiser::default();
    let mut last = None;
    for (place, part) in turn.iter_mut().enumerate() {
        if let ModelPart::Part(Part { kind: PartKind::Text(text), .. }) = part {
            *text = sanitiser.push(text);
            last = Some(place);
        }
    }
    if let Some(ModelPart::Part(Part { kind: PartKind::Text(text), .. })) = last.and_then(|place| turn.get_mut(place)) {
        text.push_str(&sanitiser.finish());
    }
    turn.retain(|part| !matches!(part, ModelPart::Part(Part { kind: PartKind::Text(text), .. }) if text.is_empty()));
}
