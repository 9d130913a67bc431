//! The bytes of a connection, however it was made.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// A connection of any kind.
trait Bytes: Read + Write + Connection + Unpin + Send {}

impl<T: Read + Write + Connection + Unpin + Send> Bytes for T {}

/// A connection to a server, or to a proxy that passes requests on.
pub(super) struct Stream {
    bytes: Box<dyn Bytes>,
    to_proxy: bool,
}

impl Stream {
    /// One to the server itself, perhaps through a tunnel.
    pub(super) fn direct(bytes: impl Read + Write + Connection + Unpin + Send + 'static) -> Self {
        Self { bytes: Box::new(bytes), to_proxy: false }
    }

    /// One to a proxy, which is told with each request where that goes.
    pub(super) fn to_proxy(bytes: impl Read + Write + Connection + Unpin + Send + 'static) -> Self {
        Self { bytes: Box::new(bytes), to_proxy: true }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.bytes.connected().proxy(self.to_proxy)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(context, into)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.bytes.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
