//! What a failed call is blamed on: the address, the key, or what was asked (pure).

use crate::llm::{Extent, ModelError, ModelErrorKind, Spent};

/// What a failed call is blamed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// What was asked, or what the model wrote: it would fail elsewhere too.
    Request,
    /// Nothing: it says nothing of what a call gets.
    Chance,
    /// The server at this address.
    Address(Severity),
    /// The key.
    Key(KeyFault),
}

/// What one failure tells of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It cannot be reached, or says itself that it cannot answer.
    Certain,
    /// It failed at this request, which may be the request's fault.
    Possible,
}

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// It was used too much of late, for this model.
    RateLimit,
    /// Its account is used up.
    Quota,
    /// The upstream does not know it.
    Refused,
    /// It may not do this; or no key may.
    Forbidden,
}

impl KeyFault {
    /// The word for it in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limit",
            Self::Quota => "quota",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
        }
    }
}

/// What a call that failed so is blamed on, at an upstream that has several keys or not.
pub fn blame(error: &ModelError, has_keys: bool) -> Blame {
    use ModelErrorKind::{ContextLength, Rejected, Timeout, Transient};
    match error.extent {
        Extent::Connection => return Blame::Chance,
        Extent::Answer => return Blame::Request,
        Extent::Model | Extent::Address => {}
    }
    match (error.kind, error.status) {
        (Transient, Some(429)) if has_keys => Blame::Key(KeyFault::RateLimit),
        (Rejected, Some(402 | 429)) if has_keys => Blame::Key(KeyFault::Quota),
        (Rejected, Some(401)) if has_keys => Blame::Key(KeyFault::Refused),
        (Rejected, Some(403)) if has_keys => Blame::Key(KeyFault::Forbidden),
        (Transient, Some(429 | 502 | 503 | 504 | 529)) => Blame::Address(Severity::Certain),
        // Not connected, or not understood in TLS.
        (Transient | Timeout | Rejected, None) if error.spent == Spent::Nothing => Blame::Address(Severity::Certain),
        (Transient | Timeout, None | Some(408 | 500..)) => Blame::Address(Severity::Possible),
        (Transient | Timeout | Rejected | ContextLength, _) => Blame::Request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_blamed_on_what_differs_elsewhere() {
        use ModelErrorKind::{ContextLength, Rejected, Timeout, Transient};
        use Severity::{Certain, Possible};
        use Spent::{Input, Nothing, Unknown};
        let blamed = |kind, status, spent, has_keys| {
            let error = ModelError { status, ..ModelError::new(kind, "").having(spent) };
            blame(&error, has_keys)
        };
        for (kind, status, spent, expected) in [
            (Transient, None, Nothing, Blame::Address(Certain)),
            (Timeout, None, Nothing, Blame::Address(Certain)),
            (Rejected, None, Nothing, Blame::Address(Certain)),
            (Transient, Some(503), Nothing, Blame::Address(Certain)),
            (Transient, Some(502), Input, Blame::Address(Certain)),
            (Transient, Some(429), Nothing, Blame::Address(Certain)),
            (Transient, Some(500), Input, Blame::Address(Possible)),
            (Transient, None, Unknown, Blame::Address(Possible)),
            (Timeout, None, Input, Blame::Address(Possible)),
            (Transient, Some(409), Nothing, Blame::Request),
            (Rejected, Some(400), Nothing, Blame::Request),
            (Rejected, Some(401), Nothing, Blame::Request),
            (Rejected, None, Unknown, Blame::Request),
            (ContextLength, Some(500), Nothing, Blame::Request),
        ] {
            assert_eq!(blamed(kind, status, spent, false), expected, "{kind:?} {status:?} {spent:?}");
        }
        for (kind, status, fault) in [
            (Transient, 429, KeyFault::RateLimit),
            (Rejected, 429, KeyFault::Quota),
            (Rejected, 402, KeyFault::Quota),
            (Rejected, 401, KeyFault::Refused),
            (Rejected, 403, KeyFault::Forbidden),
        ] {
            assert_eq!(blamed(kind, Some(status), Nothing, true), Blame::Key(fault), "{kind:?} {status}");
        }
        assert_eq!(blamed(Transient, Some(503), Nothing, true), Blame::Address(Certain));
        for (extent, expected) in [(Extent::Connection, Blame::Chance), (Extent::Answer, Blame::Request)] {
            let error = ModelError { extent, ..ModelError::new(Transient, "").having(Unknown) };
            assert_eq!(blame(&error, true), expected, "{extent:?}");
        }
    }
}
