//! The upstreams: that they answer, accept the key, and have the models that are named. Only their lists of models are
//! asked for, so no tokens are spent.

use futures_util::future::join_all;

use super::finding::Finding;
use crate::config::{HttpUpstream, Settings, Upstream};
use crate::llm::ModelError;
use crate::llm::connect::connect;
use crate::llm::http::reach;
use crate::llm::http::upstream::UpstreamError;
use crate::llm::offered::OfferedModel;
use crate::net::client::{CannotConnect, HttpClient};

/// Asks all upstreams at the same time.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let asked = settings.upstreams.iter().map(|upstream| async {
        match upstream.kind.http() {
            None => vec![Finding::ok(area(&upstream.name), "the built-in demo model")],
            Some(http) => ask(settings, upstream, http).await,
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn area(upstream: &str) -> String {
    format!("upstreams.{upstream}")
}

/// Why an upstream cannot be asked.
#[derive(Debug, thiserror::Error)]
enum Unreachable {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Client(#[from] CannotConnect),
}

/// Asks each address of an upstream with its first key, and the first address with each other key.
async fn ask(settings: &Settings, upstream: &Upstream, http: &HttpUpstream) -> Vec<Finding> {
    let addresses = (0..http.base_urls.len()).map(|address| (address, 0));
    let keys = (1..http.api_keys.len()).map(|key| (0, key));
    let asked = addresses.chain(keys).map(|(address, key)| async move {
        let narrowed = upstream.narrowed(address, key);
        let http = narrowed.kind.http()?;
        Some(ask_at(settings, &narrowed, http).await.into_iter().map(move |finding| (address, key, finding)))
    });
    let found = join_all(asked).await.into_iter().flatten().flatten();
    found.map(|(address, key, finding)| finding.about(&place(http, address, key))).collect()
}

/// Which address and key a finding is about, where there are several.
fn place(http: &HttpUpstream, address: usize, key: usize) -> String {
    let (keys, urls) = (http.api_keys.len(), &http.base_urls);
    let address = (urls.len() > 1).then(|| format!("{}: ", urls[address].url));
    let key = (keys > 1).then(|| format!("key {} of {keys}: ", key + 1));
    address.unwrap_or_default() + &key.unwrap_or_default()
}

/// Asks an upstream that has one address, and one key at most.
async fn ask_at(settings: &Settings, upstream: &Upstream, http: &HttpUpstream) -> Vec<Finding> {
    match list_at(upstream, http).await {
        Ok(models) => known(settings, &upstream.name, http, &models),
        Err(finding) => vec![finding],
    }
}

/// The models that an upstream lists at the first address, and with the first key, that are taken; or why it does not.
pub(in crate::cli) async fn list(upstream: &Upstream, http: &HttpUpstream) -> Result<Vec<OfferedModel>, Finding> {
    let mut why = None;
    for address in 0..http.base_urls.len() {
        for key in 0..http.api_keys.len().max(1) {
            let narrowed = upstream.narrowed(address, key);
            let Some(http) = narrowed.kind.http() else { continue };
            match list_at(&narrowed, http).await {
                Ok(models) => return Ok(models),
                Err(finding) => why = why.or(Some(finding)),
            }
        }
    }
    Err(why.unwrap_or_else(|| Finding::fail(area(&upstream.name), "it has no address")))
}

async fn list_at(upstream: &Upstream, http: &HttpUpstream) -> Result<Vec<OfferedModel>, Finding> {
    let name = &upstream.name;
    let model = connect::<Unreachable>(upstream, || Ok(HttpClient::new(&reach(http))?.into()));
    let model = model.map_err(|error| Finding::fail(area(name), error.to_string()))?;
    model.list_models().await.map_err(|error| refused(name, http, error))
}

/// What an upstream's error means.
fn refused(name: &str, http: &HttpUpstream, ModelError { message, status, .. }: ModelError) -> Finding {
    let finding =
        |level: fn(String, String) -> Finding, advice: String| level(area(name), message.clone()).advice(advice);
    match status {
        Some(401 | 403) if http.api_keys.is_empty() => {
            finding(Finding::fail, "It wants a key: name it with api_key_env or api_key_file.".to_owned())
        }
        Some(401 | 403) => {
            finding(Finding::fail, "Its key is not accepted: check what api_key_env or api_key_file names.".to_owned())
        }
        Some(404 | 405 | 501) => finding(
            Finding::warn,
            format!(
                "It lists no models at {}/models. If it has none of this API, base_url is wrong; else declare `models`.",
                http.base_url().as_str().trim_end_matches('/')
            ),
        ),
        Some(407) => finding(
            Finding::fail,
            "Its proxy wants a login: name one with proxy_login_env or proxy_login_file.".to_owned(),
        ),
        Some(_) => finding(Finding::warn, "It answers, and not as it should. Try again later.".to_owned()),
        None => finding(
            Finding::fail,
            "Check base_url and the network; proxies, named in `proxy`, HTTPS_PROXY or HTTP_PROXY; and certificates, named in \
             ca_file and client_cert_file."
                .to_owned(),
        ),
    }
}

/// Whether the upstream has the models that the configuration names.
fn known(settings: &Settings, name: &str, http: &HttpUpstream, models: &[OfferedModel]) -> Vec<Finding> {
    let key = if http.api_keys.is_empty() { "" } else { ", and accepts the key" };
    let mut findings = vec![Finding::ok(area(name), format!("answers{key}; it lists {} models", models.len()))];
    let lacks = |model: &str| !models.iter().any(|known| known.name == model);
    for model in http.models.iter().flatten().filter(|model| lacks(model)) {
        let advice = "Runs with it fail, unless the upstream has models that it does not list.";
        findings.push(Finding::warn(area(name), format!("does not list the model {model} of `models`")).advice(advice));
    }
    for agent in settings.agents.values() {
        let Some(model) = agent.model.as_deref().and_then(|model| model.strip_prefix(name)?.strip_prefix('/')) else {
            continue;
        };
        if lacks(model) {
            let message = format!("does not list the model {model} of agents.{}", agent.name);
            let advice = "Its runs fail, unless the upstream has models that it does not list.";
            findings.push(Finding::warn(area(name), message).advice(advice));
        }
    }
    findings
}
