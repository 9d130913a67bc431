//! The trace that a run belongs to, and the ids of its spans, as the W3C's trace context has them.
//!
//! All ids are derived from the run's id. So every replica, and every later reader of the run's log, names the same span
//! by the same id, and a tool can be told its parent before that span is written. Every model and tool call derives one,
//! hence by a hash that costs little: ids need to differ and keep no secret.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

use crate::types::json::is_default;
use crate::types::{CallId, RunId};

/// The longest `tracestate` that is passed on.
const MAX_STATE: usize = 512;

/// The flag of a trace that its caller records.
const SAMPLED: u8 = 1;

/// A trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// A span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

/// Which span of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKey<'a> {
    /// The run as a whole.
    Run,
    /// Its wait behind other runs of its session.
    Queue,
    /// A part of it: what its nth driver after the first did.
    Resumption(u32),
    /// Its nth wait for its client.
    Wait(u32),
    /// A step, and which part of it: a step that is interrupted goes on as another span.
    Step(u32, u32),
    /// The model call of a step.
    ModelCall(u32),
    /// A tool call, and which time it is made, counted from 1.
    ToolCall(&'a CallId, u32),
    /// A model call by which a guardrail of this name judged a text with this digest, in the name of a step.
    Judge(u32, u64, &'a str),
    /// A model call that summarised so many messages before a step.
    Summary(u32, u64),
    /// The nth model call before a step by which what matters is written down, counted from 1.
    Flush(u32, u32),
}

/// The trace that a caller says its request belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span.
    pub span: SpanId,
    /// The caller's flags.
    pub flags: u8,
    /// What the systems on the way have noted of the trace.
    pub state: Option<Arc<str>>,
}

/// A `traceparent`, as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent([u8; 55]);

/// The trace that a run belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTrace {
    /// The trace.
    pub id: TraceId,
    /// The span of the caller that the run is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// The flags that models and tools are told.
    pub flags: u8,
    /// See [`TraceContext::state`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
    /// Whether the run has spans of its own. Otherwise models and tools are told the caller's span.
    #[serde(default, skip_serializing_if = "is_default")]
    pub has_spans: bool,
}

impl TraceContext {
    /// Reads a `traceparent` and its `tracestate`; `None` if the first is not valid.
    #[must_use]
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut fields = parent.split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let [version] = read_hex(version)?;
        // Later versions may append fields, and the last possible one is no version.
        if version == 0xff || (version == 0 && fields.next().is_some()) {
            return None;
        }
        let (trace, span, [flags]) = (TraceId(read_hex(trace)?), SpanId(read_hex(span)?), read_hex(flags)?);
        let is_valid = trace.0 != [0; 16] && span.0 != [0; 8];
        let is_plain =
            |state: &&str| state.len() <= MAX_STATE && state.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let state = state.filter(|state| !state.is_empty()).filter(is_plain).map(Arc::from);
        is_valid.then_some(Self { trace, span, flags, state })
    }

    /// Whether the caller records the trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// As a `traceparent`.
    #[must_use]
    pub fn parent(&self) -> TraceParent {
        let mut written = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut written[3..35], &self.trace.0);
        write_hex(&mut written[36..52], &self.span.0);
        write_hex(&mut written[53..], &[self.flags]);
        TraceParent(written)
    }
}

impl RunTrace {
    /// The trace of a run that has no spans of its own: its caller's, passed on as it is.
    #[must_use]
    pub fn passed_on(caller: TraceContext) -> Self {
        let TraceContext { trace, span, flags, state } = caller;
        Self { id: trace, parent: Some(span), flags, state, has_spans: false }
    }

    /// The trace of a run that has spans: part of its caller's trace, if the caller names one.
    #[must_use]
    pub fn of_run(run: &RunId, caller: Option<TraceContext>) -> Self {
        match caller {
            Some(caller) => Self { has_spans: true, ..Self::passed_on(caller) },
            None => Self { id: TraceId::of(run), parent: None, flags: 0, state: None, has_spans: true },
        }
    }

    /// Whether models and tools are told that the trace is recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, which is recorded or not.
    #[must_use]
    pub fn sampled(self, is_sampled: bool) -> Self {
        let flags = if is_sampled { self.flags | SAMPLED } else { self.flags & !SAMPLED };
        Self { flags, ..self }
    }

    /// What the receiver of a request is told, which is sent for this span of the run.
    #[must_use]
    pub fn outgoing(&self, run: &RunId, span: SpanKey<'_>) -> TraceContext {
        let span = match self.parent {
            Some(parent) if !self.has_spans => parent,
            Some(_) | None => SpanId::of(run, span),
        };
        TraceContext { trace: self.id, span, flags: self.flags, state: self.state.clone() }
    }
}

