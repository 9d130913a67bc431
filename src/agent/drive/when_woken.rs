//! A future that is polled when it was woken, however often the task around it is.
//!
//! A run's task is woken for each piece that its model says. What may interrupt the run is a handful of timers and
//! channels, of which hardly one rings in a run's life: polling all of them for each piece took a fifth of its time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The future, which must not be polled after it ended.
pub(in crate::agent) struct WhenWoken<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    /// Rings the bell.
    waker: Waker,
}

/// Whether the future was woken, and the task that polls it.
struct Bell {
    has_rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F: Future> WhenWoken<F> {
    pub(in crate::agent) fn new(future: F) -> Self {
        let bell = Arc::new(Bell { has_rung: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { future: Box::pin(future), waker: Waker::from(bell.clone()), bell }
    }
}

impl<F: Future> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // The task first: it is woken by what rings from now on, and what rang before is seen.
        self.bell.task.register(context.waker());
        if !self.bell.has_rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let waker = self.waker.clone();
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_when_it_was_woken_and_not_when_others_were() {
        let polls = Cell::new(0);
        let (ring, mut rung) = oneshot::channel();
        let counted = poll_fn(|context| {
            polls.set(polls.get() + 1);
            Pin::new(&mut rung).poll(context)
        });
        let mut waiting = WhenWoken::new(counted);
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("nothing rang"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(polls.get(), 1);
        ring.send(7).unwrap();
        assert_eq!((waiting.await, polls.get()), (Ok(7), 2));
    }
}
