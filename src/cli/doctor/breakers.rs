//! The models that a running server leaves alone, as its metrics say.

use std::time::Duration;

use http::Method;
use tokio::time::timeout;

use super::finding::Finding;
use crate::cli::client::{Client, local_url};
use crate::cli::process::env;
use crate::cli::top::metrics::Sample;
use crate::config::Settings;

/// How long the server may take. Not a setting: what it says is only of use at once.
const MOST_TIME: Duration = Duration::from_secs(3);

/// What a running server says of the models that it leaves alone; nothing if no server here answers, or tells no one.
pub(super) async fn check(settings: &Settings) -> Vec<Finding> {
    let url = local_url(settings.metrics.listen.unwrap_or(settings.server.listen));
    let Ok(client) = Client::new(&url, env("LOOPGATE_KEY")) else { return Vec::new() };
    let request = client.request(Method::GET, &["metrics"], &[]);
    let Ok(Ok(response)) = timeout(MOST_TIME, client.send(request)).await else { return Vec::new() };
    let Ok(page) = response.text().await else { return Vec::new() };
    page.lines().filter_map(Sample::read).filter_map(|sample| open(&sample, &url)).collect()
}

fn open(sample: &Sample<'_>, url: &str) -> Option<Finding> {
    let is_open = sample.name == "loopgate_model_breaker"
        && sample.value > 0.0
        && sample.label("state").is_some_and(|state| state != "closed");
    let (upstream, model) = (sample.label("upstream")?, sample.label("model")?);
    is_open.then(|| {
        let message = format!("the server at {url} leaves the model {model} alone, because calls of it failed");
        let advice = "Its log says how they failed. It asks again by itself, one call at a time.";
        Finding::warn(format!("upstreams.{upstream}"), message).advice(advice)
    })
}
