//! Log lines as JSON: an object a line, written in one pass into memory that the lines of a thread share.
//!
//! The lines are those of `tracing-subscriber`, which sorts the fields of each span, reads what it wrote of a span again for
//! each line, and checks each piece of a line to be text.

use std::cell::RefCell;
use std::fmt::{self, Debug};

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The memory that a line leaves for the next one.
const KEPT: usize = 4 << 10;

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Formats events, and the fields of spans as members of an object that has others, each after a comma. A field that is
/// recorded twice is written twice.
pub(super) struct JsonLines;

impl<S> FormatEvent<S, Self> for JsonLines
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    fn format_event(&self, context: &FmtContext<'_, S, Self>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write_by_line(writer, |line| write_line(line, context, event))
    }
}

impl<'writer> FormatFields<'writer> for JsonLines {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        write_by_line(writer, |line| write_members(line, |members| fields.record(members)))
    }

    fn add_fields(&self, written: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        self.format_fields(written.as_writer(), fields)
    }
}

/// Writes what `write` puts into the memory that lines share.
fn write_by_line(mut writer: Writer<'_>, write: impl FnOnce(&mut Vec<u8>) -> fmt::Result) -> fmt::Result {
    let mut line = LINE.take();
    let written = write(&mut line)
        .and_then(|()| std::str::from_utf8(&line).map_err(|_| fmt::Error))
        .and_then(|line| writer.write_str(line));
    line.clear();
    line.shrink_to(KEPT);
    LINE.set(line);
    written
}

fn write_line<S>(line: &mut Vec<u8>, context: &FmtContext<'_, S, JsonLines>, event: &Event<'_>) -> fmt::Result
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
{
    line.extend_from_slice(b"{\"timestamp\":\"");
    SystemTime.format_time(&mut Writer::new(&mut Text(line)))?;
    line.extend_from_slice(b"\",\"level\":\"");
    line.extend_from_slice(event.metadata().level().as_str().as_bytes());
    line.push(b'"');
    write_members(line, |members| event.record(members))?;
    let span = event.parent().and_then(|id| context.span(id)).or_else(|| context.lookup_current());
    if let Some(span) = span {
        line.extend_from_slice(b",\"span\":{\"name\":\"");
        line.extend_from_slice(span.name().as_bytes());
        line.push(b'"');
        let extensions = span.extensions();
        let fields = extensions.get::<FormattedFields<JsonLines>>().map_or("", |formatted| formatted.fields.as_str());
        line.extend_from_slice(fields.as_bytes());
        line.push(b'}');
    }
    line.extend_from_slice(b"}\n");
    Ok(())
}

/// Writes the fields that `record` tells.
fn write_members(line: &mut Vec<u8>, record: impl FnOnce(&mut Members<'_>)) -> fmt::Result {
    let mut members = Members { line, failed: false };
    record(&mut members);
    if members.failed { Err(fmt::Error) } else { Ok(()) }
}

/// Writes fields as members of an object that has some.
struct Members<'a> {
    line: &'a mut Vec<u8>,
    failed: bool,
}

impl Members<'_> {
    fn add(&mut self, field: &Field, value: impl Serialize) {
        self.line.push(b',');
        let named = serde_json::to_writer(&mut *self.line, field.name());
        self.line.push(b':');
        let written = named.and_then(|()| serde_json::to_writer(&mut *self.line, &value));
        self.failed |= written.is_err();
    }
}

impl Visit for Members<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}

/// What is written as text.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What two ways of formatting make of the same events.
    fn lines(log: impl Fn()) -> [Vec<Value>; 2] {
        let (own, other) = (Output::default(), Output::default());
        let builder = |output: &Output| {
            let output = output.clone();
            tracing_subscriber::fmt().with_writer(move || output.clone()).with_target(false)
        };
        let ours = builder(&own).fmt_fields(JsonLines).event_format(JsonLines).finish();
        tracing::subscriber::with_default(ours, &log);
        let theirs = builder(&other).json().flatten_event(true).with_span_list(false).finish();
        tracing::subscriber::with_default(theirs, &log);
        [own, other].map(|output| {
            let text = String::from_utf8(output.0.lock().clone()).unwrap();
            let line = |line: &str| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                let time = line["timestamp"].take();
                assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{time}");
                line
            };
            assert!(text.ends_with('\n'), "{text:?}");
            text.lines().map(line).collect()
        })
    }

    #[test]
    fn lines_are_those_of_the_library() {
        let [ours, theirs] = lines(|| {
            let error = io::Error::other("broken \"pipe\"\n\u{1b}[31m");
            tracing::warn!(%error, count = 3_u64, sum = -4, share = 0.5, none = f64::NAN, yes = true, "text \u{1f600}");
            let span = tracing::info_span!("request", id = "a\"b", path = tracing::field::Empty);
            tracing::info!(parent: &span, absent = None::<u64>, wrapped = ?Some("x"), "served");
            span.record("path", "/v1");
            span.in_scope(|| tracing::error!(dotted.name = 1, big = u128::MAX));
            tracing::info_span!("bare").in_scope(|| tracing::info!("in it"));
        });
        assert_eq!(ours, theirs);
        assert_eq!((ours.len(), &ours[1]["span"]), (4, &json!({"name": "request", "id": "a\"b"})));
    }
}
