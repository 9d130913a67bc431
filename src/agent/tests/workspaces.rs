//! How long the files of sessions and runs are kept.

use std::sync::Arc;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::support::TestAgent;
use crate::agent::Generation;
use crate::agent::error::LookupError;
use crate::agent::session::NewSession;
use crate::agent::session::fork::Fork;
use crate::config::WorkspaceConfig;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::tools::workspace::{Changes, FilePath};
use crate::tools::{CallContext, ProgressSink, QuestionSink, Workspaces};
use crate::types::{RunId, SessionId, Tenant};

/// An agent whose tools keep files.
fn agent(store: Arc<dyn Store>) -> (TempDir, TestAgent, Arc<Workspaces>) {
    let root = tempdir().unwrap();
    let workspaces = Arc::new(Workspaces::new(&WorkspaceConfig::of(root.path().to_owned())).unwrap());
    let agent = TestAgent::builder().store(store).build();
    agent.replace_generation(Generation { workspaces: Some(workspaces.clone()), ..Generation::default() });
    (root, agent, workspaces)
}

fn call(session: Option<&str>) -> CallContext {
    let run = RunId::mint();
    CallContext {
        tenant: Tenant::default_tenant(),
        session: session.and_then(SessionId::parse),
        user: None,
        metadata: [].into(),
        agent: "default".into(),
        call: run.call(1),
        run,
        step: 1,
        attempt: 1,
        trace: None,
        request_id: None,
        timeout: Duration::from_secs(60),
        fence: 1,
        callback_token: None,
        progress: ProgressSink::default(),
        questions: QuestionSink::default(),
    }
}

async fn write(workspaces: &Workspaces, session: Option<&str>) {
    let writes = [(FilePath::parse("f").unwrap(), b"x".to_vec())].into();
    workspaces.of(&call(session)).unwrap().change(Changes { writes, ..Changes::default() }).await.unwrap();
}

async fn files(workspaces: &Workspaces, session: &str) -> usize {
    workspaces.of(&call(Some(session))).unwrap().list("").await.unwrap().1.files
}

async fn create(agent: &TestAgent, id: &str) {
    let new = NewSession { id: SessionId::parse(id), ..NewSession::default() };
    agent.sessions().create(&Tenant::default_tenant(), new).await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_deleted_takes_its_files_along_and_a_fork_has_none() {
    let (_root, agent, workspaces) = agent(Arc::new(MemoryStore::default()));
    let tenant = Tenant::default_tenant();
    create(&agent, "s").await;
    write(&workspaces, Some("s")).await;
    let fork = Fork { id: SessionId::parse("fork"), ..Fork::default() };
    let id = SessionId::parse("s").unwrap();
    agent.sessions().fork(&tenant, &id, fork).await.unwrap();
    assert_eq!((files(&workspaces, "s").await, files(&workspaces, "fork").await), (1, 0));
    agent.sessions().delete(&tenant, &id).await.unwrap();
    assert_eq!(files(&workspaces, "s").await, 0);
    create(&agent, "s").await;
    assert_eq!(files(&workspaces, "s").await, 0, "a new session of the same id finds none of them");
}

#[tokio::test]
async fn a_session_whose_files_cannot_be_deleted_is_not_deleted() {
    let (root, agent, workspaces) = agent(Arc::new(MemoryStore::default()));
    let tenant = Tenant::default_tenant();
    create(&agent, "s").await;
    write(&workspaces, Some("s")).await;
    let (volume, elsewhere) = (root.path().to_owned(), root.path().with_extension("unmounted"));
    std::fs::rename(&volume, &elsewhere).unwrap();
    let id = SessionId::parse("s").unwrap();
    let failed = agent.sessions().delete(&tenant, &id).await.unwrap_err();
    assert!(matches!(failed, LookupError::Store(_)), "{failed}");
    std::fs::rename(&elsewhere, &volume).unwrap();
    agent.sessions().delete(&tenant, &id).await.unwrap();
    assert_eq!(files(&workspaces, "s").await, 0);
}

#[tokio::test]
async fn files_of_sessions_and_runs_that_are_gone_are_removed_and_others_stay() {
    let (_root, agent, workspaces) = agent(Arc::new(MemoryStore::default()));
    create(&agent, "lives").await;
    for session in [Some("lives"), Some("expired"), None] {
        write(&workspaces, session).await;
    }
    let recovery = &agent.rooms.recovery;
    recovery.remove_workspaces(&workspaces, Duration::from_secs(3_600)).await;
    assert_eq!(workspaces.passing().await.unwrap().len(), 3, "what changed lately stays");
    let soon = Duration::ZERO;
    recovery.remove_workspaces(&workspaces, soon).await;
    assert_eq!(workspaces.passing().await.unwrap().len(), 1);
    assert_eq!(files(&workspaces, "lives").await, 1);
}
