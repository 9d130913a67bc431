//! The items of a response while they are written, and which of them an event means.
//!
//! Pure. The API numbers its items and names them. Servers that speak its dialect may leave the numbers out, count from 1,
//! give every item the same number, name a call by its `call_id` alone, or name an item anew in each event. So the surest
//! sign decides: number and name together, then the name, then the number, then the kind.

use super::event::{Item, Named};
use super::few::MOST;
use crate::llm::drafts::Said;
use crate::llm::http::fault::Fault;
use crate::types::conversation::Extra;

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call,
    /// What no tool that is offered here makes.
    Unknown,
}

/// What an item is known by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) kind: Kind,
    id: &'a str,
    call_id: &'a str,
    /// The function that a call is of.
    function: &'a str,
}

/// What of an item was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) kind: Kind,
    index: Option<u64>,
    id: String,
    call_id: String,
    function: String,
    /// What the API wants back with a message.
    pub(super) extra: Extra,
    /// The parts of the turn that hold a message's text.
    pub(super) texts: Vec<usize>,
    /// All arguments of a call, as they were told when it began.
    pub(super) offered: String,
    /// The part of the turn that was added to last.
    pub(super) place: Option<usize>,
    /// The part of the item that was added to last.
    pub(super) part: Option<(Said, u64)>,
    /// Whether it was told as a whole.
    pub(super) is_whole: bool,
}

/// The items of a response, which are no more than [`MOST`], in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct WrittenItems(Vec<Written>);

impl Kind {
    fn of(kind: &str) -> Self {
        match kind {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::Call,
            _ => Self::Unknown,
        }
    }
}

impl<'a> From<&'a Item<'_>> for Name<'a> {
    fn from(item: &'a Item<'_>) -> Self {
        let kind = Kind::of(&item.r#type.0);
        Self { kind, id: &item.id.0, call_id: &item.call_id.0, function: &item.name.0 }
    }
}

impl<'a> From<&'a Named<'_>> for Name<'a> {
    fn from(item: &'a Named<'_>) -> Self {
        let kind = Kind::of(&item.r#type.0);
        Self { kind, id: &item.id.0, call_id: &item.call_id.0, function: &item.name.0 }
    }
}

impl Name<'_> {
    /// How many bytes it takes to keep it.
    pub(super) fn bytes(&self) -> usize {
        self.id.len() + self.call_id.len() + self.function.len()
    }
}

impl Written {
    fn has(&self, index: Option<u64>) -> bool {
        index.is_some() && self.index == index
    }

    /// Whether an event that gives this name alone means it.
    fn is_called(&self, id: &str) -> bool {
        !id.is_empty() && (self.id == id || self.call_id == id)
    }

    /// Whether it has the name of `item`. The `call_id` of a call goes before its `id`, as its result is sent back with it.
    fn is_named(&self, item: Name<'_>) -> bool {
        if !self.call_id.is_empty() && !item.call_id.is_empty() {
            return self.call_id == item.call_id;
        }
        self.is_called(item.id) || self.is_called(item.call_id)
    }

    /// Whether it is of the kind of `item`, and calls the same function.
    fn is_like(&self, item: Name<'_>) -> bool {
        let says_function = !self.function.is_empty() && !item.function.is_empty();
        self.kind == item.kind && (!says_function || self.function == item.function)
    }

    /// Whether both have a name, which differ.
    fn is_named_otherwise(&self, item: Name<'_>) -> bool {
        let differ = |own: &str, other: &str| !own.is_empty() && !other.is_empty() && own != other;
        match self.kind {
            Kind::Call => differ(&self.call_id, item.call_id),
            Kind::Message | Kind::Reasoning | Kind::Unknown => differ(&self.id, item.id),
        }
    }

