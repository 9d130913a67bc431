//! Members of a request that one vendor documents and the others do not.

use crate::types::conversation::Dialect;
use crate::types::sampling::Sampling;

/// The JSON of such a member, as the caller wrote it.
pub fn own<'s>(sampling: &'s Sampling, name: &str) -> Option<&'s str> {
    let dialects = [Dialect::OpenaiChat, Dialect::AnthropicMessages];
    let members = dialects.into_iter().flat_map(|dialect| sampling.extra.members(dialect));
    members.into_iter().find(|(known, _)| known == name).map(|(_, json)| json.get())
}
