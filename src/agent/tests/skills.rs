//! What agents know how to do.

use super::support::*;
use crate::agent::NewRun;
use crate::agent::context::screen::texts;
use crate::agent::documents::Change;
use crate::agent::documents::skills::{SKILL_LIMITS, skills_of_tenant};
use crate::config::SkillsConfig;
use crate::types::Conversation;
use crate::types::policy::{Layer, Rule};
use crate::types::rules::LoopRules;
use crate::types::skill::Skill;
use crate::types::{Event, Record, Tenant};

fn skill(name: &str, description: &str) -> Skill {
    Skill { name: name.into(), description: description.into(), instructions: format!("How to {name}.") }
}

fn skilled(patterns: &[&str], skills: Vec<Skill>, inline_max: u32) -> TestAgentBuilder {
    let rules = LoopRules { skills: patterns.iter().map(|&name| name.into()).collect(), ..unguarded() };
    let config = SkillsConfig { skills: skills.into(), inline_max, ..SkillsConfig::default() };
    TestAgent::builder().rules(rules).skills(config)
}

fn offered(agent: &TestAgent) -> Vec<String> {
    let requests = agent.model.requests.lock();
    let tools = requests.last().unwrap().tools.tools();
    tools.map(|tool| tool.name.clone()).filter(|name| name.contains("skill")).collect()
}

fn sent(agent: &TestAgent) -> String {
    joined(&agent.model.requests.lock().last().unwrap().conversation)
}

fn results(records: &[Record]) -> Vec<String> {
    let result = |record: &Record| match &record.event {
        Event::ToolFinished { outcome, .. } => Some(outcome.text().into_owned()),
        _ => None,
    };
    records.iter().filter_map(result).collect()
}

async fn put(agent: &TestAgent, tenant: &Tenant, name: &str) {
    let change = Change { content: "The tenant's way.", description: Some("Of the tenant."), ..Change::default() };
    agent.documents().put(tenant, &skills_of_tenant(), name, (&change, &SKILL_LIMITS)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn few_skills_are_in_the_prompt_and_only_those_of_the_agent_and_the_tenant() {
    let all = vec![skill("cook", "Cooks."), skill("secret", "Not for this agent.")];
    let agent = skilled(&["cook", "ours-*"], all, 20).begin();
    let tenant = Tenant::default_tenant();
    for name in ["ours-1", "cook", "other"] {
        put(&agent, &tenant, name).await;
    }
    put(&agent, &Tenant::parse("them").unwrap(), "ours-2").await;
    watch(agent.start(request(), None).await.unwrap()).await;
    let asked = sent(&agent);
    assert!(
        asked.contains("<skill name=\"cook\">\nCooks.\n\nHow to cook.\n</skill>"),
        "the operator's counts: {asked}"
    );
    assert!(asked.contains("<skill name=\"ours-1\">\nOf the tenant.\n\nThe tenant's way."), "{asked}");
    assert_eq!(asked.matches("<skill name=").count(), 2, "{asked}");
    assert!(offered(&agent).is_empty());
    agent.documents().delete(&tenant, &skills_of_tenant(), ("ours-1", None)).await.unwrap();
    watch(agent.start(request(), None).await.unwrap()).await;
    assert_eq!(sent(&agent).matches("<skill name=").count(), 1, "the next run knows");
}

#[tokio::test(start_paused = true)]
async fn more_skills_are_listed_and_read_by_name_and_no_others() {
    let all = vec![skill("cook", "Cooks."), skill("bake", "Bakes bread."), skill("secret", "Not for this agent.")];
    let calls = [r#"{"name": "bake"}"#, r#"{"name": "secret"}"#, r#"{"name": "none"}"#];
    let calls = calls.map(|arguments| ("use_skill", arguments)).to_vec();
    let turns = vec![Say::Calls("", calls), Say::Text(&["done"])];
    let agent = skilled(&["cook", "bake"], all, 1).turns(turns).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert!(sent(&agent).contains("\n- cook: Cooks.\n- bake: Bakes bread."), "{}", sent(&agent));
    assert!(!sent(&agent).contains("Not for this agent"));
    assert_eq!(offered(&agent), ["use_skill"]);
    let told = results(&records);
    assert_eq!(told, ["How to bake.", "There is no skill named \"secret\".", "There is no skill named \"none\"."]);
}

#[tokio::test(start_paused = true)]
async fn many_skills_are_found_by_words() {
    let mut all: Vec<_> = (0..400).map(|number| skill(&format!("s{number}"), &"Files papers. ".repeat(9))).collect();
    all.push(skill("bake", "Bakes bread and cakes."));
    let calls = vec![("skill_search", r#"{"query": "baking a cake"}"#), ("skill_search", r#"{"query": "zebra"}"#)];
    let agent = skilled(&["*"], all, 20).turns(vec![Say::Calls("", calls), Say::Text(&["done"])]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    assert!(sent(&agent).contains("You have 401 skills"), "{}", sent(&agent));
    assert_eq!(offered(&agent), ["skill_search", "use_skill"]);
    let told = results(&records);
    assert!(told[0].contains("\n- bake: Bakes bread and cakes."), "{told:?}");
    assert!(told[1].starts_with("No skill fits"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_denies_to_read_is_not_offered() {
    let agent = skilled(&["*"], vec![skill("cook", "Cooks."), skill("bake", "Bakes.")], 1).begin();
    let layer = Layer { deny: vec![Rule::of("use_skill")], ..Layer::default() };
    let new = NewRun { policy: Some(layer.into()), ..request() };
    watch(agent.start(new, None).await.unwrap()).await;
    assert!(offered(&agent).is_empty() && !sent(&agent).contains("cook"), "{}", sent(&agent));
    watch(TestAgent::builder().begin().start(request(), None).await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_may_leave_out_the_tools_of_skills_and_bring_tools_of_their_names() {
    let agent = skilled(&["*"], vec![skill("cook", "Cooks."), skill("bake", "Bakes.")], 1).begin();
    for (tools, is_left_out) in [(Some(Vec::new()), true), (None, false)] {
        watch(agent.start(NewRun { tools, ..request() }, None).await.unwrap()).await;
        assert_eq!(offered(&agent).is_empty(), is_left_out);
        assert_eq!(!sent(&agent).contains("cook"), is_left_out, "{}", sent(&agent));
    }
    let mut silent = request();
    silent.options.tool_choice = crate::types::offer::ToolChoice::None;
    watch(agent.start(silent, None).await.unwrap()).await;
    assert!(offered(&agent).is_empty() && !sent(&agent).contains("cook"), "{}", sent(&agent));
    let new = NewRun { client_tools: vec![client_tool("use_skill")], ..request() };
    let warnings = outcome(&watch(agent.start(new, None).await.unwrap()).await).warnings;
    assert!(warnings.iter().any(|warning| warning.contains("\"use_skill\"")), "{warnings:?}");
    assert!(!sent(&agent).contains("cook"), "{}", sent(&agent));
}

/// The texts of messages, a line or more for each.
fn joined(conversation: &Conversation) -> String {
    conversation.iter().map(texts).collect::<Vec<_>>().join("\n")
}
