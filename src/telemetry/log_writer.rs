//! Writes the log in a thread of its own, so that a reader that has stopped reading stops nothing else.
//!
//! Standard error may be a pipe to a process that hangs, or a terminal that a person has paused. Lines wait for it in
//! memory up to a bound, beyond which they are dropped and counted. While the reader reads, no line is lost.
//!
//! A line after a silence is written at once. Those that follow within [`JOIN`] are written together, because to wake the
//! thread takes longer than to write a line.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of lines that wait while others are written. A reader that is so far behind has stopped.
const MAX_WAITING: usize = 4 << 20;
/// How long lines are gathered after others were written. Not a setting: less makes a busy server slower, and a person
/// sees no difference.
const JOIN: Duration = Duration::from_millis(5);
/// So many bytes of lines are not kept waiting for others.
const ENOUGH: usize = 256 << 10;
/// What the queue keeps of its memory once it is empty.
const KEPT_CAPACITY: usize = 16 << 10;
/// How long an output that takes nothing now, instead of blocking, is left alone.
const PAUSE: Duration = Duration::from_millis(10);

/// Takes lines without ever waiting for the output that they go to.
#[derive(Debug, Clone)]
pub struct LogWriter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when a line is added.
    filled: Condvar,
    /// Signalled when lines are to be written without waiting for others.
    hurried: Condvar,
    /// Signalled when all lines are written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// How many lines were dropped since the last were taken.
    dropped: u64,
    /// Whether lines that were taken are still being written.
    is_writing: bool,
    /// Whether a thread waits until all lines are written.
    is_awaited: bool,
}

impl LogWriter {
    /// Starts the thread that writes to `output`, for as long as the process lives. An output that fails gets what
    /// comes later all the same.
    pub fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let writer = Self(shared.clone());
        thread::Builder::new().name("log".into()).spawn(move || shared.write_to(output))?;
        Ok(writer)
    }

    /// Waits until all lines are written, or until `patience` is over.
    pub fn flush(&self, patience: Duration) {
        let mut queue = self.0.queue.lock();
        queue.is_awaited = true;
        self.0.hurried.notify_one();
        let is_busy = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
        let _ = self.0.emptied.wait_while_for(&mut queue, is_busy, patience);
    }

    /// Adds a line, or several, if there is room for them.
    pub fn add(&self, line: &[u8]) {
        let mut queue = self.0.queue.lock();
        if queue.lines.len() + line.len() > MAX_WAITING {
            queue.dropped += 1;
            return;
        }
        queue.lines.extend_from_slice(line);
        let are_enough = queue.lines.len() > ENOUGH;
        drop(queue);
        self.0.filled.notify_one();
        if are_enough {
            self.0.hurried.notify_one();
        }
    }
}

impl Shared {
    fn write_to(&self, mut output: impl Write) {
        let mut lines = Vec::new();
        loop {
            let dropped = self.take(&mut lines);
            // If the log can no longer be written, for example to a closed terminal, the server continues without a
            // complaint.
            let _ = write_all(&mut output, &lines);
            if dropped > 0 {
                tracing::warn!(dropped, "lines of the log were dropped: standard error was not read in time");
            }
        }
    }

    /// Waits for lines and takes them; returns how many were dropped after them.
    fn take(&self, lines: &mut Vec<u8>) -> u64 {
        lines.clear();
        lines.shrink_to(KEPT_CAPACITY);
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        if queue.lines.is_empty() {
            queue.is_awaited = false;
            self.emptied.notify_all();
        }
        let may_wait = |queue: &mut Queue| !queue.is_awaited && queue.lines.len() <= ENOUGH;
        self.hurried.wait_while_for(&mut queue, may_wait, JOIN);
        while queue.lines.is_empty() {
            self.filled.wait(&mut queue);
        }
        std::mem::swap(&mut queue.lines, lines);
        queue.is_writing = true;
        std::mem::take(&mut queue.dropped)
    }
}

/// Writes everything, also to an output that another process has told not to block.
fn write_all(output: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

/// One line of the log, which its formatter writes in one piece.
impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::time::Instant;

    use super::*;

    /// Counts how often it is written to.
    #[derive(Default)]
    struct Output(Arc<(AtomicU32, Mutex<Vec<u8>>)>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.0.fetch_add(1, Relaxed);
            self.0.1.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_follow_each_other_are_written_together() {
        const LINES: usize = 400;
        let output = Arc::<(AtomicU32, Mutex<Vec<u8>>)>::default();
        let writer = LogWriter::start(Output(output.clone())).unwrap();
        let begun = Instant::now();
        for _ in 0..LINES {
            writer.add(b"line\n");
            // Longer than the thread takes to write one.
            thread::sleep(Duration::from_micros(100));
        }
        writer.flush(Duration::from_secs(20));
        let most = begun.elapsed().as_millis() / JOIN.as_millis() + 3;
        let writes = output.0.load(Relaxed);
        assert!(u128::from(writes) <= most, "{writes} writes instead of {most}");
        assert_eq!(output.1.lock().len(), LINES * "line\n".len());
    }
}
