//! Writes the body of a streamed answer, of which the HTTP library has written the head.
//!
//! The library keeps a buffer for what it might read and one for what it wrote, 8 KiB each, as long as a body lasts, and
//! that of a stream may last for minutes in which nothing happens. What is here has memory only for what waits to be written.

use std::io;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::Body;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::answering::Answering;
use super::connection::Connection;

/// How much of a body is joined before it is written: what is ready at once leaves in one piece.
const JOINED: usize = 16 << 10;
/// What a chunk takes beside its data, with room for the last one behind it.
const FRAMING: usize = 24;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Whether a client takes an answer in chunks over a connection that lasts longer than that.
pub(super) fn takes_chunks<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11
        && request.method() != Method::HEAD
        && request
            .headers()
            .get_all(CONNECTION)
            .iter()
            .all(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

/// Whether the library writes the body of this answer in chunks, to a client that takes them.
pub(super) fn is_chunked<B: Body>(response: &Response<B>) -> bool {
    let has = |name| HeaderMap::contains_key(response.headers(), name);
    let (body, status) = (response.body(), response.status());
    let is_plain = ![CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].into_iter().any(has);
    is_plain && status == StatusCode::OK && !body.is_end_stream() && body.size_hint().exact().is_none()
}

/// Writes a body to its end. Fails if the client goes away or the body breaks off.
pub(super) async fn write(body: Answering, to: &mut Connection<TcpStream>) -> io::Result<()> {
    let mut streamed = Streamed::new(body);
    std::future::poll_fn(|context| {
        let written = streamed.poll_write(to, context, Connection::note_if_gone);
        if written.is_pending() && streamed.is_watched {
            streamed.watch(to, context)?;
        }
        written
    })
    .await
}

struct Streamed<B> {
    body: B,
    /// Chunks that are being written.
    out: Vec<u8>,
    /// How much of them has been.
    written: usize,
    ended: bool,
    /// Whether the client has sent nothing meanwhile. If it has, nothing shows that it has gone away but writing.
    is_watched: bool,
}

impl<B: Body<Data = Bytes, Error = axum::Error> + Unpin> Streamed<B> {
    fn new(body: B) -> Self {
        Self { body, out: Vec::new(), written: 0, ended: false, is_watched: true }
    }

    /// Writes the body to its end. Whenever this is pending, the connection or the body wakes the task: the body is asked
    /// after each write to the end of `out`, because a wake of the body is used up by a poll in which the connection is full.
    /// Does `before_last` before it writes the end of the body.
    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        to: &mut W,
        context: &mut Context<'_>,
        before_last: impl Fn(&W, &mut Context<'_>),
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_drain(to, context))?;
            if !self.ended && self.poll_join(context)?.is_ready() {
                if self.ended && self.is_watched {
                    before_last(to, context);
                }
                continue;
            }
            ready!(Pin::new(&mut *to).poll_flush(context))?;
            return if self.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
    }

    /// Writes all of `out`. It is pending only if the connection is.
    fn poll_drain<W: AsyncWrite + Unpin>(&mut self, to: &mut W, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match ready!(Pin::new(&mut *to).poll_write(context, &self.out[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        // Gives the memory back too.
        (self.out, self.written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Joins in `out`, which is empty, what there is of the body. It is pending only if the body is and there was nothing.
    fn poll_join(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.len() < JOINED {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending if self.out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Some(frame)) => {
                    self.push(&frame.map_err(io::Error::other)?.into_data().unwrap_or_default())?;
                }
                Poll::Ready(None) => {
                    self.out.extend_from_slice(LAST_CHUNK);
                    self.ended = true;
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn push(&mut self, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            // An empty chunk would be the end.
            return Ok(());
        }
        self.out.reserve(data.len() + FRAMING);
        write!(self.out, "{:X}\r\n", data.len())?;
        self.out.extend_from_slice(data);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Fails once the client has gone away.
    fn watch(&mut self, of: &Connection<TcpStream>, context: &mut Context<'_>) -> io::Result<()> {
        match of.poll_arrived(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(true)) => {
                self.is_watched = false;
                Ok(())
            }
            Poll::Ready(Ok(false)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Err(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::stream;
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::sync::mpsc;
    use tokio_util::task::TaskTracker;

    use super::*;

    /// What the other side takes before it has to be read.
    const TAKEN: usize = 1_000;
    const PIECE: &[u8] = &[b'x'; JOINED];

    /// Writes what `said` brings, until it ends, to the other side that this returns.
    fn writes(said: mpsc::Receiver<&'static [u8]>) -> DuplexStream {
        let (client, mut server) = tokio::io::duplex(TAKEN);
        let pieces = stream::unfold(said, async |mut said| Some((Ok::<_, io::Error>(said.recv().await?), said)));
        let mut streamed = Streamed::new(axum::body::Body::from_stream(pieces));
        TaskTracker::new().spawn(async move {
            std::future::poll_fn(|context| streamed.poll_write(&mut server, context, |_, _| {})).await.unwrap();
        });
        client
    }

    /// Lets everything go on until nothing can: only then a clock that is paused goes on.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Reads to the end, which has to come without a wait.
    async fn rest(client: &mut DuplexStream) -> String {
        let mut text = String::new();
        tokio::time::timeout(Duration::from_secs(1), client.read_to_string(&mut text))
            .await
            .expect("it goes on")
            .unwrap();
        text
    }

    fn chunked(pieces: &[&[u8]]) -> String {
        let chunks = pieces.iter().map(|piece| format!("{:X}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
        chunks.chain(["0\r\n\r\n".to_owned()]).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_a_body_that_was_ready_is_written_once_the_client_reads_on() {
        const PIECES: usize = 256;
        let (says, said) = mpsc::channel(PIECES);
        for _ in 0..PIECES {
            says.send(PIECE).await.unwrap();
        }
        drop(says);
        let mut client = writes(said);
        settle().await;
        assert!(rest(&mut client).await == chunked(&[PIECE; PIECES]), "all of it, as it was");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_body_says_while_the_client_takes_nothing_is_written_once_the_client_reads_on() {
        // The first fills what is joined, so the body is not asked for more; the other does not, so the body is.
        for first in [PIECE, &PIECE[..2 * TAKEN]] {
            let (says, said) = mpsc::channel(8);
            says.send(first).await.unwrap();
            let mut client = writes(said);
            settle().await;
            says.send(b"more").await.unwrap();
            settle().await;
            let head = format!("{:X}\r\n", first.len());
            let mut text = vec![0; head.len() + first.len() + b"\r\n4\r\nmore\r\n".len()];
            let read = client.read_exact(&mut text);
            tokio::time::timeout(Duration::from_secs(1), read).await.expect("it goes on").unwrap();
            drop(says);
            let text = String::from_utf8(text).unwrap() + &rest(&mut client).await;
            assert!(text == chunked(&[first, b"more"]), "all of it, as it was");
        }
    }
}
