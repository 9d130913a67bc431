//! What a request is known by when it comes again.

/// What a request is known by when it comes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// Hash of everything that it is known by, without its tenant.
    pub name: String,
    /// Hash of what it asks for.
    pub fingerprint: String,
    /// Who says that it may come again.
    pub kind: Kind,
}

/// Who says that a request may come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The caller, by a key: whatever comes with the same key is the same request, or a mistake.
    Key,
    /// A client that counts its attempts, at its first: what it asks for always begins anew.
    FirstAttempt,
    /// The same client, at a later attempt.
    Repeated,
}
