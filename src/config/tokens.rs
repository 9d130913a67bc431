//! `[tokens]`: what tokens for pages are signed with.

use super::reader::Section;
use super::secret::Secret;
use super::secret_source;

/// The fewest characters of a secret.
const LEAST_SECRET: usize = 32;

/// What tokens are signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensConfig {
    /// New tokens are signed with this.
    pub secret: Secret,
    /// Tokens that are signed with this are valid, too.
    pub previous: Option<Secret>,
}

impl TokensConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let variable: Option<String> = section.optional(
            "secret_env",
            "Environment variable that holds the secret which [tokens](browsers.md#tokens) are signed with: at least 32 characters, the same \
             at all replicas.",
        );
        let file: Option<String> = section.optional("secret_file", "File that holds the secret.");
        let previous_variable: Option<String> = section.optional(
            "previous_secret_env",
            "Environment variable that holds the secret before: tokens that are signed with it stay valid.",
        );
        let previous_file: Option<String> =
            section.optional("previous_secret_file", "File that holds the secret before.");
        if variable.is_none()
            && file.is_none()
            && !section.is_written("secret_env")
            && !section.is_written("secret_file")
        {
            section.refuse_here("needs secret_env or secret_file");
        }
        let previous =
            read_secret(section, ("previous_secret_env", previous_variable), ("previous_secret_file", previous_file));
        let secret = read_secret(section, ("secret_env", variable), ("secret_file", file))?;
        Some(Self { secret, previous })
    }
}

/// The secret in a variable or in a file.
fn read_secret(
    section: &Section<'_>,
    (env, variable): (&'static str, Option<String>),
    (from_file, file): (&'static str, Option<String>),
) -> Option<Secret> {
    let (name, read) = match (variable, file) {
        (Some(_), Some(_)) => {
            section.refuse(from_file, format!("give {env} or {from_file}, not both"));
            return None;
        }
        (Some(variable), None) => (env, secret_source::from_env(section, &variable)),
        (None, Some(file)) => (from_file, secret_source::from_file(&file)),
        (None, None) => return None,
    };
    let long_enough = read.and_then(|secret| {
        let is_long = secret.expose().chars().count() >= LEAST_SECRET;
        is_long.then_some(secret).ok_or_else(|| {
            format!("a secret needs at least {LEAST_SECRET} characters; `openssl rand -hex 32` makes one")
        })
    });
    let secret = secret_source::reported(section, name, long_enough)?;
    section.record_secret(name, secret.expose());
    Some(secret)
}
