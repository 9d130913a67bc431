//! How connections to an upstream are opened: which certificates count, and through which proxy they go.

use std::fs;

use crate::config::reader::Section;
use crate::config::{proxy, secret_source};
use crate::net::client::Proxies;
use crate::net::client::tls::{Authorities, ClientCertificate, PemError, certificates, private_key};

/// What the key `proxy` means.
const PROXY: &str = "URL of the proxy through which the upstream is reached, such as `\"http://proxy.internal:3128\"`, or \
     `\"none\"`. If absent, the environment decides: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.";

/// How connections to an upstream are opened.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionSettings {
    /// Which certificate authorities vouch for it; `None` for those of the system.
    pub authorities: Option<Authorities>,
    /// What is shown to it where it asks for a certificate.
    pub certificate: Option<ClientCertificate>,
    /// Through which proxies it is reached.
    pub proxies: Proxies,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self { authorities: None, certificate: None, proxies: Proxies::Environment }
    }
}

impl ConnectionSettings {
    /// Reads what is declared for an upstream, of which an address has TLS or none has.
    pub(super) fn read(section: &mut Section<'_>, has_tls: bool) -> Self {
        let authorities = read_file(
            section,
            "ca_file",
            "File of certificate authorities in PEM. The certificate of the upstream must come from one of them; those of the \
             system then count for it no longer.",
            has_tls,
        );
        let authorities = authorities.and_then(|file| file.parse(section, Authorities::from_pem));
        Self {
            authorities,
            certificate: read_certificate(section, has_tls),
            proxies: proxy::read(section, PROXY).unwrap_or(Proxies::Environment),
        }
    }
}

/// A file that a key names.
struct File {
    key: &'static str,
    path: String,
    bytes: Vec<u8>,
}

impl File {
    /// What the file holds. Reports what is wrong with it.
    fn parse<T>(&self, section: &Section<'_>, parse: impl FnOnce(&[u8]) -> Result<T, PemError>) -> Option<T> {
        parse(&self.bytes).map_err(|error| section.refuse(self.key, format!("{} {error}", self.path))).ok()
    }
}

/// Reads the file that a key names. Reports if it cannot be read, or if there is no TLS that it could be for.
fn read_file(section: &mut Section<'_>, key: &'static str, help: &'static str, has_tls: bool) -> Option<File> {
    let path: String = section.optional(key, help)?;
    if !has_tls {
        section.refuse(key, "is for an upstream whose base_url begins with https://");
        return None;
    }
    let read = fs::read(&path).map_err(|error| format!("{path} cannot be read: {error}"));
    let bytes = secret_source::reported(section, key, read)?;
    section.record_secret(key, &String::from_utf8_lossy(&bytes));
    Some(File { key, path, bytes })
}

fn read_certificate(section: &mut Section<'_>, has_tls: bool) -> Option<ClientCertificate> {
    let certificate = read_file(
        section,
        "client_cert_file",
        "File of the certificate in PEM that is shown to an upstream that asks for one, followed by the certificates that \
         vouch for it.",
        has_tls,
    );
    let key = read_file(
        section,
        "client_key_file",
        "File of the private key of that certificate in PEM, without a password. It may be the same file.",
        has_tls,
    );
    for (given, missing) in [("client_cert_file", "client_key_file"), ("client_key_file", "client_cert_file")] {
        if section.is_written(given) && !section.is_written(missing) {
            section.refuse(given, format!("needs {missing}"));
        }
    }
    let chain = certificate?.parse(section, certificates);
    let file = key?;
    let key = file.parse(section, private_key)?;
    let chain = chain?;
    file.parse(section, |_| ClientCertificate::new(chain, key))
}
