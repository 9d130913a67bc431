//! A collector of traces, as it is reached by OpenTelemetry's protocol over HTTP or gRPC.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, TE};
use http::{Method, Request, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;

use crate::config::{OtlpProtocol, TracesConfig};
use crate::net::client::{CannotConnect, HttpClient, Proxies, Reach, Response, common_headers};

/// What gRPC calls the procedure.
const PROCEDURE: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Most bytes of an answer that are read. What a collector answers has some dozens.
const MOST_ANSWERED: usize = 64 << 10;

/// A collector of traces.
#[derive(Debug)]
pub struct Collector {
    client: HttpClient,
    uri: Uri,
    protocol: OtlpProtocol,
    headers: HeaderMap,
    timeout: Duration,
}

/// Why a batch was not taken.
#[derive(Debug)]
pub(super) struct SendError {
    /// What happened, in a sentence without a secret.
    pub(super) why: String,
    /// How long to wait at least before it is sent again; `None` if that would not help.
    pub(super) after: Option<Duration>,
    /// Whether less may be taken.
    pub(super) is_too_much: bool,
}

/// What became of a batch that was taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// How many of its spans were not.
    pub(super) rejected: u64,
    /// What the collector says of it.
    pub(super) why: String,
}

impl SendError {
    fn final_for(why: impl Into<String>) -> Self {
        Self { why: why.into(), after: None, is_too_much: false }
    }

    fn passing(why: impl Into<String>, after: Duration) -> Self {
        Self { why: why.into(), after: Some(after), is_too_much: false }
    }
}

impl Collector {
    /// The collector of this configuration, which is at this address.
    pub fn new(config: &TracesConfig, url: &url::Url) -> Result<Self, CannotConnect> {
        let mut headers = common_headers();
        for (name, value) in &config.headers {
            if let Ok(mut value) = HeaderValue::from_str(value.expose()) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        let is_grpc = config.protocol == OtlpProtocol::Grpc;
        let content_type = if is_grpc { "application/grpc" } else { "application/x-protobuf" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let mut url = url.clone();
        if is_grpc {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            url.set_path(PROCEDURE);
        }
        let reach = Reach {
            connect_timeout: Some(config.timeout),
            proxies: Proxies::Environment,
            http2_only: is_grpc,
            ..Reach::default()
        };
        Ok(Self {
            client: HttpClient::new(&reach)?,
            uri: url.as_str().parse().expect("a URL with a host is a URI"),
            protocol: config.protocol,
            headers,
            timeout: config.timeout,
        })
    }

    /// Sends a request that is encoded.
    pub(super) async fn send(&self, message: Bytes) -> Result<Taken, SendError> {
        match tokio::time::timeout(self.timeout, self.exchange(message)).await {
            Ok(result) => result,
            Err(_) => Err(SendError::passing("it did not answer in time", Duration::ZERO)),
        }
    }

    async fn exchange(&self, message: Bytes) -> Result<Taken, SendError> {
        let body = match self.protocol {
            OtlpProtocol::Http => message,
            OtlpProtocol::Grpc => framed(&message),
        };
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, self.uri.clone());
        *request.headers_mut() = self.headers.clone();
        let passing = |error: crate::net::client::HttpError| SendError::passing(error.to_string(), Duration::ZERO);
        let Response { status, headers, body } = self.client.send(request).await.map_err(passing)?;
        match self.protocol {
            OtlpProtocol::Http => {
                refuse_status(status, &headers)?;
                let (answer, _) = body.whole(MOST_ANSWERED).await.map_err(passing)?;
                refuse_page(&headers, &answer)?;
                Ok(taken(&answer))
            }
            OtlpProtocol::Grpc => {
                refuse_status(status, &headers)?;
                let (answer, mut trailers) = body.whole(MOST_ANSWERED).await.map_err(passing)?;
                // An answer without a message says its status in its head.
                trailers.extend(headers);
                refuse_grpc_status(&trailers)?;
                Ok(taken(answer.get(5..).unwrap_or_default()))
            }
        }
    }
}

/// A message as gRPC frames it: not compressed, and its length.
fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

fn refuse_status(status: StatusCode, headers: &HeaderMap) -> Result<(), SendError> {
    if status.is_success() {
        return Ok(());
    }
    let why = format!("it answered {status}");
    let may_pass = [429, 502, 503, 504].contains(&status.as_u16());
    let asked = headers.get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let after = Duration::from_secs(asked.unwrap_or(0));
    let is_too_much = status == StatusCode::PAYLOAD_TOO_LARGE;
    let refused = if may_pass { SendError::passing(why, after) } else { SendError::final_for(why) };
    Err(SendError { is_too_much, ..refused })
}

/// Refuses an answer that no collector gives, such as the page of a proxy. One without a body says enough.
fn refuse_page(headers: &HeaderMap, answer: &[u8]) -> Result<(), SendError> {
    let kind = headers.get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or_default());
    let is_known =
        kind.is_empty() || ["application/x-protobuf", "application/json"].iter().any(|of| kind.starts_with(of));
    if is_known || answer.is_empty() {
        return Ok(());
    }
    let kind: String = kind.chars().take(100).collect();
    Err(SendError::final_for(format!("it answered with {kind}, as no collector does: its address may be another's")))
}

