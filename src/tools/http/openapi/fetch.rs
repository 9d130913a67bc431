//! Asks the operator's URL for a document.

use std::time::Duration;

use ::http::{Request, Uri};
use bytes::Bytes;
use tokio::time::timeout;
use url::Url;

use super::document::MAX_DOCUMENT;
use crate::net::client::{HttpClient, Proxies, Reach, common_headers};

/// Most time for it. Not a setting: a server waits for it before it listens.
const MOST_TIME: Duration = Duration::from_secs(30);

/// The document at a URL. The error is a sentence without the URL, whose query may hold a key.
pub async fn fetch(url: &Url) -> Result<String, String> {
    let fetched = timeout(MOST_TIME, ask(url)).await;
    fetched.unwrap_or_else(|_| Err(format!("its document did not come within {} s", MOST_TIME.as_secs())))
}

async fn ask(url: &Url) -> Result<String, String> {
    let unusable = |what: &dyn std::fmt::Display| format!("its document cannot be fetched: {what}");
    let reach = Reach { proxies: Proxies::Environment, ..Reach::default() };
    let client = HttpClient::new(&reach).map_err(|error| unusable(&error))?;
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = Uri::try_from(url.as_str()).map_err(|error| unusable(&error))?;
    *request.headers_mut() = common_headers();
    let response = client.send(request).await.map_err(|error| unusable(&error))?;
    if !response.status.is_success() {
        return Err(unusable(&format_args!("the server answered HTTP {}", response.status)));
    }
    if let Some(encoding) = response.headers.get("content-encoding").filter(|encoding| *encoding != "identity") {
        return Err(unusable(&format_args!("it is compressed ({encoding:?}), which was not asked for")));
    }
    let mut body = response.body;
    let mut document = Vec::new();
    while let Some(chunk) = body.chunk().await.map_err(|error| unusable(&error))? {
        if document.len() + chunk.len() > MAX_DOCUMENT {
            return Err(unusable(&format_args!("it is longer than {MAX_DOCUMENT} bytes")));
        }
        document.extend_from_slice(&chunk);
    }
    String::from_utf8(document).map_err(|_| unusable(&"it is no text"))
}
