//! The key by which a repeated request is recognised.
//!
//! The endpoints make it; admission and the inbox compare it with what earlier requests stored.

/// What a request and its repetitions have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// Hash of the path with the key, or with the API key and the body; the tenant is not part of it.
    pub name: String,
    /// Hash of the request's content.
    pub fingerprint: String,
    /// Who says that a request is repeated.
    pub kind: RequestKeyKind,
}

/// Who says that a request is repeated, and so what a repetition means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKeyKind {
    /// The caller, by a key of its own: another request with the same key is the same request, or a mistake.
    Key,
    /// A client library that counts its attempts, at its first attempt: the request always begins anew.
    FirstAttempt,
    /// The same client library, at a later attempt.
    Repeated,
    /// Nobody. The key names all that the request says, so that it joins the run of an equal one whose connection was
    /// cut before its answer had ended.
    Equal {
        /// Whether its client counts attempts, and this is its first. Such a client says so when it asks again, so
        /// nothing is waited for.
        counted: bool,
    },
}
