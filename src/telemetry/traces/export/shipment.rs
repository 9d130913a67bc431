//! Traces as they are sent: in requests that a collector takes. Pure.

use bytes::Bytes;

use crate::telemetry::traces::otlp::{ResourceAttributes, Trace, requests};

/// Most bytes of a request, about. Not a setting: collectors take four MiB, over gRPC at least by default.
const MOST_SENT: usize = 3 << 20;

/// A trace as bytes.
#[derive(Debug)]
pub(super) struct Encoded {
    /// One request, or more of a trace that is too large for one.
    requests: Vec<Bytes>,
    spans: u64,
}

/// Traces that are taken or refused together.
#[derive(Debug)]
pub(super) struct Shipment(Vec<Encoded>);

impl Encoded {
    /// A trace whose spans come from this.
    pub(super) fn new(resource: &ResourceAttributes, trace: Trace) -> Self {
        let spans = trace.spans.len() as u64;
        Self { requests: requests(resource, trace, MOST_SENT), spans }
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.requests.iter().map(Bytes::len).sum()
    }
}

impl Shipment {
    /// How many traces it has.
    pub(super) fn traces(&self) -> u64 {
        self.0.len() as u64
    }

    /// How many spans it has.
    pub(super) fn spans(&self) -> u64 {
        self.0.iter().map(|trace| trace.spans).sum()
    }

    /// What is sent: one request if all traces have room in it.
    pub(super) fn requests(&self) -> Vec<Bytes> {
        match &self.0[..] {
            [one] => one.requests.clone(),
            // Messages that stand one after the other are one message with the spans of all.
            more => {
                let requests: Vec<_> = more.iter().flat_map(|trace| trace.requests.iter().cloned()).collect();
                vec![requests.concat().into()]
            }
        }
    }

    /// Each trace by itself.
    pub(super) fn singly(self) -> impl Iterator<Item = Self> {
        self.0.into_iter().map(|trace| Self(vec![trace]))
    }
}

/// Traces in shipments of one request each, but for a trace that alone is too large for one.
pub(super) fn packed(traces: Vec<Encoded>) -> Vec<Shipment> {
    let (mut shipments, mut bytes): (Vec<Shipment>, _) = (Vec::new(), 0);
    for trace in traces {
        let length = trace.bytes();
        match shipments.last_mut() {
            Some(Shipment(last)) if bytes + length <= MOST_SENT => {
                bytes += length;
                last.push(trace);
            }
            _ => {
                bytes = length;
                shipments.push(Shipment(vec![trace]));
            }
        }
    }
    shipments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_share_a_request_as_long_as_it_is_small() {
        let trace = |lengths: &[usize]| Encoded {
            requests: lengths.iter().map(|length| vec![7; *length].into()).collect(),
            spans: 1,
        };
        let (small, large) = (1 << 20, 3 << 20);
        let sent = packed(vec![trace(&[small]), trace(&[small]), trace(&[large, small]), trace(&[large])]);
        let lengths: Vec<Vec<usize>> =
            sent.iter().map(|shipment| shipment.requests().iter().map(Bytes::len).collect()).collect();
        assert_eq!(lengths, [vec![2 * small], vec![large, small], vec![large]]);
        let traces: Vec<u64> = sent.into_iter().flat_map(Shipment::singly).map(|single| single.traces()).collect();
        assert_eq!(traces, [1; 4]);
    }
}
