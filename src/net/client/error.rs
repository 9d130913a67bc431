//! Why a request got no answer, or not all of it.

use std::error::Error;
use std::fmt;

use http::Extensions;
use hyper_util::client::legacy;

use super::connect::TooSlow;
use super::distrust::{distrust, tls_error};
use super::http1::Http1Error;
use super::stream::{self, UsedAgain};
use crate::net::guard::Refusal;

/// No answer came, or its body broke off.
#[derive(Debug)]
pub struct HttpError(Box<dyn Error + Send + Sync>);

impl HttpError {
    /// Whether no connection could be opened, so that nothing of the request was sent.
    pub fn is_connect(&self) -> bool {
        match self.0.downcast_ref() {
            Some(error) => matches!(error, Http1Error::Unconnected(_)),
            None => self.0.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect),
        }
    }

    /// Whether it took too long to connect.
    pub fn is_connect_timeout(&self) -> bool {
        self.cause().is::<TooSlow>()
    }

    /// Whether the two do not understand or trust each other in TLS, which will be so again the next time. The server has
    /// read nothing of the request then. Whatever else breaks TLS may come after the request.
    pub fn is_tls(&self) -> bool {
        distrust(&*self.0).is_some() || (self.is_connect() && tls_error(&*self.0).is_some_and(is_final))
    }

    /// Whether the server closed a connection that was kept for the next request before it answered this one. Servers
    /// do that, often just as the request is sent.
    pub fn is_closed(&self) -> bool {
        if let Some(error) = self.0.downcast_ref() {
            return matches!(error, Http1Error::Closed);
        }
        let is_unanswered = self.cause().downcast_ref().is_some_and(hyper::Error::is_incomplete_message);
        is_unanswered && self.0.downcast_ref().is_some_and(|error| noted::<UsedAgain>(error).get())
    }

    /// Why the guard refused the server or its addresses, if that is it. Nothing was sent then.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.cause().downcast_ref()
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

/// What was noted of the connection of a request.
fn noted<T: Clone + Default + Send + Sync + 'static>(error: &legacy::Error) -> T {
    let mut of_connection = Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut of_connection);
    }
    of_connection.get().cloned().unwrap_or_default()
}

fn is_final(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::NoApplicationProtocol
    )
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.cause(), f)
    }
}

impl From<Http1Error> for HttpError {
    fn from(error: Http1Error) -> Self {
        Self(error.into())
    }
}

impl From<legacy::Error> for HttpError {
    fn from(error: legacy::Error) -> Self {
        // HTTP/2 tells those who wait for an answer that the connection was closed, and keeps the reason to itself.
        match noted::<stream::Refusal>(&error).get() {
            Some(refusal) => Self(refusal.into()),
            None => Self(error.into()),
        }
    }
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        Self(error.into())
    }
}
