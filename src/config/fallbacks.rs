//! `fallbacks` of agents and models: the models that are asked in place of another.

use super::mistake::suggestion;
use super::reader::Section;
use super::upstream::Upstream;
use crate::types::fallback::MOST_FALLBACKS;

/// Reads the fallbacks of an agent or a model, whose own model is `model`, where one is named.
pub(super) fn read(
    section: &mut Section<'_>,
    help: &'static str,
    model: Option<&str>,
    upstreams: &[Upstream],
) -> Option<Vec<String>> {
    let fallbacks: Option<Vec<String>> = section.optional("fallbacks", help);
    let names = fallbacks.as_deref().unwrap_or_default();
    if names.len() > MOST_FALLBACKS {
        section.refuse("fallbacks", format!("there are {} of them; at most {MOST_FALLBACKS} are asked", names.len()));
    }
    for (at, name) in names.iter().enumerate() {
        if let Err(what) = find_upstream(name, upstreams) {
            section.refuse("fallbacks", what);
        } else if names[..at].contains(name) {
            section.refuse("fallbacks", format!("`{name}` is there more than once"));
        } else if model == Some(name) {
            section.refuse("fallbacks", format!("`{name}` is the model that they are to stand in for"));
        }
    }
    fallbacks
}

/// Whether an upstream can be meant by `UPSTREAM/MODEL` or a bare name. Which model exists is the
/// upstream's to say.
pub(super) fn find_upstream(model: &str, upstreams: &[Upstream]) -> Result<(), String> {
    if upstreams.iter().any(|upstream| upstream.lists(model)) {
        return Ok(());
    }
    let names: Vec<&str> = upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    match model.split_once('/') {
        Some((_, "")) => Err("expected UPSTREAM/MODEL, found no model after the slash".to_owned()),
        Some((upstream, _)) if names.contains(&upstream) => Ok(()),
        Some((upstream, _)) => Err(format!("there is no upstream `{upstream}`; {}", suggestion(upstream, &names))),
        None if model.is_empty() => Err("expected UPSTREAM/MODEL, found nothing".to_owned()),
        None if upstreams.iter().any(|upstream| upstream.may_have(model)) => Ok(()),
        None => Err(format!("no upstream lists the model `{model}`; add it to an upstream's models")),
    }
}
