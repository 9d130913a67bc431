//! A request to an upstream before it is known to which of the upstream's addresses it goes, and with which key.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Uri};
use url::Url;

use super::pools::{Choice, Pools};
use crate::llm::pairing::Pairing;

/// Where requests of one kind go: a URI for each address of the upstream, in their order.
#[derive(Debug, Clone)]
pub struct Uris {
    first: Uri,
    others: Arc<[Uri]>,
}

impl Uris {
    /// The URIs that `uri` makes of these base URLs, of which there is one at least.
    pub fn of<E>(bases: &[Url], uri: impl Fn(&Url) -> Result<Uri, E>) -> Result<Self, E> {
        let others = match bases {
            [_] => Arc::default(),
            bases => bases[1..].iter().map(&uri).collect::<Result<_, _>>()?,
        };
        Ok(Self { first: uri(&bases[0])?, others })
    }

    /// What `change` makes of these URIs, if it can do so of all.
    pub(super) fn with(&self, change: impl Fn(&Uri) -> Option<Uri>) -> Option<Self> {
        let others = if self.others.is_empty() {
            Arc::default()
        } else {
            self.others.iter().map(&change).collect::<Option<_>>()?
        };
        Some(Self { first: change(&self.first)?, others })
    }
}

/// A request that can be sent to any of an upstream's addresses.
#[derive(Debug)]
pub struct Call {
    /// As it is sent to the first address, without a key if there are several.
    request: Request<Bytes>,
    others: Arc<[Uri]>,
    /// The same number for calls that begin alike.
    pub(super) affinity: u64,
    /// A number of the model.
    pub(super) model: u64,
    /// Whether another call of the same request is made at the same time.
    pub(super) pairing: Pairing,
}

impl Call {
    /// A call of this model. What is sent to the first of these URIs is `request`, which has no URI yet.
    pub(super) fn new(uris: Uris, mut request: Request<Bytes>, affinity: u64, model: u64) -> Self {
        *request.uri_mut() = uris.first;
        Self { request, others: uris.others, affinity, model, pairing: Pairing::Alone }
    }

    /// The same as one of two calls.
    pub(super) fn paired(self, pairing: Pairing) -> Self {
        Self { pairing, ..self }
    }

    /// The request, at an upstream with one address and one key at most.
    pub(super) fn into_request(self) -> Request<Bytes> {
        self.request
    }

    /// The request as it is sent to this address with this key.
    pub(super) fn request(&self, pools: &Pools, choice: Choice) -> Request<Bytes> {
        let mut request = self.request.clone();
        if let Some(other) = choice.address.checked_sub(1).and_then(|other| self.others.get(other)) {
            *request.uri_mut() = other.clone();
        }
        pools.add_key(choice, request.headers_mut());
        request
    }
}
