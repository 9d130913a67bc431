//! What servers say of where tokens are given, as pure decisions.

use serde::Deserialize;
use url::Url;

/// What metadata of a resource are called.
const RESOURCE: &str = "oauth-protected-resource";

/// What a server says of itself (RFC 9728).
#[derive(Debug, Deserialize)]
pub(super) struct ResourceMetadata {
    /// What it is called as a resource.
    pub(super) resource: String,
    /// Whose tokens it takes.
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
}

/// Whether metadata count for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// They are its own, or those of a resource that it lies in, and stand where that resource has them.
    Count,
    /// They are of a resource that it lies in, which may say so itself in this place.
    Confirm(Url),
    /// They are of something else.
    Foreign,
}

impl ResourceMetadata {
    /// Whether these metadata, read at `place`, count for this server.
    ///
    /// RFC 9728 wants the resource to be the server. Many servers call themselves by their host, or by a path above their own:
    /// that counts if it is said at the place that belongs to the resource, or to what lies above it. A server that shares its
    /// host could else have tokens that all others there take.
    pub(super) fn standing(&self, server: &Url, place: &Url) -> Standing {
        let Ok(resource) = Url::parse(&self.resource) else { return Standing::Foreign };
        if resource.origin() != server.origin() || resource.fragment().is_some() || !is_below(server, &resource) {
            return Standing::Foreign;
        }
        if is_below(&resource, server) {
            return Standing::Count;
        }
        let own = well_known(&resource, RESOURCE);
        let above = std::iter::successors(Some(own.clone()), |place| {
            let (above, _) = place.path().rsplit_once('/').filter(|_| place.path() != root_of(&own).path())?;
            let mut place = place.clone();
            place.set_path(above);
            Some(place)
        });
        if above.into_iter().any(|above| above == *place) { Standing::Count } else { Standing::Confirm(own) }
    }
}

/// Where metadata of a host stand.
fn root_of(place: &Url) -> Url {
    let mut host = place.clone();
    host.set_path("/");
    well_known(&host, RESOURCE)
}

/// Whether the path of one is that of the other, or below it.
fn is_below(one: &Url, other: &Url) -> bool {
    let rest = one.path().trim_end_matches('/').strip_prefix(other.path().trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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
    let mut places = vec![well_known(server, RESOURCE)];
    let mut root = server.clone();
    root.set_path("/");
    let root = well_known(&root, RESOURCE);
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
        let of = |resource: &str, place: &str| {
            let said = ResourceMetadata { resource: resource.into(), authorization_servers: Vec::new() };
            said.standing(&url("https://a.test/mcp/x"), &url(place))
        };
        let known = "https://a.test/.well-known/oauth-protected-resource";
        let anywhere = "https://b.test/meta";
        for exact in ["https://a.test/mcp/x", "https://a.test:443/mcp/x/"] {
            assert_eq!(of(exact, anywhere), Standing::Count, "{exact}");
        }
        for (resource, path) in [("https://a.test", ""), ("https://a.test/mcp", ""), ("https://a.test/mcp", "/mcp")] {
            assert_eq!(of(resource, &format!("{known}{path}")), Standing::Count, "{resource} at {path:?}");
        }
        for (resource, place, own) in [
            ("https://a.test", format!("{known}/mcp/x"), known.to_owned()),
            ("https://a.test/", format!("{known}/mcp"), known.to_owned()),
            ("https://a.test/mcp", format!("{known}/mcp/x"), format!("{known}/mcp")),
            ("https://a.test", "https://a.test/mcp/x/meta".to_owned(), known.to_owned()),
            ("https://a.test/mcp", anywhere.to_owned(), format!("{known}/mcp")),
        ] {
            assert_eq!(of(resource, &place), Standing::Confirm(url(&own)), "{resource} at {place}");
        }
        for bad in ["http://a.test", "https://b.test/mcp/x", "https://a.test/mc", "https://a.test/mcp/x/y", "mcp", ""] {
            assert_eq!(of(bad, known), Standing::Foreign, "{bad}");
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