impl TraceId {
    /// The trace of a run whose caller names none.
    #[must_use]
    pub fn of(run: &RunId) -> Self {
        Self(xxh3_128(run.as_str().as_bytes()).to_be_bytes())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// A span of a run.
    #[must_use]
    pub fn of(run: &RunId, span: SpanKey<'_>) -> Self {
        let (kind, number, part, call) = match span {
            SpanKey::Run => (0, 0, 0, ""),
            SpanKey::Queue => (1, 0, 0, ""),
            SpanKey::Resumption(number) => (2, number, 0, ""),
            SpanKey::Wait(number) => (3, number, 0, ""),
            SpanKey::Step(step, part) => (4, step, part, ""),
            SpanKey::ModelCall(step) => (5, step, 0, ""),
            SpanKey::ToolCall(call, attempt) => (6, attempt, 0, call.as_str()),
            SpanKey::Summary(step, messages) => (8, step, u32::try_from(messages).unwrap_or(u32::MAX), ""),
            SpanKey::Flush(step, round) => (9, step, round, ""),
            SpanKey::Judge(step, digest, name) => (7, step, u32::try_from(digest >> 32).unwrap_or(0), name),
        };
        let mut key = [0; 17];
        key[..8].copy_from_slice(&xxh3_64(run.as_str().as_bytes()).to_be_bytes());
        key[8] = kind;
        key[9..13].copy_from_slice(&u32::to_be_bytes(number));
        key[13..].copy_from_slice(&u32::to_be_bytes(part));
        Self(xxh3_64_with_seed(call.as_bytes(), xxh3_64(&key)).to_be_bytes())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 8] {
        self.0
    }
}

impl TraceParent {
    /// As it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        text(&self.0)
    }
}

/// As a `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parent().as_str())
    }
}

macro_rules! hex {
    ($name:ident, $digits:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut digits = [0; $digits];
                write_hex(&mut digits, &self.0);
                f.write_str(text(&digits))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                read_hex(&text).map(Self).ok_or_else(|| serde::de::Error::custom("it is no id of a trace or span"))
            }
        }
    };
}

hex!(TraceId, 32);
hex!(SpanId, 16);

/// Writes lower-case hexadecimal digits. Every model and tool call has some, hence without a formatter.
fn write_hex(digits: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        (pair[0], pair[1]) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
    }
}

/// What was written of digits and dashes.
fn text(written: &[u8]) -> &str {
    std::str::from_utf8(written).expect("digits and dashes are text")
}

/// Reads lower-case hexadecimal digits.
fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_read_and_written_as_its_standard_has_it() {
        let context = TraceContext::parse(PARENT, Some("vendor=1")).unwrap();
        assert_eq!((context.to_string().as_str(), context.is_sampled()), (PARENT, true));
        assert_eq!(context.state.as_deref(), Some("vendor=1"));
        let later = PARENT.replacen("00", "cc", 1) + "-more";
        assert_eq!(TraceContext::parse(&later, None).unwrap().to_string(), PARENT, "it is passed on as we know it");
        for bad in [
            "",
            "00",
            &PARENT.replacen("00", "ff", 1),
            &PARENT.to_uppercase(),
            &(PARENT.to_owned() + "-more"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
        }
        for bad in ["", "a\nb", &"x".repeat(MAX_STATE + 1)] {
            assert_eq!(TraceContext::parse(PARENT, Some(bad)).unwrap().state, None, "{bad}");
        }
    }

    #[test]
    fn a_run_without_spans_passes_its_callers_span_on() {
        let run = RunId::mint();
        let caller = TraceContext::parse(PARENT, Some("vendor=1")).unwrap();
        let passed = RunTrace::passed_on(caller.clone());
        assert_eq!(passed.outgoing(&run, SpanKey::ModelCall(1)), caller);
        let own = RunTrace::of_run(&run, Some(caller.clone())).sampled(false);
        let told = own.outgoing(&run, SpanKey::ModelCall(1));
        assert_eq!((told.trace, told.span), (caller.trace, SpanId::of(&run, SpanKey::ModelCall(1))));
        assert!(!told.is_sampled() && told.state == caller.state);
    }

    #[test]
    fn ids_differ_by_what_they_name_and_survive_the_store() {
        let run = RunId::mint();
        let (one, other) = (run.call(1), run.call(2));
        let keys = [
            SpanKey::Run,
            SpanKey::Queue,
            SpanKey::Resumption(1),
            SpanKey::Wait(1),
            SpanKey::Step(1, 0),
            SpanKey::Step(1, 1),
            SpanKey::ModelCall(1),
            SpanKey::ToolCall(&one, 1),
            SpanKey::ToolCall(&one, 2),
            SpanKey::ToolCall(&other, 1),
        ];
        let ids: std::collections::BTreeSet<_> = keys.iter().map(|key| SpanId::of(&run, *key)).collect();
        assert_eq!(ids.len(), keys.len());
        let trace = RunTrace::of_run(&run, TraceContext::parse(PARENT, None));
        let stored = serde_json::to_string(&trace).unwrap();
        assert_eq!(serde_json::from_str::<RunTrace>(&stored).unwrap(), trace, "{stored}");
    }
}
