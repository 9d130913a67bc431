//! What a tool's service may be told of the caller that a run belongs to.

use toml::Spanned;
use toml::de::DeValue;

use super::value::{FromToml, Misread, Word};

/// One thing that a run's request says of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The tenant, which the API key decides.
    Tenant,
    /// The session that the run continues.
    Session,
    /// The end user that the request names.
    User,
    /// The notes of the request.
    Metadata,
}

impl Word for Identity {
    const WORDS: &'static [(&'static str, Self)] =
        &[("tenant", Self::Tenant), ("session", Self::Session), ("user", Self::User), ("metadata", Self::Metadata)];
}

/// What is told of the caller; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentIdentity(pub Vec<Identity>);

impl FromToml for SentIdentity {
    fn form() -> String {
        "list of \"tenant\", \"session\", \"user\", \"metadata\"".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        if value.get_ref().as_array().is_none() {
            return Err(Misread::expected(value, &format!("a {}", Self::form())));
        }
        FromToml::read(value).map(Self)
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
