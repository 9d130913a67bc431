//! Why a server at the other end of HTTP gave no answer.

use http::StatusCode;

use crate::net::guard::Refusal;
use crate::tools::mcp::auth::NoToken;

/// Longest part of a page that is told.
const MAX_PAGE: usize = 300;

/// Why there is no answer, in words without addresses and headers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::tools::mcp) enum HttpFault {
    /// Nothing was sent.
    #[error("it cannot be reached")]
    Unreached,
    /// Nothing that it could understand or trust was sent.
    #[error("it cannot be trusted or understood in TLS")]
    Untrusted,
    /// Nothing was sent, because the guard does not let the server or its addresses be reached.
    #[error("{0}")]
    Refused(Refusal),
    /// The address may not be called.
    #[error("it redirects elsewhere, which is not followed")]
    Redirected,
    /// The connection broke before all of the answer came.
    #[error("the connection broke before it answered")]
    Broken,
    /// The answer is longer than allowed.
    #[error("its answer is longer than {0} bytes")]
    TooLong(usize),
    /// The answer is none that the protocol knows.
    #[error("its answer is not one of the protocol")]
    Unreadable,
    /// It says that it does not know the session, though not as the protocol defines.
    #[error("it does not know the session any more")]
    SessionDenied,
    /// There is no token to show it.
    #[error("{0}")]
    NoToken(#[from] NoToken),
    /// It answered a status of failure.
    #[error("it answered HTTP {code}{1}", code = .0.as_u16())]
    Status(StatusCode, String),
}

impl HttpFault {
    /// A status of failure, and what a page says of it.
    pub(super) fn of_status(status: StatusCode, page: &[u8]) -> Self {
        let page = String::from_utf8_lossy(page);
        let page: String = page.chars().filter(|char| !char.is_control()).collect();
        let page = page.trim();
        let told = &page[..page.floor_char_boundary(MAX_PAGE)];
        Self::Status(status, if told.is_empty() { String::new() } else { format!(": {told}") })
    }

    /// Whether the request may have taken effect although no answer says so.
    pub(in crate::tools::mcp) fn may_have_worked(&self) -> bool {
        match self {
            Self::Unreached
            | Self::Untrusted
            | Self::Refused(_)
            | Self::Redirected
            | Self::SessionDenied
            | Self::NoToken(_) => false,
            Self::Broken | Self::Unreadable | Self::TooLong(_) => true,
            // A gateway got no answer that it could pass on.
            Self::Status(status, _) => matches!(status.as_u16(), 502 | 504 | 520 | 522 | 524),
        }
    }
}
