//! A service that is asked or told, and the secret that its messages are signed with.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;
use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use crate::config::headers::read_headers;
use crate::config::reader::Section;
use crate::config::secret::Secret;
use crate::config::secret_source;
use crate::config::value::{FromToml, Misread, text};
use crate::config::values::Recorded;

/// Headers that say what a message is.
const OWN_HEADERS: [&str; 7] =
    ["accept", "accept-encoding", "content-type", "host", "webhook-id", "webhook-signature", "webhook-timestamp"];
/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// How many bytes a secret has.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A service that is asked or told.
#[derive(Clone, PartialEq)]
pub struct Webhook {
    /// http or https.
    pub url: Url,
    /// Sent with each message.
    pub headers: Vec<(HeaderName, Secret)>,
    /// What messages are signed with: the present secret, and the one before; empty where they are not signed.
    pub secrets: Vec<SigningSecret>,
    /// Most bytes of an answer.
    pub max_response: usize,
}

/// The bytes of a secret that messages are signed with.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(pub Vec<u8>);

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Webhook {
    pub(super) fn read(section: &mut Section<'_>, max_response: usize) -> Option<Self> {
        let url: Option<Endpoint> = section.optional(
            "url",
            "Where `webhook` and `notify` send their messages. The operator vouches for it: it may be a private address.",
        );
        let headers =
            read_headers(section, &OWN_HEADERS).into_iter().map(|(name, value)| (name, value.whole)).collect();
        let secrets = [("secret_env", "secret_file"), ("previous_secret_env", "previous_secret_file")];
        let secrets = secrets.into_iter().filter_map(|(env, file)| read_secret(section, env, file)).collect();
        let Endpoint(url) = url?;
        Some(Self { url, headers, secrets, max_response })
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the whole URL, which may hold a key in its path or query.
        f.debug_struct("Webhook").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// The secret in the variable that `env` names, or in the file that `file` names.
fn read_secret(section: &mut Section<'_>, env: &'static str, file: &'static str) -> Option<SigningSecret> {
    let is_previous = env.starts_with("previous");
    let variable: Option<String> = section.optional(
        env,
        if is_previous {
            "Environment variable that holds the secret before the present one: messages are signed with both while receivers change."
        } else {
            "Environment variable that holds the secret that messages are signed with: `whsec_` and 24 to 64 random bytes in base64."
        },
    );
    let path: Option<String> = section.optional(
        file,
        if is_previous {
            "File that holds it, in place of the variable."
        } else {
            "File that holds the secret, in place of the variable."
        },
    );
    let (name, secret) = match (variable, path) {
        (None, None) => return None,
        (Some(_), Some(_)) => {
            section.refuse(file, format!("give {env} or {file}, not both"));
            return None;
        }
        (Some(variable), None) => (env, secret_source::from_env(section, &variable)),
        (None, Some(path)) => (file, secret_source::from_file(&path)),
    };
    let secret = secret_source::reported(section, name, secret)?;
    section.record_secret(name, secret.expose());
    secret_source::reported(section, name, parse_secret(&secret))
}

fn parse_secret(secret: &Secret) -> Result<SigningSecret, String> {
    let bytes = secret.expose().strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
    match bytes.filter(|bytes| SECRET_BYTES.contains(&bytes.len())) {
        Some(bytes) => Ok(SigningSecret(bytes)),
        None => Err("the secret must be `whsec_` and then 24 to 64 bytes in base64, such as \
                     `echo whsec_$(openssl rand -base64 32)` makes"
            .to_owned()),
    }
}

/// Where a service is.
struct Endpoint(Url);

impl FromToml for Endpoint {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"https://hooks.example.com/audit\"";
        let url = Url::parse(text(value, FORM)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Misread::new(value, "must not hold a user or password; name the secret in headers"));
        }
        Ok(Self(url))
    }

    fn show(&self) -> String {
        self.0.as_str().to_owned().show()
    }

    /// Its path or query may hold a key.
    fn recorded(&self) -> Recorded {
        Recorded::hidden(self.0.as_str())
    }
}
