//! Serves one connection. The HTTP library gets the connection only while there is something for the library to do, because
//! the library keeps buffers for as long as it has a connection, and most connections wait most of the time.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::ConnectInfo;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::answer::{Answer, Told};
use super::answering::Answering;
use super::connection::Connection;
use super::heartbeat::Heartbeat;
use super::listening::Listening;
use super::progress::Progress;
use super::slots::Slot;
use super::{socket, streamed};
use crate::api::health::Stalled;

/// How long a connection waits for its next request before the HTTP library gives up its buffers. Not a setting: clients that
/// ask one request after the other do so at once, and getting buffers again takes next to nothing.
const IDLE_AFTER: Duration = Duration::from_secs(1);

impl Listening {
    /// Serves one connection until it ends, or has to. One that begins with a probe is served beside the others, whose
    /// `heartbeat` the probe asks for; it ends with the answer. Its first request must begin within `begin_within`.
    pub(super) async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        address: SocketAddr,
        slot: Slot,
        begin_within: Duration,
        heartbeat: Option<Arc<Heartbeat>>,
    ) {
        if let Err(error) = socket::prepare(&stream, self.bounds.write_timeout) {
            return tracing::debug!(%address, %error, "a connection could not be prepared");
        }
        let progress = Arc::<Progress>::default();
        let bytes = Connection::new(stream, self.bounds.write_timeout, progress.clone());
        let served = Served { listening: self, address, slot: Arc::new(slot), heartbeat, progress };
        if let Err(error) = served.serve(bytes, begin_within).await {
            served.progress.cut();
            tracing::debug!(%address, %error, "a connection broke");
        }
    }
}

/// A connection that is served.
struct Served {
    listening: Arc<Listening>,
    address: SocketAddr,
    slot: Arc<Slot>,
    /// There for a probe.
    heartbeat: Option<Arc<Heartbeat>>,
    progress: Arc<Progress>,
}

/// Why a connection broke.
type Failure = Box<dyn Error + Send + Sync>;
/// A connection that the HTTP library has done with for now; `None` once it has ended.
type Left = Option<Connection<TcpStream>>;

impl Served {
    async fn serve(&self, mut bytes: Connection<TcpStream>, begin_within: Duration) -> Result<(), Failure> {
        let mut begin_within = Some(begin_within);
        while let Some(left) = Box::pin(self.speak(bytes, begin_within.take())).await? {
            bytes = left;
            if let Some(body) = self.progress.take() {
                streamed::write(body, &mut bytes).await?;
                self.progress.end();
            }
            if !self.is_asked_again(&bytes).await? {
                bytes.shutdown().await?;
                break;
            }
        }
        Ok(())
    }

    /// Lets the HTTP library answer requests until it has nothing to do for a while. `begin_within` bounds how long the first
    /// request may take to come.
    async fn speak(&self, bytes: Connection<TcpStream>, begin_within: Option<Duration>) -> Result<Left, Failure> {
        self.progress.resume();
        let begun = CancellationToken::new();
        let service = service_fn(|request| {
            begun.cancel();
            self.answer(request)
        });
        let mut connection = self.listening.http.clone();
        let mut connection =
            connection.keep_alive(self.heartbeat.is_none()).serve_connection(TokioIo::new(bytes), service);
        let mut too_late = pin!(async {
            match begin_within {
                Some(limit) if tokio::time::timeout(limit, begun.cancelled()).await.is_err() => {}
                _ => std::future::pending().await,
            }
        });
        let mut idle = Idle::default();
        let mut closing = false;
        loop {
            let ended = poll_fn(|context| match Pin::new(&mut connection).poll(context) {
                Poll::Pending if self.progress.is_kept() => Poll::Ready(None),
                Poll::Pending => idle.poll(self.progress.is_idle(), context).map(|()| None),
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
            });
            tokio::select! {
                ended = ended => match ended {
                    Some(ended) => return Ok(ended.map(|()| None)?),
                    None => break,
                },
                () = too_late.as_mut() => {
                    tracing::debug!(address = %self.address, "a connection sent no request");
                    return Ok(None);
                }
                () = self.slot.give_way.cancelled(), if !closing => {
                    tracing::debug!(address = %self.address, "an idle connection gives way to another");
                    if begin_within.is_some() && !begun.is_cancelled() {
                        return Ok(None);
                    }
                    closing = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                () = self.listening.stop.cancelled(), if !closing => {
                    closing = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
        }
        let parts = connection.into_parts();
        let mut bytes = parts.io.into_inner();
        bytes.unread(parts.read_buf);
        Ok(Some(bytes))
    }

    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Result<Response<Answer>, Infallible>> + use<> {
        let busy = self.slot.busy();
        let takes_chunks = self.heartbeat.is_none() && streamed::takes_chunks(&request);
        let mut request = self.progress.begin(request);
        mark(&mut request, self.address, &self.slot, self.heartbeat.as_deref());
        let (router, progress) = (self.listening.router.clone(), self.progress.clone());
        async move {
            let mut response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
            if let Some(fate) = response.extensions_mut().remove() {
                progress.keep_fate(fate);
            }
            let is_kept = takes_chunks && progress.has_read() && streamed::is_chunked(&response);
            Ok(response.map(|body| {
                let body = Answering::new(body, busy);
                if !is_kept {
                    return Answer::Here { body, _told: Told(progress) };
                }
                progress.keep(body);
                Answer::Elsewhere
            }))
        }
    }

    /// Waits for the next request. Returns whether one comes.
    async fn is_asked_again(&self, bytes: &Connection<TcpStream>) -> io::Result<bool> {
        let arrived = poll_fn(|context| bytes.poll_arrived(context));
        tokio::select! {
            biased;
            () = self.listening.stop.cancelled() => Ok(false),
            () = self.slot.give_way.cancelled() => {
                tracing::debug!(address = %self.address, "an idle connection gives way to another");
                Ok(false)
            }
            arrived = tokio::time::timeout(self.listening.bounds.keep_alive, arrived) => arrived.unwrap_or(Ok(false)),
        }
    }
}

/// Rings once a connection has been idle for a while.
#[derive(Default)]
struct Idle {
    timer: Option<Pin<Box<Sleep>>>,
    was_idle: bool,
}

impl Idle {
    fn poll(&mut self, is_idle: bool, context: &mut Context<'_>) -> Poll<()> {
        let begins = !std::mem::replace(&mut self.was_idle, is_idle);
        if !is_idle {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(IDLE_AFTER)));
        if begins {
            timer.as_mut().reset(Instant::now() + IDLE_AFTER);
        }
        timer.as_mut().poll(context)
    }
}

/// Attaches to a request what its connection is known for.
fn mark<B>(request: &mut Request<B>, address: SocketAddr, slot: &Slot, heartbeat: Option<&Heartbeat>) {
    let extensions = request.extensions_mut();
    extensions.insert(ConnectInfo(address));
    if let Some(surplus) = slot.surplus {
        extensions.insert(surplus);
    }
    if heartbeat.is_some_and(Heartbeat::has_stopped) {
        extensions.insert(Stalled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_waits_is_a_small_task() {
        fn of<F: Future>(_: impl FnOnce(Arc<Listening>, TcpStream, SocketAddr, Slot) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = of(|listening, stream, address, slot| listening.serve(stream, address, slot, Duration::ZERO, None));
        assert!(bytes <= 1_344, "it takes {bytes} bytes");
    }
}
