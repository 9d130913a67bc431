//! For tests: what the dialects have in common.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use super::health::breaker::BreakerPolicy;
use super::health::{Health, UpstreamHealth};
use super::http::decode::{Decode, Progress};
use super::http::fault::Fault;
use super::pairing::Pairing;
use super::{Delta, DeltaStream, ModelError, ModelRequest, ModelTurn};
use crate::config::{BaseUrl, ConnectionSettings, HttpUpstream, Pools, Secret};
use crate::net::testing::Act;
use crate::types::offer::{ToolChoice, ToolOffer};
use crate::types::{Message, Role, Tenant, TraceContext};

/// A time that must not be reached.
const LONG: Duration = Duration::from_secs(20);

/// A request with these messages, which asks for nothing else.
pub(crate) fn request(model: &str, messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    ModelRequest {
        model: model.to_owned(),
        conversation: messages.into_iter().collect(),
        tools: ToolOffer::default(),
        tool_choice: ToolChoice::Auto,
        sampling: Arc::default(),
        max_tokens: None,
        parallel_tool_calls: true,
        in_one_piece: false,
        has_fallback: false,
        is_repeat: false,
        pairing: Pairing::Alone,
        trace: None,
        request_id: None,
        tenant: Tenant::default_tenant(),
        affinity: 0,
        deadline: Instant::now() + LONG,
    }
}

/// A request of one message, which has an id and belongs to a trace.
pub(crate) fn traced_request(model: &str) -> ModelRequest {
    ModelRequest {
        trace: TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        request_id: Some("req-7".to_owned()),
        ..request(model, [Message::text(Role::User, "hi")])
    }
}

/// How a call ends.
pub(crate) async fn finish(mut stream: DeltaStream) -> Result<ModelTurn, ModelError> {
    loop {
        match stream.next().await.expect("a stream ends with a turn or an error") {
            Ok(Delta::Finished(turn)) => return Ok(*turn),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A response with these headers, and its length.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Act {
    let length = body.len();
    Act::from(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

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
