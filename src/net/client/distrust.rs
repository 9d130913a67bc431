//! What servers say of the certificates that they are shown, and where it stands in an error.

use std::error::Error;
use std::io;

use rustls::AlertDescription;

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

/// Whether an error is that the server does not trust us.
pub(super) fn distrust<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    tls_error(error).filter(|error| matches!(error, rustls::Error::AlertReceived(alert) if DISTRUST.contains(alert)))
}

/// What went wrong in TLS, if it was that.
pub(super) fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
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
