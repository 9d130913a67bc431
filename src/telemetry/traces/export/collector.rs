//! A collector of traces, as it is reached by OpenTelemetry's protocol over HTTP or gRPC.

use std::time::Duration;

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
}

impl SendError {
    fn final_for(why: impl Into<String>) -> Self {
        Self { why: why.into(), after: None }
    }

    fn passing(why: impl Into<String>, after: Duration) -> Self {
        Self { why: why.into(), after: Some(after) }
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

    /// Sends a request that is encoded. Returns how many spans the collector did not want.
    pub(super) async fn send(&self, message: Bytes) -> Result<i64, SendError> {
        match tokio::time::timeout(self.timeout, self.exchange(message)).await {
            Ok(result) => result,
            Err(_) => Err(SendError::passing("it did not answer in time", Duration::ZERO)),
        }
    }

    async fn exchange(&self, message: Bytes) -> Result<i64, SendError> {
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
                Ok(rejected(&answer))
            }
            OtlpProtocol::Grpc => {
                refuse_status(status, &headers)?;
                // An answer without a message says its status in its head.
                refuse_grpc_status(&headers)?;
                let (answer, trailers) = body.whole(MOST_ANSWERED).await.map_err(passing)?;
                refuse_grpc_status(&trailers)?;
                Ok(rejected(answer.get(5..).unwrap_or_default()))
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
    Err(if may_pass { SendError::passing(why, after) } else { SendError::final_for(why) })
}

fn refuse_grpc_status(headers: &HeaderMap) -> Result<(), SendError> {
    let Some(code) = headers.get("grpc-status").and_then(|code| code.to_str().ok()?.parse::<u32>().ok()) else {
        return Ok(());
    };
    let why = || format!("it answered with gRPC's status {code}");
    match code {
        0 => Ok(()),
        // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
        1 | 4 | 8 | 10 | 11 | 14 | 15 => Err(SendError::passing(why(), Duration::ZERO)),
        _ => Err(SendError::final_for(why())),
    }
}

/// How many spans the answer says were not wanted. An answer that says nothing readable says none.
fn rejected(answer: &[u8]) -> i64 {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    answer.partial_success.map_or(0, |partial| partial.rejected_spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_sent_again_and_the_rest_is_not() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
        let after = |status: u16| refuse_status(StatusCode::from_u16(status).unwrap(), &headers).map_err(|e| e.after);
        assert_eq!(after(200), Ok(()));
        assert_eq!(after(503), Err(Some(Duration::from_secs(7))));
        for status in [400, 401, 404, 413, 500] {
            assert_eq!(after(status), Err(None), "{status}");
        }
        let grpc = |code| {
            let headers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(code))]);
            refuse_grpc_status(&headers).map_err(|error| error.after)
        };
        assert_eq!((grpc("0"), grpc("14"), grpc("16")), (Ok(()), Err(Some(Duration::ZERO)), Err(None)));
    }
}
