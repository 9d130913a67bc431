//! Signs messages as Standard Webhooks asks for: <https://www.standardwebhooks.com>.
//!
//! Pure. What is signed is the message's id, the time of the attempt and the body, with full stops between them. While a
//! secret is replaced, messages bear a signature by each of the two.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::InvalidHeaderValue;
use http::{HeaderMap, HeaderValue};

use crate::config::SigningSecret;

/// The headers of an attempt to send the message `id` at this time, Unix seconds. Without a secret there is no signature.
///
/// # Errors
/// If the id fits no header.
pub fn headers(id: &str, at_s: u64, body: &[u8], secrets: &[SigningSecret]) -> Result<HeaderMap, InvalidHeaderValue> {
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_str(id)?);
    headers.insert("webhook-timestamp", HeaderValue::from(at_s));
    if !secrets.is_empty() {
        let signatures: Vec<String> = secrets.iter().map(|secret| sign(id, at_s, body, secret)).collect();
        headers.insert("webhook-signature", HeaderValue::from_str(&signatures.join(" "))?);
    }
    Ok(headers)
}

fn sign(id: &str, at_s: u64, body: &[u8], SigningSecret(secret): &SigningSecret) -> String {
    let mut signing = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
    signing.update(format!("{id}.{at_s}.").as_bytes());
    signing.update(body);
    format!("v1,{}", STANDARD.encode(signing.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `openssl dgst -sha256 -mac HMAC`, of the bytes 0 to 23 as secret.
    #[test]
    fn a_message_is_signed_with_each_secret() {
        let secret = SigningSecret((0..24).collect());
        let signed = headers("msg_1", 1_674_087_231, br#"{"a":1}"#, std::slice::from_ref(&secret)).unwrap();
        assert_eq!(signed["webhook-id"], "msg_1");
        assert_eq!(signed["webhook-timestamp"], "1674087231");
        let signature = signed["webhook-signature"].to_str().unwrap().to_owned();
        assert_eq!(signature, "v1,37Ju4gWdHmMAd7aREn3FsxDufvnnrcp8sRkn3TQERiI=");
        let other = SigningSecret(vec![7; 24]);
        let both = headers("msg_1", 1_674_087_231, br#"{"a":1}"#, &[secret, other]).unwrap();
        let both = both["webhook-signature"].to_str().unwrap().to_owned();
        assert_eq!(both.split(' ').next(), Some(signature.as_str()));
        assert_eq!(both.split(' ').count(), 2);
        assert!(!headers("msg_1", 1, b"", &[]).unwrap().contains_key("webhook-signature"));
    }
}
