//! The OpenAPI documents: that each can be had and read, and how many of its operations are tools.

use super::finding::Finding;
use crate::config::OpenApiConfig;
use crate::tools::http;
use crate::tools::http::openapi::{OpenApiTools, fetch, tools};

/// Most operations of a document that are told of one by one.
const MOST_TOLD: usize = 10;

/// Looks at one document. No operation is called.
pub(super) async fn examine(config: &OpenApiConfig) -> Vec<Finding> {
    let area = format!("openapi.{}", config.name);
    let OpenApiTools { tools, skipped } = match read(config).await {
        Ok(made) => made,
        Err(error) => {
            return vec![
                Finding::fail(area, error).advice("Check its `document`: a server does not start without it."),
            ];
        }
    };
    let found = match tools.len() {
        0 => Finding::warn(area.clone(), "none of its operations is a tool").advice("Check `include` and `exclude`."),
        1 => Finding::ok(area.clone(), "1 operation is a tool"),
        count => Finding::ok(area.clone(), format!("{count} operations are tools")),
    };
    let mut findings = vec![found];
    for one in skipped.iter().take(MOST_TOLD) {
        findings.push(Finding::warn(area.clone(), format!("{} is no tool: {}", one.operation, one.reason)));
    }
    if let Some(more) = skipped.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        findings.push(Finding::warn(area, format!("{more} more operations are no tools")));
    }
    findings
}

async fn read(config: &OpenApiConfig) -> Result<OpenApiTools, String> {
    let mut config = config.clone();
    if let (Some(url), None) = (&config.url, &config.document) {
        config.document = Some(fetch(url).await?.into());
    }
    let client = http::client().map_err(|error| error.to_string())?;
    tools(&config, &client).map_err(|error| error.to_string())
}
