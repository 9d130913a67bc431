//! How a repeated request is recognised.

/// How a repeated request is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// Hash of the path with the key, or with the API key and the body; the tenant is not part of it.
    pub name: String,
    /// Hash of the request's content.
    pub fingerprint: String,
    /// What makes the request recognisable.
    pub kind: Kind,
}

/// What makes a request recognisable when it is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The caller, by a key: whatever comes with the same key is the same request, or a mistake.
    Key,
    /// A client that counts its attempts, at its first: what it asks for always begins anew.
    FirstAttempt,
    /// The same client, at a later attempt.
    Repeated,
}
