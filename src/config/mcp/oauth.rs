//! `[mcp.NAME.oauth]`: how a server is shown tokens of an authorization server.

use std::fmt;

use toml::Spanned;
use toml::de::DeValue;
use url::Url;

use crate::config::reader::Section;
use crate::config::secret::Secret;
use crate::config::secret_source;
use crate::config::value::{FromToml, Misread, Word, text};
use crate::config::values::Recorded;

/// How tokens for a server are had.
#[derive(Clone, PartialEq)]
pub struct OAuthConfig {
    /// The authorization server, whose metadata say where it gives tokens.
    pub issuer: Option<Url>,
    /// Where tokens are given, in place of metadata.
    pub token_url: Option<Url>,
    /// What this server is called there.
    pub client_id: String,
    /// What it proves that with.
    pub client_secret: Option<Secret>,
    /// How it does so.
    pub client_auth: ClientAuth,
    /// With what a token is asked for.
    pub grant: Grant,
    /// What tokens are to allow.
    pub scope: Option<String>,
    /// For which resource tokens are asked, where that is not the server's URL.
    pub resource: Option<String>,
}

/// With what a token is asked for.
#[derive(Clone, PartialEq, Eq)]
pub enum Grant {
    /// With the credentials of the client alone.
    ClientCredentials,
    /// With a token that someone's consent gave: this one, or that of each tenant or user.
    RefreshToken(Option<Secret>),
}

/// How the client says who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// As the metadata say, or else in a header.
    Auto,
    /// In a header.
    Basic,
    /// In the body.
    Post,
}

impl Word for ClientAuth {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("basic", Self::Basic), ("post", Self::Post)];
}

/// The grants by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantKind {
    ClientCredentials,
    RefreshToken,
}

impl Word for GrantKind {
    const WORDS: &'static [(&'static str, Self)] =
        &[("client_credentials", Self::ClientCredentials), ("refresh_token", Self::RefreshToken)];
}

impl fmt::Debug for OAuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.issuer.as_ref().or(self.token_url.as_ref()).and_then(Url::host_str);
        f.debug_struct("OAuthConfig").field("host", &host).field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl OAuthConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let issuer: Option<AuthUrl> = section.optional(
            "issuer",
            "The authorization server. If absent, the server's own metadata name it; one at another origin than the server must \
             be written here, as it is sent the secret.",
        );
        let token_url: Option<AuthUrl> =
            section.optional("token_url", "Where tokens are given, for an authorization server without metadata.");
        let client_id: Option<String> =
            section.required("client_id", "What Loopgate is called at the authorization server.");
        let client_secret = read_secret(
            section,
            ("client_secret_env", "Environment variable that holds the secret of the client."),
            ("client_secret_file", "File that holds it."),
        );
        let client_auth = section.key(
            "client_auth",
            "Where the secret is sent: `basic` in a header, `post` in the body, `auto` as the metadata of the authorization server \
             say, or else in a header.",
            ClientAuth::Auto,
        );
        let kind = section.key(
            "grant",
            "With what a token is asked for: `client_credentials` with the secret alone, `refresh_token` with a refresh token, \
             either one for all or one in the `credentials` of each tenant or user.",
            GrantKind::ClientCredentials,
        );
        let refresh_token = read_secret(
            section,
            ("refresh_token_env", "Environment variable that holds the refresh token."),
            ("refresh_token_file", "File that holds it."),
        );
        let scope: Option<String> = section.optional("scope", "What tokens are to allow, names with spaces between.");
        let resource: Option<String> = section.optional(
            "resource",
            "The resource that tokens are asked for; if absent, the server's metadata or `url` name it.",
        );
        if section.is_described() {
            return None;
        }
        if issuer.is_some() && token_url.is_some() {
            section.refuse("token_url", "give issuer or token_url, not both");
        }
        let grant = match kind {
            GrantKind::RefreshToken => Grant::RefreshToken(refresh_token),
            GrantKind::ClientCredentials => {
                if refresh_token.is_some() {
                    section.refuse("grant", "must be \"refresh_token\" where a refresh token is given");
                }
                if client_secret.is_none() && !is_secret_written(section) {
                    section.refuse_here("give client_secret_env or client_secret_file, or another grant");
                }
                Grant::ClientCredentials
            }
        };
        let url = |url: Option<AuthUrl>| url.map(|AuthUrl(url)| url);
        let (issuer, token_url) = (url(issuer), url(token_url));
        Some(Self { issuer, token_url, client_id: client_id?, client_secret, client_auth, grant, scope, resource })
    }
}

fn is_secret_written(section: &Section<'_>) -> bool {
    section.is_written("client_secret_env") || section.is_written("client_secret_file")
}

/// The secret that one of two keys names, each given with what it means.
fn read_secret(
    section: &mut Section<'_>,
    (env_key, env_help): (&'static str, &'static str),
    (file_key, file_help): (&'static str, &'static str),
) -> Option<Secret> {
    let env: Option<String> = section.optional(env_key, env_help);
    let file: Option<String> = section.optional(file_key, file_help);
    let (key, secret) = match (env, file) {
        (Some(variable), None) => (env_key, secret_source::from_env(section, &variable)),
        (None, Some(path)) => (file_key, secret_source::from_file(&path)),
        (Some(_), Some(_)) => (file_key, Err(format!("give {env_key} or {file_key}, not both"))),
        (None, None) => return None,
    };
    let secret = secret_source::reported(section, key, secret)?;
    section.record_secret(key, secret.expose());
    Some(secret)
}

/// A URL of an authorization server.
struct AuthUrl(Url);

impl FromToml for AuthUrl {
    fn form() -> String {
        "URL".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        const FORM: &str = "a URL such as \"https://auth.example.com\"";
        let url = Url::parse(text(value, FORM)?).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| Misread::new(value, format!("this is not {FORM}")))?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(Misread::new(value, "must not hold a user, a password or a fragment"));
        }
        Ok(Self(url))
    }

    fn show(&self) -> String {
        self.0.as_str().to_owned().show()
    }

    fn recorded(&self) -> Recorded {
        Recorded::hidden(self.0.as_str())
    }
}
