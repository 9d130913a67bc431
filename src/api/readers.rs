//! How much memory readers take together for what they have read of logs and their clients have not taken yet.
//!
//! A reader that keeps up with its run shares what it reads with all others. One that is behind reads a page of the log
//! for itself, and holds it for as long as its client is slow. So it takes memory for that first. One caller gets half of
//! the memory at most: a caller that opens many streams and reads none of them delays its own readers alone.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::agent::follow::page_memory::PageMemory;
use crate::api::auth::CallerId;
use crate::api::error::ApiError;
use crate::api::pool::{Pool, Taken};
use crate::api::wire::error::ErrorCode;

/// What a reader takes for a page: what the store returns, and what is made of it.
const PAGE: u64 = 384 << 10;

/// What a reader takes for a trace before it is known how long the trace is: as much as the longest one needs.
const TRACE: u64 = 8 << 20;

/// How long a reader of a trace waits for that.
const TRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The memory that all readers share.
#[derive(Debug, Clone)]
pub struct ReaderMemory(Arc<Pool>);

/// What the reader of a request may take of it; nothing is counted where no memory is set.
#[derive(Debug, Default)]
pub struct ReaderShare(pub(super) Option<PageMemory>);

/// Where the reader of a trace takes memory; nothing is counted where no memory is set.
#[derive(Debug)]
pub struct TraceMemory(Option<(Arc<Pool>, CallerId)>);

impl TraceMemory {
    /// Takes memory for the longest trace, or all that a caller gets if that is less.
    pub(super) async fn take(self) -> Result<Option<Taken>, ApiError> {
        let Some((pool, caller)) = self.0 else { return Ok(None) };
        let taken = pool.take(&caller, TRACE, TRACE_TIMEOUT).await;
        let full = "the server is reading as many traces and logs as it has memory for; try again in a moment";
        taken.map(Some).map_err(|_| ApiError::new(ErrorCode::Overloaded, full).retry_after(1))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TraceMemory {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<CallerId>().cloned().unwrap_or_default();
        Ok(Self(parts.extensions.get().map(|ReaderMemory(pool)| (pool.clone(), caller))))
    }
}

impl ReaderMemory {
    /// So many bytes, but one page at least.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(Pool::new(bytes.max(PAGE), PAGE)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ReaderShare {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Some(ReaderMemory(pool)) = parts.extensions.get() else { return Ok(Self::default()) };
        let caller = parts.extensions.get::<CallerId>().cloned().unwrap_or_default();
        let (places, units) = pool.places(&caller, PAGE);
        Ok(Self(Some(PageMemory::new(places, units))))
    }
}
