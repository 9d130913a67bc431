//! Files of agents: what models are told from the start.

use super::quota::{keyed, quotas, runs};
use super::support::*;
use crate::agent::NewRun;
use crate::agent::context::screen::texts;
use crate::agent::documents::Change;
use crate::agent::documents::files::{FILE_LIMITS, files_of};
use crate::agent::error::StartError;
use crate::types::memory::AgentFiles;
use crate::types::rules::LoopRules;
use crate::types::sampling::Sampling;
use crate::types::{SessionId, Tenant};

fn told() -> TestAgentBuilder {
    let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
    let files = AgentFiles { shared: names(&["SOUL.md", "AGENTS.md", "absent"]), of_user: names(&["USER.md"]) };
    TestAgent::builder().rules(LoopRules { files, ..unguarded() })
}

fn from(user: Option<&str>) -> NewRun {
    let mut new = request();
    new.options.sampling = std::sync::Arc::new(Sampling { user: user.map(Into::into), ..Sampling::default() });
    new
}

async fn write(agent: &TestAgent, user: Option<&str>, name: &str, content: &str) {
    let change = Change { content, ..Change::default() };
    let of = files_of("default", user);
    agent.documents().put(&Tenant::default_tenant(), &of, name, (&change, &FILE_LIMITS)).await.unwrap();
}

fn sent(agent: &TestAgent) -> String {
    let requests = agent.model.requests.lock();
    requests.last().unwrap().conversation.iter().map(texts).collect::<Vec<_>>().join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_run_is_told_the_files_as_they_are_when_it_begins() {
    let agent = told().begin();
    watch(agent.start(from(None), None).await.unwrap()).await;
    assert_eq!(sent(&agent), "question", "there are none");
    write(&agent, None, "AGENTS.md", "Use tools.").await;
    write(&agent, None, "SOUL.md", "Be kind.").await;
    write(&agent, None, "secret", "Not named.").await;
    watch(agent.start(from(None), None).await.unwrap()).await;
    assert_eq!(sent(&agent), "# SOUL.md\n\nBe kind.\n\n# AGENTS.md\n\nUse tools.\nquestion");
    write(&agent, None, "SOUL.md", "Be brief.").await;
    watch(agent.start(NewRun { session: SessionId::parse("s"), ..from(None) }, None).await.unwrap()).await;
    assert!(sent(&agent).starts_with("# SOUL.md\n\nBe brief."), "{}", sent(&agent));
    let tenant = Tenant::parse("other").unwrap();
    watch(agent.start(NewRun { tenant, ..from(None) }, None).await.unwrap()).await;
    assert_eq!(sent(&agent), "question", "they are of another tenant");
}

#[tokio::test(start_paused = true)]
async fn each_user_gets_a_copy_once_and_keeps_it() {
    let agent = told().begin();
    write(&agent, None, "USER.md", "Nothing is known.").await;
    for user in ["ann", "bob", "ann"] {
        watch(agent.start(from(Some(user)), None).await.unwrap()).await;
        assert!(sent(&agent).starts_with("# USER.md\n\nNothing is known."), "{}", sent(&agent));
    }
    let of = files_of("default", Some("ann"));
    let copy = agent.documents().get(&Tenant::default_tenant(), &of, "USER.md").await.unwrap().unwrap();
    assert_eq!((copy.text.content.as_str(), copy.version), ("Nothing is known.", 1), "it is made once");
    write(&agent, Some("ann"), "USER.md", "Ann likes tea.").await;
    write(&agent, None, "USER.md", "New users begin so.").await;
    for (user, expected) in [("ann", "Ann likes tea."), ("bob", "Nothing is known."), ("cat", "New users begin so.")] {
        watch(agent.start(from(Some(user)), None).await.unwrap()).await;
        assert!(sent(&agent).starts_with(&format!("# USER.md\n\n{expected}")), "{user}: {}", sent(&agent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_makes_no_copies() {
    let turns = vec![Say::Stall(&["x"]), Say::Text(&["answer"])];
    let agent = told().turns(turns).quotas(quotas(runs(1))).begin();
    write(&agent, None, "USER.md", "Nothing is known.").await;
    let first = agent.start(keyed(), None).await.unwrap();
    let new = || NewRun { key_name: keyed().key_name, ..from(Some("ann")) };
    let refused = agent.start(new(), None).await.map(|_| ());
    assert!(matches!(refused, Err(StartError::TooManyRuns(1))), "{refused:?}");
    let (tenant, of) = (Tenant::default_tenant(), files_of("default", Some("ann")));
    assert_eq!(agent.documents().list(&tenant, &of, None, 9).await.unwrap(), []);
    agent.runs().cancel(&tenant, &first.head.id).await.unwrap();
    watch(first).await;
    watch(agent.start(new(), None).await.unwrap()).await;
    assert_eq!(agent.documents().list(&tenant, &of, None, 9).await.unwrap().len(), 1);
}
