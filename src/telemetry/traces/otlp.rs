//! Spans as OpenTelemetry's protocol has them. Pure.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyOf;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as Written, Status};

use prost::Message;

use super::names::SCHEMA;
use super::span::{Attribute, Kind, Span, Value};
use crate::types::RunTrace;
use crate::types::trace::TraceId;

/// The spans of one run.
#[derive(Debug)]
pub struct Trace {
    /// Their trace.
    pub id: TraceId,
    /// The run's, where it was told when it was accepted.
    pub of_run: Option<RunTrace>,
    /// The spans.
    pub spans: Vec<Span>,
}

impl Trace {
    /// How many bytes it takes, about.
    #[must_use]
    pub fn size(&self) -> usize {
        let state = self.of_run.as_ref().and_then(|of_run| of_run.state.as_deref()).map_or(0, str::len);
        self.spans.iter().map(|span| span.size() + state).sum()
    }
}

/// What the spans of all runs share: the names and values of what they come from.
pub type ResourceAttributes = [(String, String)];

/// What is sent to a collector, in as many requests as it takes for none to have more than about so many bytes. Requests
/// that stand one after the other are one request with all of their spans.
#[must_use]
pub fn requests(resource: &ResourceAttributes, trace: Trace, most: usize) -> Vec<Bytes> {
    let (mut requests, mut spans, mut bytes) = (Vec::new(), Vec::new(), 0);
    for span in written(trace) {
        let length = span.encoded_len();
        if bytes + length > most && !spans.is_empty() {
            requests.push(request(resource, std::mem::take(&mut spans)).encode_to_vec().into());
            bytes = 0;
        }
        bytes += length;
        spans.push(span);
    }
    requests.push(request(resource, spans).encode_to_vec().into());
    requests
}

/// A trace as JSON, in pieces.
pub fn json(resource: &ResourceAttributes, trace: Trace) -> impl Iterator<Item = serde_json::Result<String>> + use<> {
    const BEFORE_SPANS: &str = "\"spans\":[";
    let frame = serde_json::to_string(&request(resource, Vec::new()));
    let (head, tail) = match &frame {
        Ok(frame) => frame.split_once(BEFORE_SPANS).unwrap_or_default(),
        Err(_) => ("", ""),
    };
    let (head, tail) = (format!("{head}{BEFORE_SPANS}"), tail.to_owned());
    let spans = written(trace).enumerate().map(|(at, span)| {
        let span = serde_json::to_string(&span)?;
        Ok(if at == 0 { span } else { format!(",{span}") })
    });
    std::iter::once(frame.map(|_| head)).chain(spans).chain([Ok(tail)])
}

/// Spans that come from this.
fn request(resource: &ResourceAttributes, spans: Vec<Written>) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let attributes = resource.iter().map(|(name, value)| pair(name, AnyOf::StringValue(value.clone()))).collect();
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans, schema_url: SCHEMA.to_owned() }],
            schema_url: SCHEMA.to_owned(),
        }],
    }
}

fn written(trace: Trace) -> impl Iterator<Item = Written> + use<> {
    let Trace { id, of_run, spans } = trace;
    let (state, flags) = of_run.map_or((String::new(), 0), |of_run| {
        (of_run.state.as_deref().unwrap_or_default().to_owned(), u32::from(of_run.flags))
    });
    spans.into_iter().map(move |span| write(id, &state, flags, span))
}

fn write(trace: TraceId, state: &str, flags: u32, span: Span) -> Written {
    let link = |linked: crate::types::trace::SpanId| Link {
        trace_id: trace.bytes().to_vec(),
        span_id: linked.bytes().to_vec(),
        flags,
        ..Link::default()
    };
    let event = |moment: super::span::Moment| Event {
        time_unix_nano: nanos(moment.at_ms),
        name: moment.name.to_owned(),
        attributes: moment.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
    };
    Written {
        trace_id: trace.bytes().to_vec(),
        span_id: span.id.bytes().to_vec(),
        trace_state: state.to_owned(),
        parent_span_id: span.parent.map(|parent| parent.bytes().to_vec()).unwrap_or_default(),
        flags,
        name: span.name,
        kind: match span.kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Client => SpanKind::Client,
        } as i32,
        start_time_unix_nano: nanos(span.start_ms),
        end_time_unix_nano: nanos(span.end_ms),
        attributes: span.attributes.into_iter().map(attribute).collect(),
        events: span.events.into_iter().map(event).collect(),
        dropped_events_count: span.events_left_out,
        links: span.links.into_iter().map(link).collect(),
        status: span.error.map(|message| Status { message: message.into_owned(), code: StatusCode::Error as i32 }),
        ..Written::default()
    }
}

fn attribute(Attribute { name, value }: Attribute) -> KeyValue {
    let value = match value {
        Value::Text(text) => AnyOf::StringValue(text.into_owned()),
        Value::Texts(texts) => AnyOf::ArrayValue(ArrayValue {
            values: texts.into_iter().map(|text| AnyValue { value: Some(AnyOf::StringValue(text)) }).collect(),
        }),
        Value::Number(number) => AnyOf::IntValue(i64::try_from(number).unwrap_or(i64::MAX)),
        Value::Real(number) => AnyOf::DoubleValue(number),
        Value::Flag(flag) => AnyOf::BoolValue(flag),
    };
    pair(name, value)
}

fn pair(name: &str, value: AnyOf) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanos(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}
