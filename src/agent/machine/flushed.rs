//! What a model is writing down before messages are no longer shown to it. Data, and what follows from it alone.

use crate::types::context::{FlushAnswered, FlushAsked, FlushCalled, FlushRules, SummaryCall};
use crate::types::conversation::{Extra, Part, Parts, ToolResult};
use crate::types::{CallId, Message, Micros, Role, ToolCall, Usage};

/// What a model is writing down.
#[derive(Debug, Clone)]
pub struct Flush {
    /// The place of the first message that it is about.
    pub from: u64,
    /// The place behind the last.
    pub upto: u64,
    /// How many messages that are.
    pub messages: u64,
    /// How often the model was called.
    pub round: u32,
    /// The call of it that is under way.
    pub open: Option<FlushAsked>,
    /// How often it wrote a note.
    pub writes: u32,
    turns: Vec<Turn>,
    /// How long its calls took, in milliseconds.
    pub(super) spent_ms: u64,
    /// The model's tokens.
    pub(super) usage: Usage,
    /// What they cost.
    pub(super) cost: Micros,
}

/// What the model said once, and what came of its calls.
#[derive(Debug, Clone)]
struct Turn {
    parts: Vec<Part>,
    lost: bool,
    results: Vec<(CallId, String, bool)>,
}

impl Turn {
    fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_call)
    }

    fn result(&self, id: &CallId) -> Option<&(CallId, String, bool)> {
        self.results.iter().find(|(call, ..)| call == id)
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The model is called, which may take so long.
    Ask {
        /// For the how many-th time, counted from 1.
        round: u32,
        /// In milliseconds.
        within_ms: u64,
    },
    /// This call is made. It may have been made before.
    Call(ToolCall),
    /// It is over, for this reason if not all is written down that might be.
    End(Option<String>),
}

impl Flush {
    /// One that begins with this call.
    pub(super) fn of(asked: &FlushAsked) -> Self {
        Self {
            from: asked.from,
            upto: asked.upto,
            messages: asked.messages,
            round: 0,
            open: None,
            writes: 0,
            turns: Vec::new(),
            spent_ms: 0,
            usage: Usage::default(),
            cost: Micros::default(),
        }
    }

    pub(super) fn ask(&mut self, asked: &FlushAsked) {
        (self.round, self.open) = (asked.round, Some(asked.clone()));
    }

    pub(super) fn answer(&mut self, answered: &FlushAnswered) {
        let FlushAnswered { parts, lost, latency_ms, call, .. } = answered;
        let SummaryCall { model, usage, .. } = &**call;
        self.open = None;
        self.spent_ms += latency_ms;
        self.usage += *usage;
        self.cost += model.price.cost(usage);
        self.turns.push(Turn { parts: parts.clone(), lost: *lost, results: Vec::new() });
    }

    pub(super) fn call(&mut self, called: &FlushCalled) {
        let FlushCalled { call_id, text, is_error, wrote, latency_ms } = called;
        self.spent_ms += latency_ms;
        self.writes += u32::from(*wrote);
        if let Some(turn) = self.turns.last_mut() {
            turn.results.push((call_id.clone(), text.clone(), *is_error));
        }
    }

    /// What was said in it so far, behind the messages that it is about.
    pub fn said(&self) -> impl Iterator<Item = Message> {
        self.turns.iter().filter(|turn| !turn.lost).flat_map(|turn| {
            let parts = Parts { list: turn.parts.clone(), extra: Extra::default() };
            let results = turn.calls().filter_map(|call| turn.result(&call.id)).map(|(call, text, is_error)| {
                let (call, parts, is_error) = (call.clone(), vec![Part::text(text.as_str())], *is_error);
                Message::result(ToolResult { call, parts, structured: None, is_error })
            });
            std::iter::once(Message::from_parts(Role::Assistant, parts)).chain(results).collect::<Vec<_>>()
        })
    }

    /// What comes next by these rules.
    pub(super) fn next(&self, rules: &FlushRules, is_stopping: bool) -> Next {
        if is_stopping {
            return Next::End(Some("the run is to stop".to_owned()));
        }
        let last = self.turns.last();
        let open = last.and_then(|last| last.calls().find(|call| last.result(&call.id).is_none()));
        if let Some(call) = open {
            return Next::Call(call.clone());
        }
        let is_done = last.is_some_and(|last| !last.lost && last.calls().next().is_none());
        if is_done || self.round >= rules.max_iterations {
            let unheard = self.turns.iter().all(|turn| turn.lost);
            return Next::End(unheard.then(|| "the model was interrupted again and again".to_owned()));
        }
        match rules.timeout_ms.saturating_sub(self.spent_ms) {
            0 => Next::End(Some(format!("it was not done within {} ms", rules.timeout_ms))),
            within_ms => Next::Ask { round: self.round + 1, within_ms },
        }
    }
}
