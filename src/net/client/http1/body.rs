//! A body while it arrives.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::Authority;

use super::connection::{Unsent, poll_read};
use super::error::{Http1Error, Malformed};
use super::exchange::Arriving;
use super::framing::Framing;
use super::pool::Pool;

/// A body. While it waits for what comes next it holds no buffer. Dropped before its end it closes the connection.
#[derive(Debug)]
pub(in super::super) struct Body {
    /// What came with the head.
    first: Bytes,
    /// What is still to come; `None` once nothing is.
    arriving: Option<Arriving>,
    pool: Arc<Pool>,
    server: Authority,
}

/// What a read brought.
enum Brought {
    /// This of the body, perhaps nothing.
    Data(Vec<u8>),
    /// The end of the connection.
    End,
}

impl Body {
    /// A body after whose end the connection is kept for the next request to this server.
    pub(super) fn new(first: Vec<u8>, arriving: Arriving, pool: Arc<Pool>, server: Authority) -> Self {
        let mut body = Self { first: first.into(), arriving: Some(arriving), pool, server };
        body.keep_connection_at_end();
        body
    }

    /// What arrives next; `None` at the end.
    pub(in super::super) async fn chunk(&mut self) -> Result<Option<Bytes>, Http1Error> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Http1Error>> {
        if !self.first.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.first))));
        }
        loop {
            let Some(arriving) = &mut self.arriving else { return Poll::Ready(Ok(None)) };
            let brought = ready!(arriving.poll(context)).and_then(|brought| match brought {
                Brought::End if arriving.framing != Framing::UntilClosed => Err(Http1Error::CutOff),
                brought @ (Brought::Data(_) | Brought::End) => Ok(brought),
            });
            match brought {
                Ok(Brought::Data(data)) => {
                    self.keep_connection_at_end();
                    if !data.is_empty() {
                        return Poll::Ready(Ok(Some(data.into())));
                    }
                }
                Ok(Brought::End) => self.arriving = None,
                Err(error) => {
                    self.arriving = None;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    fn keep_connection_at_end(&mut self) {
        if let Some(whole) = self.arriving.take_if(|arriving| arriving.framing.has_ended())
            && whole.may_go_on
            && whole.unsent.is_empty()
        {
            self.pool.keep(self.server.clone(), whole.connection);
        }
    }
}

impl Arriving {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Brought, Http1Error>> {
        if let Poll::Ready(Err(_)) = self.unsent.poll_send(&mut self.connection, context) {
            // The server reads no further. Its answer may be whole all the same.
            (self.unsent, self.may_go_on) = (Unsent::default(), false);
        }
        let Self { connection, framing, may_go_on, .. } = self;
        let take = |bytes: &[u8]| {
            if bytes.is_empty() {
                return Ok(Brought::End);
            }
            let mut data = Vec::new();
            *may_go_on &= framing.read(bytes, &mut data)? == bytes.len();
            Ok::<_, Malformed>(Brought::Data(data))
        };
        Poll::Ready(Ok(ready!(poll_read(connection, context, take))??))
    }
}
