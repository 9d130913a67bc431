//! What a request asks for that its upstream does not have.

/// Something that an upstream cannot do, and where the request asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Where it stands.
    pub place: Place,
    /// One sentence for the caller.
    pub message: String,
}

/// A place in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The member of this name.
    Member(&'static str),
    /// A message, counted from 0.
    Message(usize),
}
