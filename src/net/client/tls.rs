//! What a client trusts in TLS, and what it shows of itself: certificates and a private key, read from PEM.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, Error, InconsistentKeys, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

/// What is wrong with a file of certificates or of a key. A sentence without its subject, which is the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is no certificate.
    #[error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// A certificate, counted from 1, is damaged.
    #[error("holds a certificate that cannot be read, which is number {0}")]
    Certificate(usize),
    /// There is no private key.
    #[error("holds no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The private key needs a password.
    #[error("holds a private key with a password, which cannot be used: write the key without one")]
    EncryptedKey,
    /// The private key is damaged, or of a kind that is not known.
    #[error("holds a private key that cannot be read")]
    Key,
    /// The private key is that of another certificate.
    #[error("holds the private key of another certificate")]
    OtherKey,
}

/// Certificate authorities that are trusted in place of those of the system.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authorities(Arc<[CertificateDer<'static>]>);

impl Authorities {
    /// Those in a file.
    pub fn from_pem(pem: &[u8]) -> Result<Self, PemError> {
        let authorities = Self(certificates(pem)?.into());
        authorities.roots()?;
        Ok(authorities)
    }

    fn roots(&self) -> Result<RootCertStore, PemError> {
        let mut roots = RootCertStore::empty();
        for (index, certificate) in self.0.iter().enumerate() {
            roots.add(certificate.clone()).map_err(|_| PemError::Certificate(index + 1))?;
        }
        Ok(roots)
    }
}

/// The certificate that a client shows to servers that ask for one, and its private key.
#[derive(Clone)]
pub struct ClientCertificate {
    chain: Arc<[CertificateDer<'static>]>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl ClientCertificate {
    /// The certificate in the one file, followed by those that vouch for it, and its key in the other.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, PemError> {
        match CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()) {
            Ok(_) => Ok(Self { chain: chain.into(), key: Arc::new(key) }),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(PemError::OtherKey),
            Err(Error::InvalidCertificate(_)) => Err(PemError::Certificate(1)),
            Err(_) => Err(PemError::Key),
        }
    }
}

impl PartialEq for ClientCertificate {
    fn eq(&self, other: &Self) -> bool {
        (&self.chain, &self.key) == (&other.chain, &other.key)
    }
}

impl Eq for ClientCertificate {}

impl Hash for ClientCertificate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.chain.hash(state);
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

/// The certificates in a file, at least one.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let read = CertificateDer::pem_slice_iter(pem).enumerate();
    let all: Vec<_> =
        read.map(|(index, one)| one.map_err(|_| PemError::Certificate(index + 1))).collect::<Result<_, _>>()?;
    if all.is_empty() { Err(PemError::NoCertificate) } else { Ok(all) }
}

/// The first private key in a file.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    match PrivateKeyDer::pem_slice_iter(pem).next() {
        Some(key) => key.map_err(|_| PemError::Key),
        // PKCS#8 says it in its first line, the older forms in a header below theirs.
        None if String::from_utf8_lossy(pem).contains("ENCRYPTED") => Err(PemError::EncryptedKey),
        None => Err(PemError::NoKey),
    }
}

/// How a client speaks TLS that trusts these authorities, or those of the system, and shows this certificate.
pub(super) fn config(
    authorities: Option<&Authorities>,
    certificate: Option<&ClientCertificate>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder: ConfigBuilder<ClientConfig, WantsClientCert> = match authorities.map(Authorities::roots) {
        Some(Ok(roots)) => builder.with_root_certificates(roots),
        Some(Err(error)) => return Err(Error::General(error.to_string())),
        None => builder.with_platform_verifier()?,
    };
    match certificate {
        Some(ClientCertificate { chain, key }) => builder.with_client_auth_cert(chain.to_vec(), key.clone_key()),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// How a client speaks TLS that trusts no server at all.
pub(super) fn config_without_trust() -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()))
}