fn refuse_grpc_status(headers: &HeaderMap) -> Result<(), SendError> {
    let Some(code) = headers.get("grpc-status").and_then(|code| code.to_str().ok()?.parse::<u32>().ok()) else {
        return Err(SendError::final_for("it answered without gRPC's status"));
    };
    let why = format!("it answered with gRPC's status {code}");
    match code {
        0 => Ok(()),
        // Resource exhausted: what is too large, unless the collector says when it may be sent again.
        8 if !asks_to_wait(headers) => Err(SendError { is_too_much: true, ..SendError::final_for(why) }),
        // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
        1 | 4 | 8 | 10 | 11 | 14 | 15 => Err(SendError::passing(why, Duration::ZERO)),
        _ => Err(SendError::final_for(why)),
    }
}

/// Whether gRPC's details say that the same may be sent again.
fn asks_to_wait(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"google.rpc.RetryInfo";
    let details = headers.get("grpc-status-details-bin").map_or(&[][..], HeaderValue::as_bytes);
    let details = details.trim_ascii_end().strip_suffix(b"==").or(details.strip_suffix(b"=")).unwrap_or(details);
    STANDARD_NO_PAD.decode(details).is_ok_and(|details| details.windows(TYPE.len()).any(|part| part == TYPE))
}

/// What the answer says of what was taken. One that says nothing readable says that all was.
fn taken(answer: &[u8]) -> Taken {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let Some(partial) = answer.partial_success else { return Taken::default() };
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
    Taken { rejected, why: partial.error_message.chars().take(200).collect() }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn what_may_pass_is_sent_again_and_the_rest_is_not() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
        let after = |status: u16| {
            let refused = refuse_status(StatusCode::from_u16(status).unwrap(), &headers);
            refused.map_err(|error| (error.after, error.is_too_much))
        };
        assert_eq!(after(200), Ok(()));
        assert_eq!(after(503), Err((Some(Duration::from_secs(7)), false)));
        for status in [400, 401, 404, 413, 500] {
            assert_eq!(after(status), Err((None, status == 413)), "{status}");
        }
        let grpc = |code, details: Option<&[u8]>| {
            let mut headers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(code))]);
            if let Some(details) = details {
                let details = STANDARD_NO_PAD.encode(details).parse().unwrap();
                headers.insert("grpc-status-details-bin", details);
            }
            refuse_grpc_status(&headers).map_err(|error| (error.after, error.is_too_much))
        };
        let passing = Err((Some(Duration::ZERO), false));
        assert_eq!((grpc("0", None), grpc("14", None), grpc("16", None)), (Ok(()), passing, Err((None, false))));
        assert_eq!((grpc("8", None), grpc("8", Some(b"more"))), (Err((None, true)), Err((None, true))));
        assert_eq!(grpc("8", Some(b"\x12\x05type.googleapis.com/google.rpc.RetryInfo\x12")), passing);
        assert!(refuse_grpc_status(&HeaderMap::new()).is_err(), "an answer without a status is none");
    }

    #[test]
    fn only_what_a_collector_says_is_an_answer() {
        let refused = |kind: &'static str, body: &[u8]| {
            refuse_page(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]), body).is_err()
        };
        assert!(refused("text/html; charset=utf-8", b"<html>"));
        assert!(!refused("text/plain", b"") && !refused("application/json", b"{}"));
        assert!(!refused("application/x-protobuf", b"\n") && refuse_page(&HeaderMap::new(), b"\n").is_ok());
        let partial = ExportTracePartialSuccess { rejected_spans: 7, error_message: "full".repeat(100) };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
        let taken = taken(&answer.encode_to_vec());
        assert_eq!((taken.rejected, taken.why.len(), &taken.why[..4]), (7, 200, "full"));
    }
}
