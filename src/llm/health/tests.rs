use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::breaker::Change;
use super::shared::Claim;
use super::*;
use crate::llm::{ModelError, ModelErrorKind};

/// Others that are told nothing yet.
#[derive(Debug)]
struct Silent;

impl SharedHealth for Silent {
    fn note_changes(&self) {}

    fn claim<'a>(&'a self, _: &'a Target, _: Option<Change>) -> BoxFuture<'a, Claim> {
        std::future::ready(Claim::Granted).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_change_was_saved_does_not_undo_it() {
    let policy = BreakerPolicy { failures: 1, window_ms: 9_000, cooldown_ms: 9_000, ..BreakerPolicy::OFF };
    let (health, nothing) = (Health::default(), HashMap::new());
    health.share(Arc::new(Silent));
    let upstream = health.of_upstream("u", "", policy);
    let before = health.tick();
    let down = ModelError { status: Some(503), ..ModelError::new(ModelErrorKind::Transient, "it is down") };
    upstream.admit("m", false).await.unwrap().note_failure(&down);
    let is_open = || upstream.refusal("m").is_some();
    health.learn(before, &nothing, true);
    health.learn(health.tick(), &nothing, true);
    assert!(is_open(), "no other one can know of it yet");
    let read = health.tick();
    let [(target, unsaved)] = &health.unsaved()[..] else { panic!("it is to be saved") };
    health.note_saved(target, unsaved.tick);
    assert_eq!(health.unsaved(), []);
    health.learn(read, &nothing, true);
    assert!(is_open(), "it was read before that was stored");
    health.learn(health.tick(), &nothing, false);
    assert!(is_open(), "not all was read");
    health.learn(health.tick(), &nothing, true);
    assert!(!is_open());
}
