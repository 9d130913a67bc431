//! Values that are sent to other servers with every request, such as those of headers: a string in the file, or a secret that
//! the file names.

use super::reader::Section;
use super::secret::Secret;
use super::secret_source;

/// The shortest string in the file that is treated as a secret, in bytes. Shorter ones stand in many words.
const SHORTEST_SECRET: usize = 8;

/// A value that is sent to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentValue {
    /// All of it.
    pub whole: Secret,
    /// The part of it that no log and no error tells, if there is one.
    pub secret: Option<Secret>,
}

impl SentValue {
    /// A string in the file. It should hold no secret, and might.
    fn written(text: &str) -> Self {
        // What comes before is the name of a scheme: `Bearer`.
        let secret = text.split_once(' ').map_or(text, |(_, after)| after);
        let secret = (secret.len() >= SHORTEST_SECRET).then(|| Secret::new(secret));
        Self { whole: Secret::new(text), secret }
    }
}

/// Reads a value that the file holds as `text`, or else a table that names the secret to send after `prefix`. Reports what is
/// wrong with it.
pub(super) fn read(prefix: &str, text: Option<&str>, section: &mut Section<'_>) -> Option<SentValue> {
    let env: Option<String> = section.optional("env", "Environment variable that holds the secret.");
    let file: Option<String> = section.optional("file", "File that holds the secret.");
    let secret = match (text, env, file) {
        (Some(text), _, _) => return Some(SentValue::written(text)),
        (None, Some(variable), None) => secret_source::from_env(section, &variable),
        (None, None, Some(path)) => secret_source::from_file(&path),
        _ => Err("give a string, or a table with either env or file".to_owned()),
    };
    let secret = secret.map_err(|what| section.refuse_here(what)).ok()?;
    Some(SentValue { whole: Secret::new(format!("{prefix}{}", secret.expose())), secret: Some(secret) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_holds_is_secret_where_it_may_be_one() {
        for (text, secret) in [
            ("Bearer sk-12345", Some("sk-12345")),
            ("my-project", Some("my-project")),
            ("north", None),
            ("Basic YQ==", None),
        ] {
            let value = SentValue::written(text);
            assert_eq!((value.whole.expose(), value.secret.as_ref().map(Secret::expose)), (text, secret));
        }
    }
}
