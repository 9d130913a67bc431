//! The bytes of a connection. A connection whose client takes nothing, or next to nothing, is closed. Refusals that the HTTP library
//! writes by itself get the shape of all errors.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::progress::Progress;
use super::refusal;

/// What a client takes at least while writing stands still for as long as it may. Not a setting: a client that takes less is slower
/// than the slowest line that a run can be followed over, and would hold what waits for it for hours.
const LEAST: usize = 16 << 10;

/// A stream on which writing may not stand still.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    /// How long writing may stand still.
    write_timeout: Duration,
    /// There while writing stands still, or goes on too slowly.
    stalled: Option<Stalled>,
    /// A refusal that is written in place of the library's.
    refusal: Bytes,
    /// Whether a line has ended since the last answer: if not, what is too long is the request line.
    line_ended: bool,
    /// What is read again, because the HTTP library read it and had no use for it.
    unread: Bytes,
    progress: Arc<Progress>,
}

/// Since when a client takes less than waits for it.
#[derive(Debug)]
struct Stalled {
    /// Rings when that has lasted for too long.
    timer: Pin<Box<Sleep>>,
    /// What it took meanwhile.
    taken: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, write_timeout: Duration, progress: Arc<Progress>) -> Self {
        let (refusal, unread) = (Bytes::new(), Bytes::new());
        Self { stream, write_timeout, stalled: None, refusal, line_ended: false, unread, progress }
    }

    /// Takes back what was read and not used.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        // Also where they are none, bytes keep the buffer that they were read into.
        self.unread = if bytes.is_empty() { Bytes::new() } else { bytes };
    }

    /// Passes the outcome of a write on, as an error if too little has gone out for too long.
    fn watch_write(&mut self, outcome: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.progress.set_flushed(false);
        let Poll::Ready(written) = outcome else { return self.stand_still(context) };
        if let (Some(stalled), Ok(count)) = (&mut self.stalled, &written) {
            stalled.taken += count;
            if stalled.taken >= LEAST {
                self.stalled = None;
            }
        }
        Poll::Ready(written)
    }

    /// Waits with the client, but not for ever.
    fn stand_still<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let write_timeout = self.write_timeout;
        let begun = || Stalled { timer: Box::pin(tokio::time::sleep(write_timeout)), taken: 0 };
        ready!(self.stalled.get_or_insert_with(begun).timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes too little of its answer")))
    }

    /// Writes what is left of a refusal.
    fn write_refusal(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.refusal.has_remaining() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.refusal);
            match ready!(self.watch_write(written, context))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.refusal.advance(count),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes a refusal of the library's in, to write it in another shape. Returns whether `head` was one.
    fn replace(&mut self, head: &[u8]) -> bool {
        let shaped = refusal::shaped(head, self.line_ended);
        self.line_ended = false;
        if let Some(refusal) = shaped {
            self.refusal = refusal;
            return true;
        }
        false
    }
}

impl Connection<TcpStream> {
    /// Notes that the answer is cut off if its client has gone: what is written from now on does not reach it.
    pub(super) fn note_if_gone(&self, context: &mut Context<'_>) {
        if self.progress.keeps_fate() && matches!(self.poll_arrived(context), Poll::Ready(Ok(false) | Err(_))) {
            self.progress.cut();
        }
    }

    /// Waits without a buffer. Returns whether something has arrived; otherwise it was the end.
    pub(super) fn poll_arrived(&self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.unread.has_remaining() {
            return Poll::Ready(Ok(true));
        }
        let mut first = [0];
        let arrived = ready!(self.stream.poll_peek(context, &mut ReadBuf::new(&mut first)))?;
        Poll::Ready(Ok(arrived > 0))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        if self.unread.has_remaining() {
            let count = self.unread.len().min(into.remaining());
            into.put_slice(&self.unread.split_to(count));
        } else {
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, into));
            // The library takes a reset for the end of a connection like any other.
            read.inspect_err(|_| self.progress.cut())?;
        }
        self.line_ended = self.line_ended || memchr::memchr(b'\n', &into.filled()[before..]).is_some();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.write_refusal(context))?;
        if self.replace(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch_write(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_refusal(context))?;
        let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
        if let (Some(head), None) = (filled.next(), filled.next())
            && self.replace(head)
        {
            return Poll::Ready(Ok(head.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch_write(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_refusal(context))?;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_pending() {
            return self.stand_still(context);
        }
        // All that waited for the client has gone out.
        self.stalled = None;
        self.progress.set_flushed(true);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_refusal(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn writing_that_stands_still_breaks_off() {
        let (client, server) = tokio::io::duplex(100);
        let mut connection = Connection::new(server, WRITE_TIMEOUT, Arc::default());
        let begun = tokio::time::Instant::now();
        let error = connection.write_all(&[0; 1_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
        drop(client);
    }

    /// How long a client is served that takes so much twice within the write timeout.
    async fn served(taken_at_once: usize) -> (io::Result<()>, Duration) {
        const LENGTH: usize = 20 * LEAST;
        let bytes = vec![0; LENGTH];
        let (mut client, server) = tokio::io::duplex(taken_at_once);
        let mut connection = Connection::new(server, WRITE_TIMEOUT, Arc::default());
        let begun = tokio::time::Instant::now();
        let reading = async {
            let mut piece = vec![0; taken_at_once];
            loop {
                tokio::time::sleep(WRITE_TIMEOUT * 2 / 5).await;
                client.read_exact(&mut piece).await.unwrap();
            }
        };
        let written = tokio::select! {
            written = connection.write_all(&bytes) => written,
            () = reading => unreachable!("it goes on"),
        };
        (written, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_gets_everything_and_one_that_takes_next_to_nothing_is_closed() {
        served(LEAST / 2).await.0.unwrap();
        let (written, after) = served(100).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(after.as_secs(), WRITE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_took_everything_has_the_whole_time_again() {
        let (mut client, server) = tokio::io::duplex(100);
        let mut connection = Connection::new(server, WRITE_TIMEOUT, Arc::default());
        for _ in 0..3 {
            let reading = async {
                tokio::time::sleep(WRITE_TIMEOUT * 3 / 4).await;
                client.read_exact(&mut [0; 200]).await.unwrap();
            };
            let writing = async {
                connection.write_all(&[0; 200]).await?;
                connection.flush().await
            };
            let (written, ()) = tokio::join!(writing, reading);
            written.unwrap();
        }
    }
}
