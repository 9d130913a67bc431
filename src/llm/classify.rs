//! Classes the failures of calls. Pure.

use super::error_class::ErrorClass;
use super::{ModelError, ModelErrorKind, Spent};

impl ModelError {
    /// What the failure says of the request, of its model and of the upstream.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match (self.kind, self.status) {
            (ModelErrorKind::ContextLength, _) => ErrorClass::ContextLength,
            (ModelErrorKind::Timeout, _) if self.spent > Spent::Nothing => ErrorClass::TimedOut,
            (ModelErrorKind::Transient, Some(429)) => ErrorClass::RateLimited,
            (ModelErrorKind::Transient | ModelErrorKind::Timeout, Some(_)) => ErrorClass::Overloaded,
            (ModelErrorKind::Transient | ModelErrorKind::Timeout, None) if self.spent == Spent::Nothing => {
                ErrorClass::Unreachable
            }
            (ModelErrorKind::Transient | ModelErrorKind::Timeout, None) => ErrorClass::Broken,
            (ModelErrorKind::Rejected, Some(400 | 422)) => ErrorClass::InvalidRequest,
            (ModelErrorKind::Rejected, Some(401)) => ErrorClass::Denied,
            (ModelErrorKind::Rejected, Some(403)) => ErrorClass::Forbidden,
            (ModelErrorKind::Rejected, Some(402 | 429)) => ErrorClass::Unpaid,
            (ModelErrorKind::Rejected, Some(404 | 410)) => ErrorClass::NotFound,
            (ModelErrorKind::Rejected, Some(413 | 415 | 501)) => ErrorClass::NotTaken,
            (ModelErrorKind::Rejected, _) => ErrorClass::Misconfigured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_but_an_invalid_request_may_pass_with_another_model() {
        use ErrorClass::{
            Broken, ContextLength, Denied, Forbidden, InvalidRequest, Misconfigured, NotFound, NotTaken, Overloaded,
            RateLimited, TimedOut, Unpaid, Unreachable,
        };
        use ModelErrorKind::{Rejected, Timeout, Transient};
        for (kind, status, spent, class) in [
            (Transient, None, Spent::Nothing, Unreachable),
            (Timeout, None, Spent::Nothing, Unreachable),
            (Transient, Some(429), Spent::Nothing, RateLimited),
            (Transient, Some(529), Spent::Nothing, Overloaded),
            (Transient, Some(502), Spent::Input, Overloaded),
            (Timeout, None, Spent::Input, TimedOut),
            (Transient, None, Spent::Unknown, Broken),
            (Rejected, Some(401), Spent::Nothing, Denied),
            (Rejected, Some(403), Spent::Nothing, Forbidden),
            (Rejected, Some(429), Spent::Nothing, Unpaid),
            (Rejected, Some(404), Spent::Nothing, NotFound),
            (Rejected, Some(413), Spent::Nothing, NotTaken),
            (Rejected, None, Spent::Nothing, Misconfigured),
            (ModelErrorKind::ContextLength, Some(400), Spent::Nothing, ContextLength),
            (Rejected, Some(400), Spent::Nothing, InvalidRequest),
            (Rejected, Some(422), Spent::Unknown, InvalidRequest),
        ] {
            let error = ModelError { status, ..ModelError::new(kind, "why") }.having(spent);
            assert_eq!(error.class(), class, "{kind:?} {status:?} {spent:?}");
            assert_eq!(class.concerns_the_model_alone(), class != InvalidRequest, "{class:?}");
        }
    }
}
