//! A conversation that is too long, and the views that make it fit.
//!
//! How many tokens a view has is estimated by what upstreams count: of what is shown now the number is known, and a view is taken to
//! have as many tokens for each byte as that.

use std::collections::HashSet;
use std::sync::Arc;

use crate::agent::context::fit::cut::{Cut, keep, places};
use crate::agent::context::fit::prune::protected_from;
use crate::agent::context::fit::shown::{in_short, pair};
use crate::types::Message;
use crate::types::context::{Compacted, ContextRules, Method, Pruned, Summary, View};

/// What a text of so many bytes has at least and at most in tokens, as parts of the usual number.
const RATIOS: (f64, f64) = (0.5, 4.0);
/// A view is worth a change if it has at most so many hundredths of what is shown now.
const WORTH: u64 = 95;
/// A conversation is shortened to this part of what is too much, so that it does not have to be shortened again soon.
const TARGET: (u64, u64) = (2, 3);

/// What is known of a conversation that is too long.
#[derive(Debug)]
pub struct Given<'a> {
    /// The session's earlier messages, then the run's own.
    pub messages: Vec<&'a Message>,
    /// What of them is shown now.
    pub view: &'a View,
    /// How it is to be shortened.
    pub rules: &'a ContextRules,
    /// What is sent beside them, in bytes.
    pub beside: usize,
    /// How many tokens all of that has.
    pub tokens: u64,
    /// More are too many.
    pub most: u64,
    /// The step that is to begin.
    pub step: u32,
}

/// A conversation that is too long.
#[derive(Debug)]
pub struct Subject<'a> {
    given: Given<'a>,
    /// How many tokens it has for each that its bytes would usually be.
    ratio: f64,
}

/// Messages that are to be replaced by a summary.
#[derive(Debug)]
pub struct Replaced<'a> {
    /// Where the conversation is cut.
    pub cut: Cut,
    /// Those that the summary is of.
    pub messages: Vec<&'a Message>,
    /// What it takes up.
    pub earlier: Option<&'a str>,
}

impl<'a> Subject<'a> {
    /// This conversation.
    #[must_use]
    pub fn new(given: Given<'a>) -> Self {
        let mut subject = Self { given, ratio: 1.0 };
        let bytes = subject.given.beside + subject.weight(subject.given.view);
        subject.ratio = (in_float(subject.given.tokens) / usual(bytes).max(1.0)).clamp(RATIOS.0, RATIOS.1);
        subject
    }

    /// Shortens old results of tools, if that is enough: first those that are long, then all.
    #[must_use]
    pub fn prune(&self) -> Option<Pruned> {
        let rules = &self.given.rules.pruning;
        let upto = protected_from(&self.given.messages, rules.keep_last_turns) as u64;
        if !rules.enabled || upto <= self.given.view.begins() {
            return None;
        }
        let soft = View { soft: upto.max(self.given.view.soft), ..self.given.view.clone() };
        let hard = View { hard: upto.max(self.given.view.hard), ..soft.clone() };
        [soft, hard].iter().map(|view| self.pruned(view)).find(|pruned| pruned.after_tokens <= self.target())
    }

    /// Shortens all results of tools, as nothing else is left to leave out.
    #[must_use]
    pub fn squeeze(&self) -> Option<Pruned> {
        let count = self.given.messages.len() as u64;
        let soft = View { soft: count, ..self.given.view.clone() };
        let hard = View { hard: count, ..soft.clone() };
        let [soft, hard] = [soft, hard].map(|view| self.pruned(&view));
        let chosen = if soft.after_tokens <= self.given.most { soft } else { hard };
        self.is_worth(chosen.after_tokens).then_some(chosen)
    }

