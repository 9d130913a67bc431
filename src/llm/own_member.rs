//! Members of a request that one vendor documents and the others do not.

use crate::types::conversation::Dialect;
use crate::types::sampling::Sampling;

/// The JSON of such a member, as the caller wrote it.
pub fn own<'s>(sampling: &'s Sampling, name: &str) -> Option<&'s str> {
    let members = sampling.extra.members(Dialect::OpenaiChat);
    members.iter().find(|(known, _)| known == name).map(|(_, json)| json.get())
}
