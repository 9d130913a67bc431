//! What a request would be as a run, without one.

use super::super::support::{Say, Summaries, TestAgent, Windowed, watch};
use super::{asking, brief, new_session, says, sent, session, tenant};
use crate::agent::error::StartError;
use crate::agent::{AskedPrompt, LimitsPatch, NewRun};
use crate::config::PromptConfig;
use crate::store::faulty::Faulty;
use crate::types::context::{ContextRules, Method};
use crate::types::prompt::{PromptLayer, PromptMode};
use crate::types::rules::LoopRules;
use crate::types::{Message, Micros, Role, RunId};

/// Row G18: the composed prompt and the sizes of its sections.
#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_all_and_does_nothing() {
    let store = Faulty::memory();
    let config = PromptConfig { mode: PromptMode::Full, request_layers: true, reveal: true, ..PromptConfig::default() };
    let agent = brief(config).store(store.clone()).turns(vec![Say::Text(&["answer"]), Say::Text(&["more"])]).begin();
    new_session(&agent).await;
    watch(agent.start(says("first"), None).await.unwrap()).await;
    let before = agent.sessions().get(&tenant(), &session()).await.unwrap();
    let asked = AskedPrompt { layers: vec![PromptLayer::new("tone", "Be kind.")], ..AskedPrompt::default() };
    let limits = LimitsPatch { cost_budget: Some(Micros(1_000_000)), ..LimitsPatch::default() };
    let new = NewRun { limits, ..asking(asked) };
    store.allow(0);
    let dry = agent.admission().dry_run(&new).await.unwrap();
    store.allow(usize::MAX / 2);
    assert_eq!(agent.model.requests.lock().len(), 1, "no model was called");
    let after = agent.sessions().get(&tenant(), &session()).await.unwrap();
    assert_eq!((after.version, after.session), (before.version, before.session), "nothing was stored");
    assert!(agent.runs().get(&tenant(), &new.id).await.is_err());

    let names: Vec<_> = dry.sections.iter().map(|note| note.name.as_str()).collect();
    assert_eq!(names, ["system", "tooling", "safety", "tone", "time", "runtime"]);
    assert_eq!((dry.sections[3].chars, dry.history), (8, 2));
    let first = dry.first_call.unwrap();
    assert!(first.cost.0 > 0 && dry.ceiling.used.cost == Micros(1_000_000) && dry.ceiling.calls >= 20);
    assert!(dry.shortens.is_none() && dry.refused.is_none() && dry.shows_prompt);
    assert_eq!(dry.tools.tools().count(), 3);

    watch(agent.start(new, None).await.unwrap()).await;
    let sent_then = sent(&agent.model.requests.lock()[1].conversation);
    let told: Vec<_> = sent(&dry.conversation);
    let of_run = |text: &(Role, String)| text.1.contains("<context>");
    let rest = |all: &[(Role, String)]| all.iter().filter(|text| !of_run(text)).cloned().collect::<Vec<_>>();
    assert_eq!(rest(&told), rest(&sent_then), "it is what the run sends");
    assert_eq!(told.iter().position(of_run), sent_then.iter().position(of_run));
    let sizes = dry.sizes;
    let total = sizes.system + sizes.of_run + sizes.history + sizes.input + sizes.tools;
    assert!(dry.context_tokens.abs_diff(total as u64 / 4) <= 4, "{sizes:?} {}", dry.context_tokens);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_would_be_left_out_and_what_no_budget_pays() {
    let model = Windowed::new(2_000, true, 0, Summaries::Written);
    let context = ContextRules { keep_last: 2, ..ContextRules::default() };
    let rules = LoopRules { context, ..LoopRules::default() };
    let agent = TestAgent::builder().windowed(&model, 2_000).rules(rules).begin();
    let said = |number: usize| Message::text(Role::User, &format!("{number} {}", "x".repeat(600)));
    let long: Vec<_> = (0..9).map(said).collect();
    let dry = agent.admission().dry_run(&NewRun { messages: long, ..says("") }).await.unwrap();
    assert_eq!(dry.shortens, Some(Method::Llm));
    assert!(dry.context_tokens > dry.most_context);
    let limits = LimitsPatch { token_budget: Some(10), ..LimitsPatch::default() };
    let dry = agent.admission().dry_run(&NewRun { limits, ..says("question") }).await.unwrap();
    assert!(dry.refused.is_some() && dry.first_call.is_none(), "{:?}", dry.refused);
    assert!(model.requests.lock().is_empty() && model.summarised.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_cannot_go_on_with_a_run() {
    let agent = brief(PromptConfig::default()).begin();
    let refused = agent.admission().dry_run(&NewRun { run: Some(RunId::mint()), ..says("question") }).await;
    assert!(matches!(refused, Err(StartError::Invalid { .. })));
    let unknown = agent.admission().dry_run(&NewRun { model: Some("nowhere/x".into()), ..says("question") }).await;
    assert!(matches!(unknown, Err(StartError::ModelNotFound { .. })));
}
