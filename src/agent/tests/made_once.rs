use std::sync::Arc;

use super::idempotency::{by_key, memory, replica};
use crate::agent::error::{ClaimError, LookupError};
use crate::agent::listed::Traits;
use crate::agent::request_key::RequestKey;
use crate::agent::session::NewSession;
use crate::store::faulty::{Fate, Faulty};
use crate::store::{Order, Store, Write};
use crate::types::{SessionId, Tenant};

#[tokio::test(start_paused = true)]
async fn a_session_is_made_once() {
    let faulty = Faulty::memory();
    let store: Arc<dyn Store> = faulty.clone();
    let agent = replica(&store);
    let make = async |name: &str| {
        let once = RequestKey { name: name.into(), ..by_key() };
        let make = |id| agent.sessions().create(&TENANT, NewSession { id: Some(id), ..NewSession::default() });
        agent.admission().make_session(&TENANT, Some(&once), SessionId::mint(), Arc::default(), make).await
    };
    let (first, was_there) = make("a").await.unwrap();
    let (again, was_there_then) = make("a").await.unwrap();
    assert_eq!((&first.session.id, was_there, was_there_then), (&again.session.id, false, true));
    assert_ne!(make("b").await.unwrap().0.session.id, first.session.id);

    faulty.next(
        |tx| tx.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if **key == *"session")),
        Fate::FailsAfterwards,
    );
    assert!(matches!(make("c").await, Err(LookupError::Store(_))));
    let (third, was_there) = make("c").await.unwrap();
    assert!(was_there, "it was made, though nobody said so");
    let listed =
        agent.sessions().list(&TENANT, &Traits::default(), None, (10, Order::Ascending)).await.unwrap().found.len();
    agent.sessions().delete(&*TENANT, &first.session.id).await.unwrap();
    assert!(matches!(make("a").await, Err(LookupError::Claim(ClaimError::Gone))));
    assert_eq!((listed, third.version), (3, 1), "what nobody acknowledged is listed too");
}

static TENANT: std::sync::LazyLock<Tenant> = std::sync::LazyLock::new(Tenant::default_tenant);

#[tokio::test(start_paused = true)]
async fn creating_a_session_whose_chosen_id_exists_is_refused() {
    let store = memory();
    let agent = replica(&store);
    let id = SessionId::parse("mine").unwrap();
    let new = NewSession { id: Some(id.clone()), ..NewSession::default() };
    agent.sessions().create(&TENANT, new.clone()).await.unwrap();
    let make = |_| agent.sessions().create(&TENANT, new.clone());
    let refused = agent.admission().make_session(&TENANT, Some(&by_key()), id.clone(), Arc::default(), make).await;
    assert!(matches!(refused, Err(LookupError::SessionExists(_))), "{refused:?}");
    agent.sessions().delete(&*TENANT, &id).await.unwrap();
    let make = |_| agent.sessions().create(&TENANT, new);
    assert!(
        !agent.admission().make_session(&TENANT, Some(&by_key()), id, Arc::default(), make).await.unwrap().1,
        "the key was given back"
    );
}
