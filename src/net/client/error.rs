//! Why a request got no answer, or not all of it.

use std::error::Error;
use std::fmt;
use std::io;

use http::Extensions;
use hyper_util::client::legacy;
use rustls::AlertDescription;

use super::connect::TooSlow;
use super::http1::Http1Error;
use super::stream::UsedAgain;

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
        match tls_error(&*self.0) {
            Some(rustls::Error::AlertReceived(alert)) => DISTRUST.contains(alert),
            Some(error) => self.is_connect() && is_final(error),
            // HTTP/2 keeps only the text of what ended its connection.
            None => DISTRUST.iter().any(|alert| {
                let text = rustls::Error::AlertReceived(*alert).to_string();
                self.cause().to_string().contains(&text)
            }),
        }
    }

    /// Whether the server closed a connection that was kept for the next request before it answered this one. Servers
    /// do that, often just as the request is sent.
    pub fn is_closed(&self) -> bool {
        if let Some(error) = self.0.downcast_ref() {
            return matches!(error, Http1Error::Closed);
        }
        let is_unanswered = self.cause().downcast_ref().is_some_and(hyper::Error::is_incomplete_message);
        is_unanswered && self.0.downcast_ref().is_some_and(was_kept)
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

/// How a server says that it wants another certificate than it was shown, or one at all. The newest version of TLS lets a server
/// say so after the client has begun to send its request, which the server then does not read.
const DISTRUST: [AlertDescription; 10] = [
    AlertDescription::HandshakeFailure,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::DecryptError,
    AlertDescription::AccessDenied,
    AlertDescription::CertificateRequired,
];

/// Whether the connection of a request was kept from an earlier one.
fn was_kept(error: &legacy::Error) -> bool {
    let mut of_connection = Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut of_connection);
    }
    of_connection.get().is_some_and(UsedAgain::get)
}

/// What went wrong in TLS, if it was that.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = error.downcast_ref() {
        return Some(tls);
    }
    // What an I/O error is made of is not its source: that is the source of what it is made of.
    let inner: Option<&'a (dyn Error + 'static)> = match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|inner| inner as _),
        None => error.source(),
    };
    tls_error(inner?)
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
        Self(error.into())
    }
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> Self {
        Self(error.into())
    }
}
