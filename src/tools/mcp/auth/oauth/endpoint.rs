//! Where tokens for a server are given: as the operator says, or as metadata do.

use http::header::WWW_AUTHENTICATE;
use serde::de::DeserializeOwned;
use url::Url;

use super::metadata::{IssuerMetadata, ResourceMetadata, Standing, is_same_issuer, named_in, of_issuer, of_resource};
use super::web::AuthWeb;
use crate::config::{ClientAuth, OAuthConfig};

/// In so many places metadata of a server may name another place to look at.
const MAX_PLACES: usize = 4;

/// Where tokens are given, and how they are asked for.
#[derive(Debug, Clone)]
pub(super) struct TokenEndpoint {
    pub(super) url: Url,
    /// Whether the secret of the client is sent in the body.
    pub(super) in_body: bool,
    /// What tokens are asked for.
    pub(super) resource: String,
}

/// Finds out where tokens for the server at `server` are given. The error is a clause.
pub(super) async fn find(config: &OAuthConfig, server: &Url, web: &AuthWeb) -> Result<TokenEndpoint, String> {
    let in_body = config.client_auth == ClientAuth::Post;
    if let Some(url) = &config.token_url {
        let resource = config.resource.clone().unwrap_or_else(|| name_of(server));
        return Ok(TokenEndpoint { url: url.clone(), in_body, resource });
    }
    let said = match (&config.issuer, &config.resource) {
        (Some(_), Some(_)) => None,
        _ => resource_metadata(server, web).await,
    };
    let issuer = issuer(config, server, said.as_ref())?;
    let of_server = || said.map_or_else(|| name_of(server), |said| said.resource);
    let resource = config.resource.clone().unwrap_or_else(of_server);
    let metadata = issuer_metadata(&issuer, web).await?;
    let url = metadata.token_endpoint.as_deref().and_then(|url| Url::parse(url).ok());
    let url = url.ok_or("the metadata of its authorization server name no place where tokens are given")?;
    let in_body = in_body || (config.client_auth == ClientAuth::Auto && metadata.wants_post());
    Ok(TokenEndpoint { url, in_body, resource })
}

/// What a server is called as a resource, where nothing else is said: its address, without what may be a secret.
fn name_of(server: &Url) -> String {
    let mut server = server.clone();
    server.set_query(None);
    server.into()
}

/// The authorization server that is sent the client's secret.
fn issuer(config: &OAuthConfig, server: &Url, said: Option<&ResourceMetadata>) -> Result<Url, String> {
    let listed = said.map(|said| said.authorization_servers.as_slice()).unwrap_or_default();
    if let Some(issuer) = &config.issuer {
        if !listed.is_empty() && !listed.iter().any(|listed| is_same_issuer(listed, issuer.as_str())) {
            return Err("its metadata name another authorization server than `issuer`".to_owned());
        }
        return Ok(issuer.clone());
    }
    let mut listed = listed.iter().filter_map(|issuer| Url::parse(issuer).ok());
    let Some(first) = listed.next() else {
        return Err("its metadata name no authorization server; write it as `issuer`".to_owned());
    };
    if first.origin() == server.origin() {
        return Ok(first);
    }
    let own = listed.find(|issuer| issuer.origin() == server.origin());
    own.ok_or_else(|| {
        let origin = first.origin().ascii_serialization();
        format!("its metadata name an authorization server elsewhere ({origin}): if its secret may go there, write it as `issuer`")
    })
}

/// What a server says of itself, if it says anything that counts.
async fn resource_metadata(server: &Url, web: &AuthWeb) -> Option<ResourceMetadata> {
    let challenged = match web.get(server).await {
        Ok(answer) if answer.status == 401 => {
            let said = answer.headers.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            said.and_then(named_in)
        }
        Ok(_) | Err(_) => None,
    };
    let mut places: Vec<Url> = challenged.into_iter().chain(of_resource(server)).collect();
    let mut next = 0;
    while let Some(place) = places.get(next).cloned() {
        next += 1;
        let Some(said) = json::<ResourceMetadata>(&place, web).await else { continue };
        let resource = &said.resource;
        match said.standing(server, &place) {
            Standing::Count => return Some(said),
            Standing::Confirm(own) if places.contains(&own) || next > MAX_PLACES => {}
            Standing::Confirm(own) => places.push(own),
            Standing::Foreign => {
                tracing::warn!(
                    host = server.host_str(),
                    resource,
                    "metadata are of another resource, and do not count"
                );
            }
        }
    }
    None
}

/// What an authorization server says of itself.
async fn issuer_metadata(issuer: &Url, web: &AuthWeb) -> Result<IssuerMetadata, String> {
    for place in of_issuer(issuer) {
        let Some(said) = json::<IssuerMetadata>(&place, web).await else { continue };
        if is_same_issuer(&said.issuer, issuer.as_str()) {
            return Ok(said);
        }
        return Err("the metadata of its authorization server are of another issuer".to_owned());
    }
    Err("its authorization server has no metadata that can be read; write its `token_url`".to_owned())
}

async fn json<T: DeserializeOwned>(place: &Url, web: &AuthWeb) -> Option<T> {
    let answer = web.get(place).await.ok().filter(|answer| answer.status == 200)?;
    serde_json::from_slice(&answer.body).ok()
}
