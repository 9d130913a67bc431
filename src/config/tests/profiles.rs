//! Agents that start from the numbers of known loops.

use toml::de::DeTable;

use super::*;
use crate::config::known_tools::KnownTools;
use crate::config::profile::Profile;
use crate::config::reader::Section;
use crate::config::report::Report;
use crate::config::value::Word;
use crate::types::approval::ApprovalMode;
use crate::types::context::{Compaction, ContextRules};
use crate::types::guard::{InputMode, Sanitise};
use crate::types::prompt::PromptMode;
use crate::types::run::OnLimit;

/// The figures are those that the pages of these loops give.
#[test]
fn an_agent_starts_from_the_numbers_of_its_profile() {
    let settings = load(
        "
        [agents.default]
        system = 'Be brief.'
        [agents.default.limits]
        timeout = '600s'
        [agents.klaw]
        profile = 'klaw'
        [agents.sdk]
        profile = 'sdk'
        [agents.zeptoclaw]
        profile = 'zeptoclaw'
        [agents.goclaw]
        profile = 'goclaw'
        [agents.claw]
        profile = 'claw'
        [agents.own]
        profile = 'klaw'
        [agents.own.limits]
        max_iterations = 30
        [agents.own.context]
        keep_last = 8
        ",
    );
    let numbers = |name: &str| {
        let AgentConfig { limits, on_limit, rules, approval, .. } = &settings.agents[name];
        let ContextRules { compaction, keep_last, keep_first_user, triggers, .. } = &rules.context;
        (
            (limits.max_iterations, limits.tool_timeout.as_secs(), limits.timeout.as_secs(), *on_limit),
            (*compaction, *keep_last, *keep_first_user, triggers.messages, triggers.input_tokens, triggers.after_run),
            approval.mode,
        )
    };
    let (auto, llm, local) = (Compaction::Auto, Compaction::Llm, Compaction::Local);
    let expected = [
        ("klaw", (50, 120, 600, OnLimit::Error), (llm, 6, true, None, None, false), ApprovalMode::Wait),
        ("sdk", (16, 30, 600, OnLimit::Stop), (auto, 6, true, None, None, false), ApprovalMode::Deny),
        (
            "zeptoclaw",
            (20, 120, 300, OnLimit::Stop),
            (Compaction::Truncate, 6, true, None, None, false),
            ApprovalMode::Pause,
        ),
        ("goclaw", (20, 120, 600, OnLimit::Stop), (llm, 4, false, Some(50), None, true), ApprovalMode::Pause),
        ("claw", (1_000, 120, 300, OnLimit::Error), (local, 4, false, None, Some(200_000), true), ApprovalMode::Deny),
        ("own", (30, 120, 600, OnLimit::Error), (llm, 8, true, None, None, false), ApprovalMode::Wait),
    ];
    for (name, limits, context, approval) in expected {
        assert_eq!(numbers(name), (limits, context, approval), "{name}");
        assert_eq!(settings.agents[name].system.as_deref(), Some("Be brief."), "{name}");
    }
    let goclaw = &settings.agents["goclaw"];
    assert_eq!((goclaw.guards.output.sanitise, goclaw.guards.output.allow_no_reply), (Sanitise::Full, true));
    assert_eq!(goclaw.prompt.mode, PromptMode::Full);
    let klaw = &settings.agents["klaw"].rules.reflection;
    assert_eq!(*klaw, None, "its three calls count once reflection is on");
    let refused = mistakes("[agents.a]\nprofile = 'openclaw'");
    assert!(refused.contains("must be \"klaw\" or"), "{refused}");
}

#[test]
fn profiles_hold_settings_of_agents_and_nothing_else() {
    for (word, profile) in Profile::WORDS {
        let (document, mistakes) = DeTable::parse_recoverable(profile.text());
        assert!(mistakes.is_empty(), "{word}: {mistakes:?}");
        let report = Report::new("", profile.text(), &|_| None);
        Section::read_root(&report, Some(document.get_ref()), |section| {
            AgentConfig::read("default", section, None, &[], &KnownTools::default(), InputMode::Warn)
        });
        report.into_values().unwrap_or_else(|mistakes| panic!("{word}: {mistakes}"));
    }
}
