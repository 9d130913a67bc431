//! Requests that start runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::machine::tests::options;
use crate::agent::{ApprovalPatch, GuardsPatch, LimitsPatch, NewRun, RulesPatch};
use crate::types::offer::ToolDefinition;
use crate::types::run::{OnConflict, RunOptions};
use crate::types::{Message, Role, RunId, Tenant};

/// A tool that the client executes.
pub(in crate::agent::tests) fn client_tool(name: &str) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition { name: name.into(), ..ToolDefinition::default() })
}

/// An ordinary request.
pub(in crate::agent::tests) fn request() -> NewRun {
    NewRun {
        id: RunId::mint(),
        tenant: Tenant::default_tenant(),
        key_name: None,
        generation: None,
        allowed_agents: None,
        model: Some("m".into()),
        session: None,
        run: None,
        previous: None,
        system: Vec::new(),
        messages: vec![Message::text(Role::User, "question")],
        answers_from: 0,
        answered: Vec::new(),
        decisions: Vec::new(),
        approvals: Vec::new(),
        client_tools: Vec::new(),
        servers: None,
        trace: None,
        request_id: None,
        metadata: BTreeMap::new(),
        max_output_tokens: None,
        tools: None,
        policy: None,
        approval: ApprovalPatch::default(),
        limits: LimitsPatch::default(),
        rules: RulesPatch::default(),
        guards: GuardsPatch::default(),
        prompt: None,
        on_limit: None,
        on_conflict: OnConflict::Reject,
        options: options(),
        waits_for_the_end: false,
        unattended: false,
        sends_all: false,
        repeats: false,
        of_page: false,
        of: None,
        warnings: Vec::new(),
        claim: None,
        memory: Arc::default(),
    }
}

/// A request that asks for something besides.
pub(in crate::agent::tests) fn with_options(change: impl FnOnce(&mut RunOptions)) -> NewRun {
    let mut new = request();
    change(&mut new.options);
    new
}

/// An ordinary request with these limits.
pub(in crate::agent::tests) fn request_with(limits: LimitsPatch) -> NewRun {
    NewRun { limits, ..request() }
}
