//! A page of a list whose entries are looked at one by one.

use std::collections::BTreeMap;

use crate::types::user::clip_user;

/// Most entries of an index that one request looks at, whatever it finds among them.
pub const MOST_LOOKED_AT: usize = 1_000;

/// What was found, and how far the search came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T, I> {
    /// The entries, in the list's order.
    pub found: Vec<T>,
    /// The last one that was looked at, where the search gave up before the list's end or a whole page.
    pub searched_to: Option<I>,
}

impl<T, I> Listed<T, I> {
    /// What a search found that came to the list's end, or has a whole page.
    pub(super) fn whole(found: Vec<T>) -> Self {
        Self { found, searched_to: None }
    }
}

/// By which agent, model, user and notes a list goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traits {
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those that called this model first, as `upstream/model`.
    pub model: Option<String>,
    /// Only those of this user; those without one if it is empty.
    pub user: Option<String>,
    /// Only those that have all of these among their notes.
    pub metadata: BTreeMap<String, String>,
}

impl Traits {
    /// Only those of this user, as users are kept.
    #[must_use]
    pub fn of_user(self, user: Option<&str>) -> Self {
        Self { user: user.map(clip_user), ..self }
    }

    /// Whether a list shows what is of this agent, model and user, and has these notes.
    pub(super) fn fit(
        &self,
        agent: Option<&str>,
        model: Option<&str>,
        user: Option<&str>,
        metadata: &BTreeMap<String, String>,
    ) -> bool {
        let is =
            |wanted: &Option<String>, has: Option<&str>| wanted.as_deref().is_none_or(|wanted| has == Some(wanted));
        is(&self.agent, agent)
            && is(&self.model, model)
            && is(&self.user, user.or(Some("")))
            && self.metadata.iter().all(|(name, value)| metadata.get(name) == Some(value))
    }
}
