//! Why a request got no answer, or not all of it.

use std::error::Error;
use std::fmt;

use hyper_util::client::legacy;

use super::connect::TooSlow;

/// No answer came, or its body broke off.
#[derive(Debug)]
pub struct HttpError(Box<dyn Error + Send + Sync>);

impl HttpError {
    /// Whether no connection could be opened, so that nothing of the request was sent.
    pub fn is_connect(&self) -> bool {
        self.0.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
    }

    /// Whether it took too long to connect.
    pub fn is_connect_timeout(&self) -> bool {
        self.cause().is::<TooSlow>()
    }

    /// Whether the server closed the connection before it answered. Servers close connections that were kept for the
    /// next request, often just as it is sent.
    pub fn is_closed(&self) -> bool {
        self.cause().downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
    }

    /// The innermost error, which says what happened; the outer ones only say during what.
    fn cause(&self) -> &(dyn Error + 'static) {
        let mut cause: &(dyn Error + 'static) = &*self.0;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        cause
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl From<legacy::Error> for HttpError {
    fn from(error: legacy::Error) -> Self {
        Self(error.into())
    }
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        Self(error.into())
    }
}
