//! Built-in tools that ask URLs which a model names. They are there only if the operator declares them.

mod fetch;
mod request;

use std::sync::Arc;

use self::fetch::WebFetch;
use self::request::HttpRequest;
use crate::config::BuiltinTools;
use crate::net::fetch::Fetcher;
use crate::tools::Tool;

/// A tool by its name, or why there can be none.
pub type Declared<E> = (&'static str, Result<Arc<dyn Tool>, E>);

/// Those that are declared; `fetcher` is asked for what they ask URLs with.
pub fn declared<E>(config: &BuiltinTools, mut fetcher: impl FnMut() -> Result<Fetcher, E>) -> Vec<Declared<E>> {
    let web_fetch = config.web_fetch.as_ref().map(|config| {
        let tool = fetcher().map(|fetcher| Arc::new(WebFetch::new(config, fetcher)) as Arc<dyn Tool>);
        ("web_fetch", tool)
    });
    let http_request = config.http_request.as_ref().map(|config| {
        let tool = fetcher().map(|fetcher| Arc::new(HttpRequest::new(config, fetcher)) as Arc<dyn Tool>);
        ("http_request", tool)
    });
    web_fetch.into_iter().chain(http_request).collect()
}
