//! For tests: what the dialects have in common.

use std::sync::Arc;
use std::time::Duration;

use super::health::breaker::BreakerPolicy;
use super::health::{Health, UpstreamHealth};
use super::http::decode::{Decode, Progress};
use super::http::fault::Fault;
use super::{Delta, ModelTurn};
use crate::config::{BaseUrl, ConnectionSettings, HttpUpstream, Pools, Secret};

/// An upstream with this key, which has so much time for everything.
pub(crate) fn http_upstream(base_url: &str, key: &str, patience: Duration) -> HttpUpstream {
    HttpUpstream {
        base_urls: vec![BaseUrl::new(base_url.parse().unwrap())],
        api_keys: vec![Secret::new(key)],
        headers: Vec::new(),
        query: Vec::new(),
        connection: ConnectionSettings::default(),
        pools: Pools::default(),
        models: None,
        connect_timeout: patience,
        first_byte_timeout: patience,
        idle_timeout: patience,
        free: None,
        allow_uncounted_cost: false,
    }
}

/// The health of an upstream whose breakers never open.
pub(crate) fn always_asked() -> Arc<UpstreamHealth> {
    Health::default().of_upstream("u", "", BreakerPolicy::OFF)
}

/// What comes of a stream that arrives in these pieces.
pub(crate) fn decode<'c>(
    mut decoder: impl Decode,
    pieces: impl IntoIterator<Item = &'c [u8]>,
) -> (Vec<Delta>, Result<ModelTurn, Fault>) {
    let mut deltas = Vec::new();
    for piece in pieces {
        match decoder.feed(piece, &mut deltas) {
            Ok(Progress::Done) => break,
            Ok(Progress::Spoke | Progress::Silent) => {}
            Err(fault) => return (deltas, Err(fault)),
        }
    }
    (deltas, decoder.finish())
}

/// Fails if one of these streams, each with its name and its turn, means something else where it is cut into pieces.
pub(crate) fn means_the_same_wherever_it_is_cut<D: Decode>(
    new: impl Fn() -> D,
    recorded: impl IntoIterator<Item = (&'static str, String, ModelTurn)>,
) {
    for (name, stream, expected) in recorded {
        let bytes = stream.as_bytes();
        for cut in 0..=bytes.len() {
            let (before, after) = bytes.split_at(cut);
            assert_eq!(decode(new(), [before, after]).1.as_ref(), Ok(&expected), "{name} cut at {cut}");
        }
        let (deltas, turn) = decode(new(), bytes.chunks(1));
        assert_eq!(turn.as_ref(), Ok(&expected), "{name} byte by byte");
        let texts =
            deltas.iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(text.as_str()) } else { None });
        assert_eq!(texts.collect::<String>(), expected.text(), "{name}");
    }
}
