//! One request over one connection, up to the head of its answer.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request};
use tokio::net::TcpStream;

use super::connection::{Unsent, poll_read};
use super::error::{Http1Error, Malformed};
use super::framing::Framing;
use super::head::{self, Head, Read};
use super::request;

/// Most answers that only say that the answer is still to come.
const MAX_INTERIM: u8 = 16;

/// A request that is sent, and answered.
pub(super) struct Exchange {
    connection: TcpStream,
    /// Whether the connection was kept from an earlier request.
    was_kept: bool,
    unsent: Unsent,
    /// Whether no more can be sent. A server that refuses a request may have said so before.
    cannot_send: bool,
    beginning: Beginning,
}

/// A body that is still to come.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) connection: TcpStream,
    pub(super) framing: Framing,
    /// Whether the connection can be used again after the body.
    pub(super) may_go_on: bool,
    /// What is still to be sent, if the server answers before it has all.
    pub(super) unsent: Unsent,
}

/// An answer up to its head.
struct Beginning {
    method: Method,
    /// What arrived of a head that is not whole yet.
    partial: Vec<u8>,
    interim: u8,
}

/// The head, what came of the body with it, and whether nothing else came.
type Answered = (Box<Head>, Vec<u8>, bool);

/// What arrived.
enum Arrived {
    /// The end of the connection.
    End,
    /// Less than the head.
    Partial,
    Head(Answered),
}

impl Exchange {
    pub(super) fn new(connection: TcpStream, request: &Request<Bytes>, was_kept: bool) -> Self {
        let body = request.body().clone();
        let head = request::head(request.method(), request.uri(), request.headers(), body.len());
        let beginning = Beginning { method: request.method().clone(), partial: Vec::new(), interim: 0 };
        Self { connection, was_kept, unsent: Unsent::new(head, body), cannot_send: false, beginning }
    }

    /// Sends the request and waits for the head of its answer. Returns with it what came of the body.
    pub(super) async fn answer(mut self) -> Result<(Box<Head>, Vec<u8>, Arriving), Http1Error> {
        let (head, first, is_all) = poll_fn(|context| self.poll(context)).await?;
        let may_go_on = head.may_go_on && is_all && !self.cannot_send;
        let unsent = if self.cannot_send { Unsent::default() } else { self.unsent };
        let framing = head.framing;
        Ok((head, first, Arriving { connection: self.connection, framing, may_go_on, unsent }))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Answered, Http1Error>> {
        if !self.cannot_send
            && let Poll::Ready(Err(_)) = self.unsent.poll_send(&mut self.connection, context)
        {
            if self.was_kept && !self.unsent.has_begun() {
                return Poll::Ready(Err(Http1Error::Unsent));
            }
            self.cannot_send = true;
        }
        loop {
            let read = poll_read(&mut self.connection, context, |bytes| self.beginning.take(bytes));
            match ready!(read).map_err(|error| self.broken(error))?? {
                Arrived::Partial => {}
                Arrived::End if self.may_have_been_idle() => return Poll::Ready(Err(Http1Error::Closed)),
                Arrived::End => return Poll::Ready(Err(Http1Error::Unanswered)),
                Arrived::Head(answered) => return Poll::Ready(Ok(answered)),
            }
        }
    }

    /// A server that closes a connection just as a request arrives resets the connection, so that says no more than its
    /// end would.
    fn broken(&self, error: io::Error) -> Http1Error {
        let is_reset = matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        if is_reset && self.may_have_been_idle() { Http1Error::Closed } else { Http1Error::Broken(error) }
    }

    /// Whether the server may have closed the connection because it was idle. One that says nothing on a fresh connection
    /// cannot be there: a balancer accepts connections while the server behind it restarts.
    fn may_have_been_idle(&self) -> bool {
        self.was_kept && self.beginning.partial.is_empty() && self.beginning.interim == 0
    }
}

impl Beginning {
    fn take(&mut self, bytes: &[u8]) -> Result<Arrived, Malformed> {
        if bytes.is_empty() {
            return Ok(Arrived::End);
        }
        let mut partial = std::mem::take(&mut self.partial);
        let (mut at, mut seen) = (0, partial.len());
        let arrived = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        loop {
            match head::read(&arrived[at..], seen, &self.method)? {
                Read::Partial => {
                    self.partial = if at == 0 && !partial.is_empty() { partial } else { arrived[at..].to_vec() };
                    return Ok(Arrived::Partial);
                }
                Read::Interim(length) => {
                    self.interim += 1;
                    if self.interim > MAX_INTERIM {
                        return Err(Malformed("it only ever says that it is still to come"));
                    }
                    (at, seen) = (at + length, 0);
                }
                Read::Whole(mut head, length) => {
                    let (rest, mut data) = (&arrived[at + length..], Vec::new());
                    let read = head.framing.read(rest, &mut data)?;
                    return Ok(Arrived::Head((Box::new(head), data, read == rest.len())));
                }
            }
        }
    }
}