    /// Which messages are to be replaced, where what replaces them has about so many tokens: as few as make the conversation fit.
    /// `None` if that would not make it shorter.
    #[must_use]
    pub fn replaced(&self, summary_tokens: u64) -> Option<Replaced<'a>> {
        let covered = usize::try_from(self.given.view.covers).unwrap_or(usize::MAX);
        let weights = self.weights(self.given.view);
        let cuts =
            places(&self.given.messages, covered, self.given.rules.keep_last as usize).into_iter().map(|covers| {
                let kept = self.kept(covers, &weights);
                let shown =
                    weights[covers..].iter().sum::<usize>() + kept.iter().map(|place| weights[*place]).sum::<usize>();
                (Cut { covers, kept }, self.in_tokens(shown) + summary_tokens)
            });
        let mut best: Option<(Cut, u64)> = None;
        for (cut, after) in cuts {
            if best.as_ref().is_none_or(|(_, least)| after < *least) {
                best = Some((cut, after));
            }
            if after <= self.target() {
                break;
            }
        }
        let (cut, _) = best.filter(|(_, after)| self.is_worth(*after))?;
        Some(self.of_cut(cut))
    }

    /// What is replaced by this cut.
    #[must_use]
    pub fn of_cut(&self, cut: Cut) -> Replaced<'a> {
        let kept: HashSet<usize> = cut.kept.iter().copied().collect();
        let from = usize::try_from(self.given.view.begins()).unwrap_or(usize::MAX);
        let messages = (from..cut.covers).filter(|place| !kept.contains(place)).map(|place| self.given.messages[place]);
        let messages = messages.collect();
        let earlier = self.given.view.summary.as_ref().map(|summary| summary.text.as_str());
        Replaced { cut, messages, earlier }
    }

    /// That these are replaced by a summary that was made so; `None` if that does not make the conversation shorter.
    #[must_use]
    pub fn compacted(&self, cut: &Cut, method: Method, text: String) -> Option<Compacted> {
        let version = self.given.view.summary.as_ref().map_or(0, |summary| summary.version) + 1;
        let (covers, kept) = (cut.covers as u64, &cut.kept);
        let view = View {
            covers,
            kept: kept.iter().map(|place| *place as u64).collect(),
            summary: Some(Arc::new(Summary { version, method, text })),
            ..self.given.view.clone()
        };
        let after_tokens = self.tokens_of(&view);
        self.is_worth(after_tokens).then(|| Compacted {
            step: self.given.step,
            covers,
            kept: view.kept,
            summary: view.summary.expect("it was put in"),
            before_tokens: self.given.tokens,
            after_tokens,
            latency_ms: 0,
            call: None,
        })
    }

    /// How many tokens this view has.
    #[must_use]
    pub fn tokens_of(&self, view: &View) -> u64 {
        self.in_tokens(self.weight(view))
    }

    fn target(&self) -> u64 {
        self.given.most.saturating_mul(TARGET.0) / TARGET.1
    }

    fn is_worth(&self, after: u64) -> bool {
        after.saturating_mul(100) <= self.given.tokens.saturating_mul(WORTH)
    }

    /// The places before a cut that stay shown. The first message of the user does not, where it alone takes a quarter of what fits.
    fn kept(&self, covers: usize, weights: &[usize]) -> Vec<usize> {
        let kept = keep(&self.given.messages, covers, self.given.rules.keep_first_user);
        let asked = keep(&self.given.messages, covers, false);
        let is_large = |place: &usize| self.in_tokens(weights[*place]) > self.in_tokens(0) + self.given.most / 4;
        kept.into_iter().filter(|place| asked.contains(place) || !is_large(place)).collect()
    }

    fn pruned(&self, view: &View) -> Pruned {
        let (before, after) = (self.weights(self.given.view), self.weights(view));
        let results = before.iter().zip(&after).filter(|(before, after)| after < before).count() as u64;
        let (step, before_tokens) = (self.given.step, self.given.tokens);
        Pruned { step, soft: view.soft, hard: view.hard, results, before_tokens, after_tokens: self.tokens_of(view) }
    }

    /// What each message weighs as a view would show it, were none replaced but those that it does not show.
    fn weights(&self, view: &View) -> Vec<usize> {
        let weight = |(place, message): (u64, &&Message)| {
            if place < view.from && place >= view.covers {
                return 0;
            }
            in_short(view, &self.given.rules.pruning, place, message).map_or(message.weight(), |short| short.weight())
        };
        (0..).zip(&self.given.messages).map(weight).collect()
    }

    /// What all that a view shows weighs.
    fn weight(&self, view: &View) -> usize {
        let covers = usize::try_from(view.covers).unwrap_or(usize::MAX).min(self.given.messages.len());
        let tail: usize = self.weights(view)[covers..].iter().sum();
        let kept: usize = view
            .kept
            .iter()
            .filter_map(|place| self.given.messages.get(usize::try_from(*place).ok()?))
            .map(|kept| kept.weight())
            .sum();
        let summary: usize =
            view.summary.iter().flat_map(|summary| pair(summary, view.covers)).map(|message| message.weight()).sum();
        tail + kept + summary
    }

    /// How many tokens so many bytes have, with what is sent beside the messages.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of tokens is positive and has fewer than 52 bits"
    )]
    fn in_tokens(&self, weight: usize) -> u64 {
        (usual(self.given.beside + weight) * self.ratio).ceil() as u64
    }
}

/// How many tokens so many bytes usually have.
fn usual(bytes: usize) -> f64 {
    in_float(bytes as u64) / 4.0
}

#[expect(clippy::cast_precision_loss, reason = "numbers of bytes and tokens have fewer than 52 bits")]
fn in_float(number: u64) -> f64 {
    number as f64
}
