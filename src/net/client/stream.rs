//! The bytes of a connection, however it was made.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};

use super::distrust::distrust;

/// A connection of any kind.
trait Bytes: Read + Write + Connection + Unpin + Send {}

impl<T: Read + Write + Connection + Unpin + Send> Bytes for T {}

/// A connection to a server, or to a proxy that passes requests on.
pub(super) struct Stream {
    bytes: Box<dyn Bytes>,
    to_proxy: bool,
    /// Whether a read has come to something, if only to the end.
    was_read: bool,
    is_used_again: UsedAgain,
    refusal: Refusal,
}

/// Whether a connection was kept for the next request, and took it: something was written after something was read.
#[derive(Debug, Clone, Default)]
pub(super) struct UsedAgain(Arc<AtomicBool>);

impl UsedAgain {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How the server refused the connection after it was taken for open, as the newest version of TLS allows.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusal(Arc<OnceLock<rustls::Error>>);

impl Refusal {
    /// Notes what broke the connection, if that is a refusal.
    fn note(&self, error: &io::Error) {
        if let Some(refusal) = distrust(error) {
            self.0.get_or_init(|| refusal.clone());
        }
    }

    pub(super) fn get(&self) -> Option<rustls::Error> {
        self.0.get().cloned()
    }
}

impl Stream {
    /// One to the server itself, perhaps through a tunnel.
    pub(super) fn direct<T: Read + Write + Connection + Unpin + Send + 'static>(bytes: MaybeHttpsStream<T>) -> Self {
        // Only one with TLS takes the kilobyte that TLS needs.
        let bytes: Box<dyn Bytes> = match bytes {
            MaybeHttpsStream::Http(plain) => Box::new(plain),
            encrypted @ MaybeHttpsStream::Https(_) => Box::new(encrypted),
        };
        Self {
            bytes,
            to_proxy: false,
            was_read: false,
            is_used_again: UsedAgain::default(),
            refusal: Refusal::default(),
        }
    }

    /// One to a proxy, which is told with each request where that goes.
    pub(super) fn to_proxy<T: Read + Write + Connection + Unpin + Send + 'static>(bytes: MaybeHttpsStream<T>) -> Self {
        Self { to_proxy: true, ..Self::direct(bytes) }
    }

    fn note_write(&self) {
        if self.was_read {
            self.is_used_again.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.bytes.connected().proxy(self.to_proxy).extra(self.is_used_again.clone()).extra(self.refusal.clone())
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.bytes).poll_read(context, into)).inspect_err(|error| self.refusal.note(error))?;
        self.was_read = true;
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.note_write();
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note_write();
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

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_connection_without_tls_takes_no_memory_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Stream::direct(MaybeHttpsStream::Http(TokioIo::new(plain)));
        let bytes = size_of_val(&*stream.bytes);
        assert!(bytes <= 64, "{bytes}");
    }
}
