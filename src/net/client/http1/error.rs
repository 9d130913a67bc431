//! Why there is no answer, or not all of it.

use std::io;

use super::super::tcp::Failure;

/// What went wrong with a request or its answer.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Http1Error {
    /// There is no connection, so nothing was sent.
    #[error("no connection could be opened")]
    Unconnected(#[source] Failure),
    /// A connection that was kept took no byte of the request.
    #[error("the connection that was kept is closed")]
    Unsent,
    /// A connection that was kept was closed before anything of the answer came: servers do that to connections that were
    /// idle for long.
    #[error("connection closed before message completed")]
    Closed,
    /// The server closed the connection before the head of its answer was there, on a fresh connection or in the middle of
    /// the head.
    #[error("connection closed before message completed")]
    Unanswered,
    /// The server closed the connection before the body of its answer was whole.
    #[error("connection closed before the end of the body")]
    CutOff,
    /// The connection broke.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// The answer breaks the rules of HTTP/1.1, so that nobody can say where it ends or what it means.
    #[error("this is no answer in HTTP/1.1: {0}")]
    Malformed(&'static str),
}

/// What is wrong with the bytes of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

impl From<Malformed> for Http1Error {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Malformed(what)
    }
}
