//! What servers say of where tokens are given, as pure decisions.

use serde::Deserialize;
use url::Url;

/// What a server says of itself (RFC 9728).
#[derive(Debug, Deserialize)]
pub(super) struct ResourceMetadata {
    /// What it is called as a resource.
    pub(super) resource: String,
    /// Whose tokens it takes.
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
}

impl ResourceMetadata {
    /// Whether these are metadata of this server: the resource is at the same origin, and the server's path is the resource's or
    /// below it.
    pub(super) fn are_of(&self, server: &Url) -> bool {
        let Ok(resource) = Url::parse(&self.resource) else { return false };
        let (above, path) = (resource.path().trim_end_matches('/'), server.path());
        let is_below = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        resource.origin() == server.origin() && is_below && resource.fragment().is_none()
    }
}

/// What an authorization server says of itself (RFC 8414).
#[derive(Debug, Deserialize)]
pub(super) struct IssuerMetadata {
    /// Its name, which must be the one that it was asked by.
    pub(super) issuer: String,
    /// Where it gives tokens.
    pub(super) token_endpoint: Option<String>,
    /// How a client may say who it is.
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl IssuerMetadata {
    /// Whether the secret of a client must be sent in the body.
    pub(super) fn wants_post(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_deref().unwrap_or_default();
        let takes = |method: &str| methods.iter().any(|known| known == method);
        takes("client_secret_post") && !takes("client_secret_basic")
    }
}

/// Whether two names of an authorization server are the same, but for a slash at the end.
pub(super) fn is_same_issuer(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Where the metadata of a server may be, in the order in which they are looked for.
pub(super) fn of_resource(server: &Url) -> Vec<Url> {
    let mut places = vec![well_known(server, "oauth-protected-resource")];
    let mut root = server.clone();
    root.set_path("/");
    let root = well_known(&root, "oauth-protected-resource");
    if !places.contains(&root) {
        places.push(root);
    }
    places
}

/// Where the metadata of an authorization server may be, in the order in which they are looked for.
pub(super) fn of_issuer(issuer: &Url) -> Vec<Url> {
    let mut places = vec![well_known(issuer, "oauth-authorization-server"), well_known(issuer, "openid-configuration")];
    if !issuer.path().trim_end_matches('/').is_empty() {
        let mut appended = bare(issuer);
        appended.set_path(&format!("{}/.well-known/openid-configuration", issuer.path().trim_end_matches('/')));
        places.push(appended);
    }
    places
}

/// The address of metadata, with the path of what they are of behind their own.
fn well_known(of: &Url, name: &str) -> Url {
    let mut url = bare(of);
    url.set_path(&format!("/.well-known/{name}{}", of.path().trim_end_matches('/')));
    url
}

fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The address of metadata that a refusal names in `WWW-Authenticate`.
pub(super) fn named_in(challenge: &str) -> Option<Url> {
    let (_, after) = challenge.split_once("resource_metadata=")?;
    let named = match after.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => after.split([',', ' ']).next()?,
    };
    Url::parse(named).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn texts(urls: Vec<Url>) -> Vec<String> {
        urls.into_iter().map(String::from).collect()
    }

    #[test]
    fn metadata_are_looked_for_where_the_standards_put_them() {
        assert_eq!(
            texts(of_resource(&url("https://a.test/mcp/x?key=1"))),
            [
                "https://a.test/.well-known/oauth-protected-resource/mcp/x",
                "https://a.test/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            texts(of_resource(&url("https://a.test/"))),
            ["https://a.test/.well-known/oauth-protected-resource"]
        );
        assert_eq!(
            texts(of_issuer(&url("https://a.test/tenant"))),
            [
                "https://a.test/.well-known/oauth-authorization-server/tenant",
                "https://a.test/.well-known/openid-configuration/tenant",
                "https://a.test/tenant/.well-known/openid-configuration"
            ]
        );
        assert_eq!(of_issuer(&url("https://a.test")).len(), 2);
    }

    #[test]
    fn metadata_count_only_for_what_they_are_of() {
        let of = |resource: &str| ResourceMetadata { resource: resource.into(), authorization_servers: Vec::new() };
        let server = url("https://a.test/mcp/x");
        for good in ["https://a.test", "https://a.test/mcp", "https://a.test/mcp/x", "https://a.test:443/mcp/x/"] {
            assert!(of(good).are_of(&server), "{good}");
        }
        for bad in ["http://a.test", "https://b.test/mcp/x", "https://a.test/mc", "https://a.test/mcp/x/y", "mcp", ""] {
            assert!(!of(bad).are_of(&server), "{bad}");
        }
    }

    #[test]
    fn a_refusal_names_metadata() {
        let named = |challenge: &str| named_in(challenge).map(String::from);
        let with = r#"Bearer realm="x", resource_metadata="https://a.test/meta", scope="y""#;
        assert_eq!(named(with).unwrap(), "https://a.test/meta");
        assert_eq!(named("Bearer resource_metadata=https://a.test/m, x=y").unwrap(), "https://a.test/m");
        assert_eq!(named("Bearer realm=\"x\""), None);
    }
}