    fn takes(&self, what: Said) -> bool {
        match self.kind {
            Kind::Message => matches!(what, Said::Text | Said::Refusal),
            Kind::Reasoning => what == Said::Thinking,
            Kind::Call => what == Said::Arguments,
            Kind::Unknown => false,
        }
    }
}

impl WrittenItems {
    /// Begins an item. Returns its number here.
    pub(super) fn begin(
        &mut self,
        index: Option<u64>,
        item: Name<'_>,
        extra: Extra,
        place: Option<usize>,
    ) -> Result<usize, Fault> {
        if self.0.len() == MOST {
            return Err(Fault::TooManyItems);
        }
        self.0.push(Written {
            kind: item.kind,
            index,
            id: item.id.to_owned(),
            call_id: item.call_id.to_owned(),
            function: item.function.to_owned(),
            extra,
            texts: Vec::new(),
            offered: String::new(),
            place,
            part: None,
            is_whole: false,
        });
        Ok(self.0.len() - 1)
    }

    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The item of this number.
    pub(super) fn at(&mut self, number: usize) -> Option<&mut Written> {
        self.0.get_mut(number)
    }

    /// The item that a delta means; one of another kind if only such a one has its index or name.
    pub(super) fn of_delta(&self, index: Option<u64>, id: &str, what: Said) -> Option<usize> {
        self.newest(|item| item.takes(what) && item.has(index) && item.is_called(id))
            .or_else(|| self.newest(|item| item.takes(what) && item.is_called(id)))
            .or_else(|| self.newest(|item| item.takes(what) && item.has(index)))
            .or_else(|| self.newest(|item| item.takes(what) && index.is_none() && !item.is_whole))
            .or_else(|| self.newest(|item| item.has(index) || item.is_called(id)))
    }

    /// The item that has begun and begins once more.
    pub(super) fn begun_before(&self, index: Option<u64>, item: Name<'_>) -> Option<usize> {
        let has_index = |begun: &Written| index.is_none() || begun.index == index;
        self.newest(|begun| begun.is_like(item) && begun.is_named(item) && has_index(begun) && !begun.is_whole)
    }

    /// The item that is told as a whole.
    pub(super) fn of_whole(&self, index: Option<u64>, item: Name<'_>) -> Option<usize> {
        let is_same_call = |begun: &Written| begun.kind != Kind::Call || !begun.is_named_otherwise(item);
        let is_next = |begun: &Written| index.is_none() && !begun.is_whole && is_same_call(begun);
        let is_other = |begun: &Written| begun.is_whole && begun.is_named_otherwise(item);
        self.newest(|begun| begun.is_like(item) && begun.has(index) && begun.is_named(item))
            .or_else(|| self.newest(|begun| begun.is_like(item) && begun.is_named(item)))
            .or_else(|| self.newest(|begun| begun.is_like(item) && begun.has(index) && !is_other(begun)))
            .or_else(|| self.0.iter().position(|begun| begun.is_like(item) && is_next(begun)))
    }

    /// Which item each of those is that the whole response has: the one with its name, or else the next one of its kind, as
    /// some servers number and name items anew at the end. `None` of an item that no event told of.
    pub(super) fn of_response(&self, told: &[Named<'_>]) -> Vec<Option<usize>> {
        let mut is_taken = vec![false; self.0.len()];
        let mut take = |is_it: &dyn Fn(&Written) -> bool| {
            let free = (0..).zip(&self.0).zip(&mut is_taken).find(|((_, item), is_taken)| !**is_taken && is_it(item));
            free.map(|((number, _), is_taken)| {
                *is_taken = true;
                number
            })
        };
        let names: Vec<Name<'_>> = told.iter().map(Name::from).collect();
        let mut found: Vec<Option<usize>> =
            names.iter().map(|name| take(&|item| item.is_like(*name) && item.is_named(*name))).collect();
        for (found, name) in found.iter_mut().zip(names) {
            *found = found.or_else(|| take(&|item| item.is_like(name)));
        }
        found
    }

    fn newest(&self, is_it: impl Fn(&Written) -> bool) -> Option<usize> {
        self.0.iter().rposition(is_it)
    }
}
