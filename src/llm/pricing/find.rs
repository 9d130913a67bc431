//! Finds a model in lists by what it is called at its upstream. Pure.

use crate::config::{ListedModel, PriceFile};

/// What a list says of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Listed<'a> {
    /// The list.
    pub file: &'a PriceFile,
    /// What it says.
    pub model: &'a ListedModel,
    /// Whether the price holds at the upstream that was asked for.
    pub holds: bool,
}

/// What the lists say of a model at an upstream of this host: by its name as it is, without a `vendor/` before it, and without
/// a date (`-2025-08-07`, `-20250514`) after it. A list whose prices hold at the host goes before one whose prices do not.
pub(super) fn find<'a>(lists: [&'a [PriceFile]; 2], host: &str, model: &str) -> Option<Listed<'a>> {
    let own_name = model.rsplit_once('/').map_or(model, |(_, name)| name);
    let names = [Some(model), Some(own_name).filter(|own| *own != model), without_date(own_name)];
    let mut elsewhere = None;
    for name in names.into_iter().flatten() {
        for file in lists.into_iter().flatten() {
            let Some(model) = file.model(name) else { continue };
            let holds = file.holds_at(host) && !model.unconfirmed;
            let listed = Listed { file, model, holds };
            if holds {
                return Some(listed);
            }
            elsewhere.get_or_insert(listed);
        }
    }
    elsewhere
}

fn without_date(name: &str) -> Option<&str> {
    ["-####-##-##", "-########"].iter().find_map(|shape| {
        let (rest, end) = name.split_at_checked(name.len().checked_sub(shape.len())?)?;
        let fits = |(have, want): (u8, u8)| if want == b'#' { have.is_ascii_digit() } else { have == want };
        (!rest.is_empty() && end.bytes().zip(shape.bytes()).all(fits)).then_some(rest)
    })
}
