//! A conversation that is too long, and the views that make it fit.
//!
//! How many tokens a view has is estimated by what upstreams count: of what is shown now the number is known, and a view is taken to
//! have as many tokens for each byte as that.

use std::collections::HashSet;
use std::sync::Arc;

use crate::agent::context::fit::cut::{Cut, Numbered, keep, places};
use crate::agent::context::fit::places::Places;
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

/// About how many tokens a note has that stands for messages which are left out.
pub(super) const NOTE_TOKENS: u64 = 80;

/// What is known of a conversation that is too long.
#[derive(Debug)]
pub struct Given<'a> {
    /// The session's earlier messages that are there, then the run's own.
    pub messages: Vec<&'a Message>,
    /// Where they stand in the whole conversation.
    pub places: Places,
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
    /// Whether it is to be shortened although it is not too long: to what is always kept, whatever fits.
    pub early: bool,
    /// The step that is to begin.
    pub step: u32,
}

/// A conversation that is too long.
#[derive(Debug)]
pub struct Subject<'a> {
    given: Given<'a>,
    /// What is shown now, where messages are counted as they are given.
    view: View,
    /// The places of the messages in the whole conversation.
    numbers: Vec<u64>,
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
        let view = given.places.among(given.view);
        let numbers = (0..given.messages.len() as u64).map(|number| given.places.place(number)).collect();
        let mut subject = Self { given, view, numbers, ratio: 1.0 };
        let bytes = subject.given.beside + subject.weight(&subject.view);
        subject.ratio = (in_float(subject.given.tokens) / usual(bytes).max(1.0)).clamp(RATIOS.0, RATIOS.1);
        subject
    }

    /// Shortens old results of tools, if that is enough: first those that are long, then all.
    #[must_use]
    pub fn prune(&self) -> Option<Pruned> {
        let rules = &self.given.rules.pruning;
        if self.given.early {
            return None;
        }
        let upto = protected_from(&self.given.messages, rules.keep_last_turns) as u64;
        if !rules.enabled || upto <= self.view.begins() {
            return None;
        }
        let soft = View { soft: upto.max(self.view.soft), ..self.view.clone() };
        let hard = View { hard: upto.max(self.view.hard), ..soft.clone() };
        [soft, hard].iter().map(|view| self.pruned(view)).find(|pruned| pruned.after_tokens <= self.target())
    }

    /// Shortens all results of tools, as nothing else is left to leave out.
    #[must_use]
    pub fn squeeze(&self) -> Option<Pruned> {
        let count = self.given.messages.len() as u64;
        let soft = View { soft: count, ..self.view.clone() };
        let hard = View { hard: count, ..soft.clone() };
        let [soft, hard] = [soft, hard].map(|view| self.pruned(&view));
        let chosen = if soft.after_tokens <= self.given.most { soft } else { hard };
        self.is_worth(chosen.after_tokens).then_some(chosen)
    }

    /// Which messages are to be replaced, where what replaces them has about so many tokens: as few as make the conversation fit.
    /// `None` if that would not make it shorter.
    #[must_use]
    pub fn replaced(&self, summary_tokens: u64) -> Option<Replaced<'a>> {
        if self.given.early {
            return self.replaced_early(summary_tokens);
        }
        let mut best: Option<(Cut, u64)> = None;
        for (cut, shown) in self.cuts() {
            let after = shown + summary_tokens;
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

    /// The same of a conversation that is not too long: all but the newest that are always kept. A summary is taken to have a quarter
    /// of what it is of at most.
    fn replaced_early(&self, summary_tokens: u64) -> Option<Replaced<'a>> {
        let least = self.given.messages.len().saturating_sub(self.given.rules.keep_last as usize);
        self.cuts().into_iter().filter(|(cut, _)| cut.covers <= least).find_map(|(cut, shown)| {
            let summary = summary_tokens.min(self.given.tokens.saturating_sub(shown) / 4);
            self.is_worth(shown + summary).then(|| self.of_cut(cut))
        })
    }

    /// Where the conversation may be cut so that fewer and fewer messages are left, and how many tokens those have.
    fn cuts(&self) -> Vec<(Cut, u64)> {
        let covered = usize::try_from(self.view.covers).unwrap_or(usize::MAX);
        let weights = self.weights(&self.view);
        let cut = |covers: usize| {
            let kept = self.kept(covers, &weights);
            let shown =
                weights[covers..].iter().sum::<usize>() + kept.iter().map(|place| weights[*place]).sum::<usize>();
            (Cut { covers, kept }, self.in_tokens(shown))
        };
        places(self.numbered(), covered, self.given.rules.keep_last as usize).into_iter().map(cut).collect()
    }

    /// Which messages a note is to replace. It has the summary before it, and as many of the newest messages stay as fit beside that.
    /// Where even the fewest do not, the summary goes, and no message goes for it.
    #[must_use]
    pub fn left_out(&self) -> Option<Replaced<'a>> {
        let text = self.earlier().unwrap_or_default();
        if self.given.early {
            return self.replaced(NOTE_TOKENS + self.in_tokens(text.len()).saturating_sub(self.in_tokens(0)));
        }
        if text.is_empty() {
            return self.replaced(NOTE_TOKENS);
        }
        let noted = |cut: &Cut| self.compacted(cut, Method::Truncate, text.to_owned());
        let fits = |cut: &Cut| noted(cut).is_some_and(|noted| noted.after_tokens <= self.given.most);
        let with_text = self.cuts().into_iter().map(|(cut, _)| cut).find(fits);
        with_text.map(|cut| self.of_cut(cut)).or_else(|| self.replaced(NOTE_TOKENS))
    }

    /// What is replaced by this cut.
    #[must_use]
    pub fn of_cut(&self, cut: Cut) -> Replaced<'a> {
        let kept: HashSet<usize> = cut.kept.iter().copied().collect();
        let from = usize::try_from(self.view.begins()).unwrap_or(usize::MAX);
        // Those that stayed shown until now, and no longer do, are in no summary yet.
        let shown =
            self.view.kept.iter().filter_map(|place| usize::try_from(*place).ok()).filter(|place| *place < from);
        let messages = shown.chain(from..cut.covers).filter(|place| !kept.contains(place));
        let messages = messages.filter_map(|place| self.given.messages.get(place).copied()).collect();
        Replaced { cut, messages, earlier: self.earlier() }
    }

    /// What the summary says that is shown now.
    fn earlier(&self) -> Option<&'a str> {
        self.given.view.summary.as_ref().map(|summary| summary.text.as_str())
    }

    /// The place in the whole conversation behind the last message that this cut replaces.
    #[must_use]
    pub fn place_of(&self, cut: &Cut) -> u64 {
        self.given.places.place(cut.covers as u64)
    }

    /// That these are replaced by a summary that was made so; `None` if that does not make the conversation shorter.
    #[must_use]
    pub fn compacted(&self, cut: &Cut, method: Method, text: String) -> Option<Compacted> {
        let version = self.view.summary.as_ref().map_or(0, |summary| summary.version) + 1;
        let (covers, kept) = (cut.covers as u64, &cut.kept);
        let view = View {
            covers,
            kept: kept.iter().map(|place| *place as u64).collect(),
            summary: Some(Arc::new(Summary { version, method, text })),
            ..self.view.clone()
        };
        let after_tokens = self.tokens_of(&view);
        let place = |number: &u64| self.given.places.place(*number);
        self.is_worth(after_tokens).then(|| Compacted {
            step: self.given.step,
            covers: place(&covers),
            kept: view.kept.iter().map(place).collect(),
            summary: view.summary.expect("it was put in"),
            before_tokens: self.given.tokens,
            after_tokens,
            latency_ms: 0,
            call: None,
        })
    }

    /// That these are left out, which a note says. What an earlier summary tells stays, unless the conversation is too long with it.
    #[must_use]
    pub fn truncated(&self, replaced: &Replaced<'_>) -> Option<Compacted> {
        let by_note = |text: &str| self.compacted(&replaced.cut, Method::Truncate, text.to_owned());
        match replaced.earlier.filter(|text| !text.is_empty()).map(by_note) {
            None => by_note(""),
            Some(told) if self.given.early => told,
            Some(told) => told.filter(|told| told.after_tokens <= self.given.most).or_else(|| by_note("")),
        }
    }

    /// How many tokens this view has.
    #[must_use]
    pub fn tokens_of(&self, view: &View) -> u64 {
        self.in_tokens(self.weight(view))
    }

    fn numbered(&self) -> Numbered<'_> {
        (&self.given.messages, &self.numbers)
    }

    fn target(&self) -> u64 {
        self.given.most.saturating_mul(TARGET.0) / TARGET.1
    }

    /// Whether so many tokens are fewer by enough. What is sent beside the messages counts where it is what makes them too many.
    fn is_worth(&self, after: u64) -> bool {
        let beside = if self.given.early { self.in_tokens(0) } else { 0 };
        let messages = self.given.tokens.saturating_sub(beside);
        messages > 0 && after.saturating_sub(beside).saturating_mul(100) <= messages.saturating_mul(WORTH)
    }

    /// The places before a cut that stay shown. The first message of the user does not, where it alone takes a quarter of what fits.
    fn kept(&self, covers: usize, weights: &[usize]) -> Vec<usize> {
        let kept = keep(self.numbered(), covers, self.given.rules.keep_first_user);
        let asked = keep(self.numbered(), covers, false);
        let is_large = |place: &usize| self.in_tokens(weights[*place]) > self.in_tokens(0) + self.given.most / 4;
        kept.into_iter().filter(|place| asked.contains(place) || !is_large(place)).collect()
    }

    fn pruned(&self, view: &View) -> Pruned {
        let (before, after) = (self.weights(&self.view), self.weights(view));
        let shown = before.iter().zip(&after).skip(usize::try_from(view.covers).unwrap_or(usize::MAX));
        let results = shown.filter(|(before, after)| after < before).count() as u64;
        let (step, before_tokens) = (self.given.step, self.given.tokens);
        let [soft, hard] = [view.soft, view.hard].map(|upto| if upto == 0 { 0 } else { self.given.places.place(upto) });
        Pruned { step, soft, hard, results, before_tokens, after_tokens: self.tokens_of(view) }
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
