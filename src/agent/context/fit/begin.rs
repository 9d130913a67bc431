//! What of its conversation a run shows its model when it begins, and how many tokens that is.

use std::sync::Arc;

use crate::agent::context::fit::cut::turns;
use crate::agent::context::fit::shown::Shown;
use crate::agent::machine::budget;
use crate::agent::machine::fitting::{beside, is_named};
use crate::types::context::SessionContext;
use crate::types::{History, Message, Role, RunSpec};

/// Lets a run go on with what its session knows of its conversation, and estimates what its first call has. Of what an upstream
/// counted before only what came since is estimated, if the same is sent beside it.
pub fn begin(spec: &mut RunSpec, known: Option<&SessionContext>, history: &History, offered: usize) {
    let count = history.count();
    let known = known.and_then(|known| known.of_first(count)).unwrap_or_default();
    if let Some((model, window)) = &known.learned
        && is_named(model, &spec.upstream, &spec.upstream_model)
    {
        spec.context_window = spec.context_window.min(*window);
    }
    let mut view = known.view;
    if let Some(most) = spec.rules.context.turn_limit {
        view.from = turns(history.placed().chain((count..).zip(&spec.input)), most);
    }
    if view.from <= view.covers {
        view.from = 0;
    }
    let is_same = |messages, beside_then| messages == count && beside_then == beside(spec, &spec.step_model());
    let anchor = known.anchor.filter(|anchor| view.from == 0 && is_same(anchor.messages, anchor.beside));
    spec.context_tokens = match anchor {
        // What was told of the run before is in the anchor too: it counts in place of nothing, which errs on the safe side.
        Some(anchor) => {
            let of_run = spec.prompt.as_ref().and_then(|prompt| prompt.of_run.as_ref()).map_or(0, Message::weight);
            anchor.tokens.saturating_add(budget::estimate(of_run + weight(&spec.input)))
        }
        None if view.is_whole() => {
            budget::estimate(spec.told_weight() + history.weight() + weight(&spec.input) + offered)
        }
        None => {
            let shown = Shown::of(&view, &spec.rules.context.pruning, history, &spec.input);
            let shown: usize = shown.with(&spec.input).weight();
            budget::estimate(spec.told_weight() + shown + offered)
        }
    };
    if spec.rules.context.triggers.input_tokens.is_some() {
        spec.input_since = known.input_tokens;
    }
    spec.view = (!view.is_whole()).then(|| Arc::new(view));
}

/// How many tokens a run's first call has at least, however much is left out: what the user asks, and what is sent `beside` it.
#[must_use]
pub fn least(spec: &RunSpec, beside: usize) -> u64 {
    let asked = spec.input.iter().rposition(|message| message.role == Role::User);
    let asked = asked.or(spec.input.len().checked_sub(1)).map_or(0, |place| spec.input[place].weight());
    budget::estimate(spec.told_weight() + beside + asked)
}

fn weight(messages: &[Message]) -> usize {
    messages.iter().map(Message::weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::tests::spec;
    use crate::types::context::Anchor;

    #[test]
    fn an_estimate_begins_at_what_the_upstream_counted() {
        let history: History = (0..4).map(|_| Message::text(Role::User, &"x".repeat(368))).collect();
        let begun = |known: Option<&SessionContext>, change: fn(&mut RunSpec)| {
            let mut spec = RunSpec { input: vec![Message::text(Role::User, &"y".repeat(368))], ..spec() };
            change(&mut spec);
            begin(&mut spec, known, &history, 0);
            spec.context_tokens
        };
        let model = spec().step_model();
        let anchor = |messages| {
            let anchor = Some(Anchor { messages, tokens: 1_000, beside: beside(&spec(), &model) });
            SessionContext { anchor, ..SessionContext::default() }
        };
        assert_eq!(begun(None, |_| ()), 500, "by four bytes a token");
        assert_eq!(begun(Some(&anchor(4)), |_| ()), 1_100);
        assert_eq!(begun(Some(&anchor(3)), |_| ()), 500, "the session has grown without the run");
        assert_eq!(begun(Some(&anchor(4)), |spec| spec.upstream_model = "other".into()), 500);
        let told = |spec: &mut RunSpec| spec.system = vec![Message::text(Role::System, &"s".repeat(368))];
        assert_eq!(begun(Some(&anchor(4)), told), 600);
    }

    #[test]
    fn a_window_that_was_learned_is_the_models_alone() {
        let learned = |model: &str| {
            let known = SessionContext { learned: Some((model.into(), 500)), ..SessionContext::default() };
            let mut spec = spec();
            begin(&mut spec, Some(&known), &History::default(), 0);
            spec.context_window
        };
        assert_eq!((learned("scripted/m"), learned("scripted/other")), (500, 128_000));
    }
}
