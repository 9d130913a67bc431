//! What guards found in what clients, models and tools said.

use std::collections::VecDeque;

use super::judges::Judges;
use crate::types::guard::{Guarded, Triggered};

/// What guards found in a run. Boxed, as they find nothing in most.
#[derive(Debug, Clone, Default)]
pub(super) struct Found(Option<Box<Findings>>);

#[derive(Debug, Clone, Default)]
struct Findings {
    /// In its requests, as far as the log does not say it yet.
    untold: VecDeque<Guarded>,
    /// The guardrails that texts failed.
    triggered: Vec<Triggered>,
    /// What was asked about texts.
    judges: Judges,
}

impl Found {
    /// Of a run in whose input this was found.
    pub(super) fn of(input: &[Guarded]) -> Self {
        let mut found = Self::default();
        found.extend(input);
        found
    }

    /// Adds what was found in a request.
    pub(super) fn extend(&mut self, found: &[Guarded]) {
        if !found.is_empty() {
            self.0.get_or_insert_default().untold.extend(found.iter().cloned());
        }
    }

    /// What the log does not say yet.
    pub(super) fn untold(&self) -> impl Iterator<Item = &Guarded> {
        self.0.iter().flat_map(|findings| &findings.untold)
    }

    /// Notes that the log says this now.
    pub(super) fn take_told(&mut self, told: &Guarded) {
        if let Some(findings) = &mut self.0
            && findings.untold.front() == Some(told)
        {
            findings.untold.pop_front();
        }
    }

    /// Notes that a text failed a guardrail.
    pub(super) fn push(&mut self, triggered: &Triggered) {
        self.0.get_or_insert_default().triggered.push(triggered.clone());
    }

    /// What was asked about texts; `None` if nothing was.
    pub(super) fn judges(&self) -> Option<&Judges> {
        self.0.as_ref().map(|findings| &findings.judges)
    }

    /// The same, to add to it.
    pub(super) fn judges_mut(&mut self) -> &mut Judges {
        &mut self.0.get_or_insert_default().judges
    }

    /// The same, if anything was asked.
    pub(super) fn known_judges(&mut self) -> Option<&mut Judges> {
        self.0.as_mut().map(|findings| &mut findings.judges)
    }

    /// The guardrails that texts failed.
    pub(super) fn triggered(&self) -> impl Iterator<Item = &Triggered> {
        self.0.iter().flat_map(|findings| &findings.triggered)
    }
}
