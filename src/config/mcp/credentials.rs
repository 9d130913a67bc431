//! `[mcp.NAME.credentials]`: what a server is shown of the tenant or user for whom it is called.

use std::fmt;
use std::path::PathBuf;

use http::HeaderName;
use http::header::AUTHORIZATION;
use toml::Spanned;
use toml::de::DeValue;

use super::header::Header;
use crate::config::reader::Section;
use crate::config::secret::Secret;
use crate::config::secret_source;
use crate::config::value::{FromToml, Misread, text};
use crate::config::values::Recorded;
use crate::types::Tenant;

/// What stands in the name of a file for the tenant, and what for the user.
const TENANT: &str = "{tenant}";
const USER: &str = "{user}";

/// Longest name of a file that the name of a tenant or user becomes.
const MAX_NAME: usize = 200;

/// Credentials of each tenant, or of each user of a tenant.
#[derive(Clone, PartialEq)]
pub struct CallerCredentials {
    /// Where they lie.
    pub file: Option<CredentialFile>,
    /// Those of tenants that are named here, which go before files.
    pub tenants: Vec<(Tenant, Secret)>,
    /// In which header they are sent.
    pub header: HeaderName,
    /// What comes before them there.
    pub prefix: String,
    /// Whether calls fail for those that have none.
    pub required: bool,
}

impl fmt::Debug for CallerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenants: Vec<_> = self.tenants.iter().map(|(tenant, _)| tenant).collect();
        let Self { file, header, required, .. } = self;
        let mut shown = f.debug_struct("CallerCredentials");
        shown.field("file", file).field("tenants", &tenants).field("header", header).field("required", required);
        shown.finish_non_exhaustive()
    }
}

impl CallerCredentials {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let file: Option<CredentialFile> = section.optional(
            "file",
            "File that holds the secret of a tenant or user: `{tenant}` stands for the tenant of the API key, and `{user}` for the \
             `user` of the request, each percent-encoded where it has other characters than `A-Z a-z 0-9 . _ -`. It is read \
             again for each call.",
        );
        let tenants = section.named("tenants", None, read_tenant);
        let header = section.key("header", "Header in which the secret is sent.", Header(AUTHORIZATION));
        let prefix = section.key("prefix", "Text before the secret.", "Bearer ".to_owned());
        let required = section.key(
            "required",
            "Whether calls fail for a tenant or user that has no secret. Otherwise the server sees its `headers` or `oauth` alone.",
            true,
        );
        if section.is_described() {
            return None;
        }
        if file.is_none() && tenants.is_empty() && !section.is_written("file") {
            section.refuse_here("give `file`, in which `{tenant}` stands for the tenant, or a table `tenants`");
        }
        Some(Self { file, tenants, header: header.0, prefix, required })
    }
}

fn read_tenant(name: &str, section: &mut Section<'_>) -> Option<(Tenant, Secret)> {
    let env: Option<String> = section.optional("env", "Environment variable that holds the secret of the tenant.");
    let file: Option<String> = section.optional("file", "File that holds it.");
    if section.is_described() {
        return None;
    }
    let tenant = Tenant::parse(name);
    if tenant.is_none() {
        section.refuse_here("a tenant has 1 to 128 characters of A-Z a-z 0-9 . _ : - and is not only dots");
    }
    let secret = match (env, file) {
        (Some(variable), None) => secret_source::from_env(section, &variable),
        (None, Some(path)) => secret_source::from_file(&path),
        _ => Err("give either env or file".to_owned()),
    };
    let secret = secret.and_then(secret_source::sendable).map_err(|what| section.refuse_here(what)).ok()?;
    section.record_here(Recorded::hidden(secret.expose()));
    Some((tenant?, secret))
}

/// The name of a file with places for the tenant and the user. Each stands in a part of the path of its own, so that no two
/// callers have the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialFile(String);

