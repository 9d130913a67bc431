//! Logs: one line an event, as text for people or as JSON for machines. No bodies, no secrets.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use super::json_lines::JsonLines;
use super::log_writer::LogWriter;
use crate::config::LogFormat;

/// How long the end of the process waits for the last lines to be written. The reader of the log has stopped if that
/// takes longer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a thread that panics waits for that, whether its panic ends the process or not.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// The log of this process. Dropping it waits until its lines are written.
#[derive(Debug)]
pub struct Log(LogWriter);

impl Log {
    /// Writes a text for people among the lines.
    pub fn print(&self, text: &str) {
        self.0.add(format!("{text}\n").as_bytes());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush(FLUSH_TIMEOUT);
    }
}

/// Writes logs of `filter` to standard error from now on. A second call changes nothing.
pub fn begin(filter: &str, format: LogFormat, colours: bool) -> Result<Log, String> {
    let filter = filter_of(filter)?;
    let writer = LogWriter::start(std::io::stderr());
    let writer = writer.map_err(|error| format!("the thread that writes the log cannot be started: {error}"))?;
    let builder = fmt().with_env_filter(filter).with_writer(writer.clone()).with_ansi(colours).with_target(false);
    let builder = builder.log_internal_errors(false);
    // A logger that is there already stays: it belongs to the program that embeds the server.
    let begun = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.fmt_fields(JsonLines).event_format(JsonLines).try_init(),
    };
    if begun.is_ok() {
        // The default hook writes to standard error itself, which may stop the thread that panics.
        std::panic::set_hook(Box::new(hook(writer.clone())));
    }
    Ok(Log(writer))
}

/// What is logged.
fn filter_of(filter: &str) -> Result<EnvFilter, String> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| format!("the log filter is not valid: {error}"))?;
    if filter.contains("rmcp") {
        return Ok(parsed);
    }
    // The library logs what servers of tools say and are told, and what its errors quote.
    Ok("rmcp=off".parse().into_iter().fold(parsed, EnvFilter::add_directive))
}

/// Logs a panic, and waits until it is written: the process aborts after this if the panic is one within another.
fn hook(writer: LogWriter) -> impl Fn(&PanicHookInfo<'_>) {
    move |panic| {
        log_panic(panic);
        writer.flush(PANIC_FLUSH_TIMEOUT);
    }
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let (thread, at) = (std::thread::current(), panic.location().map(ToString::to_string));
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    // Its words stay out of the log: they may quote what callers, models and tools wrote, as those of a text that is cut
    // within a character do.
    tracing::error!(thread = thread.name(), at, backtrace, "a thread panicked");
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// An output that takes a while for each line.
    #[derive(Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(20));
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_line_of_a_panic_is_written_before_the_panic_goes_on() {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let writer = LogWriter::start(Slow(written.clone())).unwrap();
        let logger = fmt().with_writer(writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(logger);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(hook(writer)));
        let panicked = std::panic::catch_unwind(|| panic!("as told"));
        let written = String::from_utf8(written.lock().clone()).unwrap();
        std::panic::set_hook(before);
        assert!(panicked.is_err() && written.contains("a thread panicked"), "{written}");
    }
}
