//! What a run is to do. It is written into the user's message, so the model and the tools know from a request
//! alone what to answer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::harm::{Break, Loss, name_of};

/// A tool of the test services, and what repeating a call of it would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Tool {
    /// `look`, which only reads.
    Look,
    /// `put`, which may be repeated with the same key.
    Put,
    /// `book`, which must not be repeated.
    Book,
}

impl Tool {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Look, Self::Put, Self::Book];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Put => "put",
            Self::Book => "book",
        }
    }

    /// Its effect, as configurations have it.
    pub(crate) fn effect(self) -> &'static str {
        match self {
            Self::Look => "read",
            Self::Put => "idempotent",
            Self::Book => "write",
        }
    }

    /// The tool of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

/// What one run does: `rounds` times some text and a call, then some text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The run's name, unlike any other's.
    pub(crate) tag: String,
    /// How many turns call tools.
    pub(crate) rounds: u32,
    /// Which tools the turns call, one after the other, over and over.
    pub(crate) tools: Vec<Tool>,
    /// How many calls such a turn makes.
    pub(crate) calls: u32,
    /// Pieces of text in each turn.
    pub(crate) pieces: u32,
    /// The time between pieces, in milliseconds.
    pub(crate) pace_ms: u64,
    /// How long a tool takes, in milliseconds.
    pub(crate) delay_ms: u64,
    /// How many bytes besides stand in the user's message and in each piece of text.
    #[serde(default)]
    pub(crate) padding: [usize; 2],
    /// What becomes of the first answer to each turn's first call.
    #[serde(default)]
    pub(crate) loss: Loss,
    /// How the first answer to each turn breaks, turn by turn; those that are not named are whole.
    #[serde(default)]
    pub(crate) breaks: Vec<Break>,
    /// After which event its client cancels it.
    #[serde(default)]
    pub(crate) cancel_after: Option<u64>,
}

/// One call of one turn of one plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct ToolTask {
    /// The plan's tag.
    pub(crate) tag: String,
    /// The turn, from 0.
    pub(crate) round: u32,
    /// The call within the turn, from 0.
    pub(crate) index: u32,
    /// How long it takes.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// What becomes of the first answer.
    #[serde(default)]
    pub(crate) loss: Loss,
}

impl Plan {
    /// A short run without tools.
    pub(crate) fn new(tag: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            rounds: 0,
            tools: Tool::ALL.to_vec(),
            calls: 1,
            pieces: 4,
            pace_ms: 5,
            delay_ms: 0,
            padding: [0; 2],
            loss: Loss::Kept,
            breaks: Vec::new(),
            cancel_after: None,
        }
    }

    /// The same with so many rounds of these tools.
    pub(crate) fn with_tools(self, rounds: u32, tools: &[Tool]) -> Self {
        Self { rounds, tools: tools.to_vec(), ..self }
    }

    /// The same with so many pieces of text in each turn, so far apart.
    pub(crate) fn with_text(self, pieces: u32, pace_ms: u64) -> Self {
        Self { pieces, pace_ms, ..self }
    }

    /// The same with tools that take so long.
    pub(crate) fn with_delay(self, delay_ms: u64) -> Self {
        Self { delay_ms, ..self }
    }

    /// The same with so many bytes besides in the user's message and in each piece of text.
    pub(crate) fn with_padding(self, message: usize, piece: usize) -> Self {
        Self { padding: [message, piece], ..self }
    }

    /// What the user says: the plan in one line, and its padding in another.
    pub(crate) fn message(&self) -> String {
        format!("{self}\n{}", "x".repeat(self.padding[0]))
    }

    /// The same with tools that lose their first answers so.
    pub(crate) fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The same where the first answers to turns break so.
    pub(crate) fn with_breaks(self, breaks: &[Break]) -> Self {
        Self { breaks: breaks.to_vec(), ..self }
    }

    /// The same where the client cancels the run after this event.
    pub(crate) fn cancelled_after(self, event: u64) -> Self {
        Self { cancel_after: Some(event), ..self }
    }

    /// How the first answer to a turn breaks.
    pub(crate) fn breaks(&self, round: u32) -> Break {
        self.breaks.get(round as usize).copied().unwrap_or_default()
    }

    /// A piece of a turn's text.
    pub(crate) fn piece(&self, round: u32, piece: u32) -> String {
        format!("{}.{round}.{piece}{} ", self.tag, "x".repeat(self.padding[1]))
    }

    /// All of a turn's text.
    pub(crate) fn text(&self, round: u32) -> String {
        (0..self.pieces).map(|piece| self.piece(round, piece)).collect()
    }

    /// The calls of a turn; the last one makes none.
    pub(crate) fn tasks(&self, round: u32) -> Vec<(Tool, ToolTask)> {
        if round >= self.rounds || self.tools.is_empty() {
            return Vec::new();
        }
        let tool = self.tools[round as usize % self.tools.len()];
        let loss = |index| if index == 0 { self.loss } else { Loss::Kept };
        let task = |index| ToolTask { tag: self.tag.clone(), round, index, delay_ms: self.delay_ms, loss: loss(index) };
        (0..self.calls).map(|index| (tool, task(index))).collect()
    }

    /// Tokens that a turn takes in, where what it is told has so many bytes, and gives out.
    pub(crate) fn usage(&self, bytes: usize) -> (u64, u64) {
        (1 + bytes as u64 / 8, 1 + self.text(0).len() as u64 / 8)
    }
}

