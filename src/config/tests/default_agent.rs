use insta::assert_snapshot;

use super::load;

/// The default agent up to what it knows of documents, up to its limits, and from there on.
fn default_agent() -> [String; 3] {
    // Its numbers would be half of what follows.
    let without_guard = "agents.default.loop_guard.enabled = false";
    let told = format!("{:#?}", load(without_guard).agents);
    let (head, tail) = told.split_once("limits: ").unwrap();
    let (tail, _prompt) = tail.split_once("prompt: ").unwrap();
    let (head, documents) = head.split_once("memory: ").unwrap();
    let (before, flush) = head.split_once("flush: FlushRules {").unwrap();
    assert!(flush.trim_start().starts_with("enabled: false,"), "{flush}");
    let head = [before.trim_end(), flush.split_once("},").unwrap().1].concat();
    [&head, documents, tail].map(|part| part.trim_end().to_owned())
}

#[test]
fn nothing_written_declares_the_default_agent() {
    assert_snapshot!(default_agent()[0], @r#"
    {
        "default": AgentConfig {
            name: "default",
            description: None,
            model: None,
            fallbacks: None,
            system: None,
            tools: [
                "calculator",
                "current_time",
            ],
            hedge_after: None,
            max_offered_tools: 64,
            always_offered: [],
            on_limit: Stop,
            streams: false,
            rules: LoopRules {
                tool_errors: ToolErrors {
                    ends_run: [],
                    fallback_results: [],
                },
                loop_guard: LoopGuardRules {
                    warn_after: None,
                    stop_after: None,
                    same_result_warn_after: None,
                    same_result_stop_after: None,
                    ignored: [],
                },
                planning: None,
                reflection: None,
                context: ContextRules {
                    compaction: Auto,
                    threshold: 0.75,
                    reserve_tokens: 8192,
                    keep_last: 6,
                    keep_first_user: true,
                    turn_limit: None,
                    pruning: PruningRules {
                        enabled: true,
                        keep_last_turns: 3,
                        max_chars: 4000,
                        head_chars: 1500,
                        tail_chars: 1500,
                    },
                    summary: SummaryRules {
                        model: None,
                        max_tokens: 1024,
                        timeout_ms: 120000,
                    },
                    triggers: TriggerRules {
                        messages: None,
                        input_tokens: None,
                        after_run: false,
                    },
                },
    "#);
}

#[test]
fn the_default_agent_knows_no_documents() {
    assert_snapshot!(default_agent()[1], @"
    MemoryRules {
                    scope: AgentAndUser,
                    recalls: false,
                    most: 5,
                    most_chars: 2000,
                },
                files: AgentFiles {
                    shared: [],
                    of_user: [],
                },
                skills: [],
                delegation: Delegation {
                    to: [],
                    max_depth: 3,
                    timeout_ms: 300000,
                    max_output_chars: 30000,
                    max_concurrent: 3,
                    max_iterations: 20,
                    shows_events: false,
                    history: Fresh,
                },
                composite: None,
                handoff: HandoffRules {
                    to: [],
                    most: 3,
                    history: All,
                },
            },
            trace_content: true,
    ");
}

#[test]
fn the_default_agent_has_bounds() {
    assert_snapshot!(default_agent()[2], @r#"
    LimitsConfig {
                max_iterations: 20,
                max_tool_calls: None,
                timeout: 300s,
                tool_timeout: 120s,
                token_budget: None,
                cost_budget: None,
                shared: ShareConfig {
                    max_concurrent_runs: None,
                    requests_per_minute: None,
                },
            },
            policy: Layer {
                owner: Agent,
                mode: Allow,
                allow: [],
                ask: [],
                deny: [],
            },
            approval: ApprovalTerms {
                mode: Pause,
                timeout_ms: 86400000,
                needed: 1,
                approvers: [],
                separate: false,
            },
            guards: Guards {
                input: Warn,
                max_message_chars: 32768,
                output: OutputRules {
                    sanitise: Thinking,
                    allow_no_reply: false,
                },
                results: ResultBounds {
                    max_bytes: 51200,
                    hex_run: 200,
                },
                guardrails: [],
            },
    "#);
}

#[test]
fn the_default_agent_adds_nothing_to_its_prompts() {
    let prompt = &load("").agents["default"].prompt;
    assert!(prompt.is_plain() && **prompt == crate::config::PromptConfig::default());
}
