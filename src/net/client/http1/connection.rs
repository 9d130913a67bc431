//! A connection: writes a request, and reads what comes into memory that all connections of a thread share.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at a time.
const READ_SIZE: usize = 16 << 10;

thread_local! {
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SIZE].into());
}

/// What of a request is still to be sent.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    head: Bytes,
    body: Bytes,
    has_begun: bool,
}

impl Unsent {
    pub(super) fn new(head: Bytes, body: Bytes) -> Self {
        Self { head, body, has_begun: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    /// Whether any byte was sent.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Writes as much as the connection takes. What was sent is no longer held.
    pub(super) fn poll_send(&mut self, connection: &mut TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let pieces = [IoSlice::new(&self.head), IoSlice::new(&self.body)];
            let written = ready!(Pin::new(&mut *connection).poll_write_vectored(context, &pieces))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.has_begun = true;
            let of_head = written.min(self.head.len());
            advance(&mut self.head, of_head);
            advance(&mut self.body, written - of_head);
        }
        Poll::Ready(Ok(()))
    }
}

/// Bytes that are empty hold their memory still.
fn advance(bytes: &mut Bytes, count: usize) {
    bytes.advance(count);
    if bytes.is_empty() {
        *bytes = Bytes::new();
    }
}

/// Reads what has arrived, and hands it to `take`: nothing, if the server has closed the connection.
pub(super) fn poll_read<T>(
    connection: &mut TcpStream,
    context: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    READ.with_borrow_mut(|memory| {
        let mut buffer = ReadBuf::new(memory);
        ready!(Pin::new(connection).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    })
}

/// Whether a connection that nothing was asked on is still open, and nothing came that was not asked for. The operating
/// system is asked itself, because the runtime may not have heard of the end yet.
pub(super) fn is_quiet(connection: &TcpStream) -> bool {
    let peeked = socket2::SockRef::from(connection).peek(&mut [std::mem::MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
