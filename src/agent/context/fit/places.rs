//! The places of messages in a conversation of which a run does not have all: it counts those that it has, and tells others the
//! places that these have in the whole.

use crate::types::History;
use crate::types::context::View;

/// Where the messages that are there stand in the whole conversation.
#[derive(Debug, Default)]
pub struct Places {
    /// Single messages before the others.
    kept: Vec<u64>,
    /// From which place on all are there.
    begins: u64,
}

impl Places {
    /// Those of a session's messages, which a run's own follow.
    #[must_use]
    pub fn of(history: &History) -> Self {
        Self { kept: history.kept().collect(), begins: history.begins() }
    }

    /// The same view of the messages that are there, counted among themselves.
    #[must_use]
    pub fn among(&self, view: &View) -> View {
        let kept = view.kept.iter().filter(|place| **place >= self.begins || self.kept.contains(place));
        View {
            covers: self.before(view.covers),
            kept: kept.map(|place| self.before(*place)).collect(),
            summary: view.summary.clone(),
            from: self.before(view.from),
            soft: self.before(view.soft),
            hard: self.before(view.hard),
        }
    }

    /// The place in the whole of the message that has this number among those that are there.
    #[must_use]
    pub fn place(&self, number: u64) -> u64 {
        let single = usize::try_from(number).ok().and_then(|number| self.kept.get(number));
        single.copied().unwrap_or_else(|| self.begins + number - self.kept.len() as u64)
    }

    /// How many of those that are there stand before this place.
    fn before(&self, place: u64) -> u64 {
        self.kept.partition_point(|kept| *kept < place) as u64 + place.saturating_sub(self.begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Message, Role};

    #[test]
    fn a_view_of_the_whole_is_one_of_what_is_there_and_back() {
        let history: History = (0..20).map(|place| Message::text(Role::User, &place.to_string())).collect();
        let places = Places::of(&history.clone().without_first(10, &[0, 7]));
        let view = View { covers: 12, kept: vec![0, 7], soft: 15, hard: 10, ..View::default() };
        let among = places.among(&view);
        assert_eq!((among.covers, &*among.kept, among.soft, among.hard), (4, &[0, 1][..], 7, 2));
        assert_eq!([0, 1, 2, 4, 7].map(|number| places.place(number)), [0, 7, 10, 12, 15]);
        let whole = Places::of(&history);
        assert_eq!((whole.among(&view), whole.place(5)), (view, 5));
    }
}