impl ToolTask {
    /// What the tool answers.
    pub(crate) fn answer(&self, tool: Tool) -> String {
        format!("{} {}.{}.{}", tool.name(), self.tag, self.round, self.index)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self.tools.iter().map(|tool| tool.name()).collect();
        write!(
            f,
            "run={} rounds={} tools={} calls={} pieces={} pace={} delay={}",
            self.tag,
            self.rounds,
            tools.join(","),
            self.calls,
            self.pieces,
            self.pace_ms,
            self.delay_ms
        )?;
        if self.padding != [0; 2] {
            write!(f, " padding={},{}", self.padding[0], self.padding[1])?;
        }
        if self.loss != Loss::Kept {
            write!(f, " loss={}", name_of(self.loss))?;
        }
        if let Some(event) = self.cancel_after {
            write!(f, " cancel={event}")?;
        }
        let breaks: Vec<_> = self.breaks.iter().map(name_of).collect();
        if breaks.is_empty() { Ok(()) } else { write!(f, " breaks={}", breaks.join(",")) }
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = None;
        for word in text.lines().next().unwrap_or_default().split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is no `name=value`"))?;
            if name == "run" {
                plan = Some(Self::new(value));
                continue;
            }
            let plan: &mut Self = plan.as_mut().ok_or_else(|| format!("{word:?} comes before the run's name"))?;
            let number = || value.parse::<u32>().map_err(|_| format!("{word:?} is no number"));
            match name {
                "rounds" => plan.rounds = number()?,
                "calls" => plan.calls = number()?,
                "pieces" => plan.pieces = number()?,
                "pace" => plan.pace_ms = number()?.into(),
                "delay" => plan.delay_ms = number()?.into(),
                "padding" => {
                    let (message, piece) = value.split_once(',').ok_or_else(|| format!("{word:?} is one number"))?;
                    let number = |text: &str| text.parse().map_err(|_| format!("{word:?} is no number"));
                    plan.padding = [number(message)?, number(piece)?];
                }
                "loss" => plan.loss = named(value)?,
                "cancel" => plan.cancel_after = Some(number()?.into()),
                "breaks" => plan.breaks = value.split(',').map(named).collect::<Result<_, _>>()?,
                "tools" => {
                    let tools = value.split(',').filter(|name| !name.is_empty());
                    let tool = |name: &str| Tool::named(name).ok_or_else(|| format!("there is no tool {name:?}"));
                    plan.tools = tools.map(tool).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("{name:?} is no part of a plan")),
            }
        }
        plan.ok_or_else(|| "there is no plan".to_owned())
    }
}

/// What bears this name.
fn named<T: for<'a> Deserialize<'a>>(name: &str) -> Result<T, String> {
    serde_json::from_value(name.into()).map_err(|error| format!("{name:?}: {error}"))
}

#[test]
fn a_plan_reads_as_it_was_written() {
    let plan = Plan::new("r1").with_tools(2, &[Tool::Book, Tool::Look]).with_text(7, 20).with_delay(100);
    assert_eq!(plan.to_string().parse(), Ok(plan.clone()));
    assert_eq!(plan.to_string(), "run=r1 rounds=2 tools=book,look calls=1 pieces=7 pace=20 delay=100");
    let harmed = plan.clone().with_loss(Loss::Half).with_breaks(&Break::ALL);
    assert_eq!(harmed.to_string().parse(), Ok(harmed.clone()));
    assert!(harmed.to_string().ends_with(" loss=half breaks=whole,closed,cut,untold,gateway,stalled"), "{harmed}");
    let cancelled = plan.clone().cancelled_after(9);
    assert_eq!(cancelled.to_string().parse(), Ok(cancelled.clone()));
    let large = plan.clone().with_padding(100_000, 7);
    assert_eq!(large.message().parse(), Ok(large.clone()));
    assert!(large.message().len() > 100_000 && large.piece(0, 0).len() > 7);
    for bad in [
        "run=a padding=1",
        "run=a loss=x",
        "run=a breaks=",
        "",
        "rounds=1",
        "run=a rounds=x",
        "run=a tools=nose",
        "run=a hello",
        "run=a b=1",
    ] {
        bad.parse::<Plan>().expect_err(bad);
    }
    let tasks = |round| plan.tasks(round).iter().map(|(tool, task)| task.answer(*tool)).collect::<Vec<_>>();
    assert_eq!([tasks(0), tasks(1), tasks(2)], [vec!["book r1.0.0"], vec!["look r1.1.0"], vec![]]);
}
