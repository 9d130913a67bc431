//! Writes the body of a streamed answer, of which the HTTP library has written the head.
//!
//! The library keeps a buffer for what it might read and one for what it wrote, 8 KiB each, as long as a body lasts, and
//! that of a stream may last for minutes in which nothing happens. What is here has memory only for what waits to be written.

use std::io;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
        && request.headers().get(CONNECTION).is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
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
    let mut streamed = Streamed { body, out: Vec::new(), written: 0, ended: false, is_watched: true };
    std::future::poll_fn(|context| {
        let written = streamed.poll_write(to, context);
        if written.is_pending() && streamed.is_watched {
            streamed.watch(to, context)?;
        }
        written
    })
    .await
}

struct Streamed {
    body: Answering,
    /// Chunks that are being written.
    out: Vec<u8>,
    /// How much of them has been.
    written: usize,
    ended: bool,
    /// Whether the client has sent nothing meanwhile. If it has, nothing shows that it has gone away but writing.
    is_watched: bool,
}

impl Streamed {
    fn poll_write(&mut self, to: &mut Connection<TcpStream>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_more = !self.ended && self.written == 0 && self.join(context)?;
            while self.written < self.out.len() {
                match ready!(Pin::new(&mut *to).poll_write(context, &self.out[self.written..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => self.written += count,
                }
            }
            // Gives the memory back too.
            (self.out, self.written) = (Vec::new(), 0);
            if !is_more {
                ready!(Pin::new(&mut *to).poll_flush(context))?;
                return if self.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
    }

    /// Joins what there is of the body. Returns whether there may be more at once.
    fn join(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        while self.out.len() < JOINED {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Some(frame)) => {
                    self.push(&frame.map_err(io::Error::other)?.into_data().unwrap_or_default())?;
                }
                Poll::Ready(None) => {
                    self.out.extend_from_slice(LAST_CHUNK);
                    self.ended = true;
                    return Ok(false);
                }
            }
        }
        Ok(true)
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