impl CredentialFile {
    /// Reads a template.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let count = |place: &str| text.matches(place).count();
        if count(TENANT) != 1 {
            return Err("must have {tenant} in it, once: users of two tenants may have the same name");
        }
        if count(USER) > 1 || text.matches(['{', '}']).count() > 2 * (1 + count(USER)) {
            return Err("must have no braces but {tenant} and {user}, each once");
        }
        if text.split('/').any(|part| part.contains(TENANT) && part.contains(USER)) {
            return Err("must have a `/` between {tenant} and {user}, as a name may hold any other character");
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether each user has a file.
    #[must_use]
    pub fn is_of_users(&self) -> bool {
        self.0.contains(USER)
    }

    /// The file of a caller. There is none for a name that is too long for one, or where each user has a file and none is named.
    #[must_use]
    pub fn of(&self, tenant: &str, user: Option<&str>) -> Option<PathBuf> {
        let path = self.0.replace(TENANT, &file_name(tenant)?);
        if !self.is_of_users() {
            return Some(path.into());
        }
        // The name of a tenant has no braces any more.
        Some(path.replace(USER, &file_name(user?)?).into())
    }
}

/// A name as part of a path: percent-encoded, so that it leads to no other directory.
fn file_name(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_hidden = name.starts_with('.');
    let encode = |(at, byte): (usize, u8)| {
        if plain(byte) && !(at == 0 && is_hidden) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    let encoded: String = name.bytes().enumerate().map(encode).collect();
    (!encoded.is_empty() && encoded.len() <= MAX_NAME).then_some(encoded)
}

impl FromToml for CredentialFile {
    fn form() -> String {
        "path with `{tenant}`, and perhaps `{user}`".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        Self::parse(text(value, "a path such as \"/run/secrets/tickets/{tenant}\"")?)
            .map_err(|what| Misread::new(value, what))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(template: &str, tenant: &str, user: Option<&str>) -> Option<String> {
        Some(CredentialFile::parse(template).unwrap().of(tenant, user)?.display().to_string())
    }

    #[test]
    fn each_caller_has_a_file_in_the_directory_of_its_tenant() {
        assert_eq!(path("/s/{tenant}", "acme:eu", None).unwrap(), "/s/acme%3Aeu");
        assert_eq!(path("/s/{tenant}/{user}.txt", "acme", Some("a.b@x")).unwrap(), "/s/acme/a.b%40x.txt");
        for user in ["..", "../other/alice", ".", "/etc/passwd", ".hidden"] {
            let file = path("/s/{tenant}/{user}", "acme", Some(user)).unwrap();
            assert_eq!(file.matches('/').count(), 3, "{file}");
            assert!(!file.contains("/."), "{file}");
        }
        assert_eq!(path("/s/{tenant}/{user}", "acme", None), None);
        assert_eq!(path("/s/{tenant}/{user}", "acme", Some("")), None);
        assert_eq!(path("/s/{tenant}/{user}", "acme", Some(&"é".repeat(100))), None);
        assert_eq!(path("/s/{tenant}/{user}", "a", Some("{user}{tenant}")).unwrap(), "/s/a/%7Buser%7D%7Btenant%7D");
    }

    #[test]
    fn a_template_names_the_tenant_and_keeps_the_user_apart() {
        for bad in ["/s/x", "/s/{user}", "/s/{tenant}.{user}", "/s/{tenant}/{tenant}", "/s/{tenant}/{key}", ""] {
            CredentialFile::parse(bad).expect_err(bad);
        }
    }

    proptest! {
        #[test]
        fn no_two_callers_share_a_file(a in ("[a-c./%]{1,4}", "[a-c./%é]{1,4}"), b in ("[a-c./%]{1,4}", "[a-c./%é]{1,4}")) {
            let file = |(tenant, user): &(String, String)| path("{tenant}/x/{user}", tenant, Some(user));
            prop_assert_eq!(a == b, file(&a) == file(&b));
        }
    }
}
