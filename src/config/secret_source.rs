//! Where secrets are read from: an environment variable or a file, never the configuration itself.

use std::path::Path;

use super::reader::Section;
use super::secret::Secret;

/// Reads the secret in a variable.
pub(super) fn from_env(section: &Section<'_>, variable: &str) -> Result<Secret, String> {
    section
        .env(variable)
        .map(Secret::new)
        .ok_or_else(|| format!("the environment variable {variable} is unset or empty"))
}

/// Reads the secret in a file, without the line break at its end.
pub(super) fn from_file(path: &str) -> Result<Secret, String> {
    let text = std::fs::read_to_string(Path::new(path)).map_err(|error| format!("{path} cannot be read: {error}"))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() { Err(format!("{path} is empty")) } else { Ok(Secret::new(secret)) }
}

/// Reports what is wrong with reading the key `name`.
pub(super) fn reported<T>(section: &Section<'_>, name: &str, result: Result<T, String>) -> Option<T> {
    result.map_err(|what| section.refuse(name, what)).ok()
}

/// Refuses what HTTP headers cannot carry.
pub(super) fn sendable(secret: Secret) -> Result<Secret, String> {
    match http::HeaderValue::from_str(secret.expose()) {
        Ok(_) => Ok(secret),
        Err(_) => Err("it holds characters that an HTTP header cannot carry".to_owned()),
    }
}
