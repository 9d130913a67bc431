//! The bytes of a connection. A connection whose client takes nothing is closed. Refusals that the HTTP library
//! writes by itself get the shape of all errors.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::refusal;

/// A stream on which writing may not stand still.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    /// How long writing may stand still.
    write_timeout: Duration,
    /// Rings when it has stood still for too long; there while it stands still.
    stalled: Option<Pin<Box<Sleep>>>,
    /// A refusal that is written in place of the library's.
    refusal: Bytes,
    /// Whether a line has ended since the last answer: if not, what is too long is the request line.
    line_ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, write_timeout: Duration) -> Self {
        Self { stream, write_timeout, stalled: None, refusal: Bytes::new(), line_ended: false }
    }

    /// Passes the outcome of a write on, as an error if nothing has gone out for too long.
    fn watch<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let write_timeout = self.write_timeout;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_timeout)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of its answer")))
    }

    /// Writes what is left of a refusal.
    fn write_refusal(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.refusal.has_remaining() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.refusal);
            match ready!(self.watch(written, context))? {
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
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
        self.watch(written, context)
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
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_refusal(context))?;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(flushed, context)
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
        let mut connection = Connection::new(server, WRITE_TIMEOUT);
        let begun = tokio::time::Instant::now();
        let error = connection.write_all(&[0; 1_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_gets_everything() {
        let (mut client, server) = tokio::io::duplex(100);
        let mut connection = Connection::new(server, WRITE_TIMEOUT);
        let reading = async {
            let mut piece = [0; 100];
            for _ in 0..10 {
                tokio::time::sleep(WRITE_TIMEOUT / 2).await;
                client.read_exact(&mut piece).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(connection.write_all(&[0; 1_000]), reading);
        written.unwrap();
    }
}
