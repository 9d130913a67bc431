//! What the description of the HTTP contract says of headers and queries that several operations share.

use std::collections::BTreeMap;

use utoipa::IntoParams;

use crate::api::wire::vocabulary::{OrderText, RunStatusText, wanted_metadata};

/// Makes a request safe to send again.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes; identity.rs reads the header")]
pub struct IdempotencyKey {
    /// 1 to 255 visible ASCII characters; the same key with the same body gives what the first request led to
    #[param(rename = "idempotency-key", pattern = "^[!-~]{1,255}$")]
    idempotency_key: Option<String>,
}

/// Which of the records of what was replaced in a session are listed.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct SplicesQuery {
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those beyond this number
    #[param(maximum = 9_007_199_254_740_992_u64)]
    after: Option<u64>,
}

/// What a completion's headers may say beside its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes; the handlers read the headers")]
pub struct CompletionHeaders {
    /// Names the session instead of the body
    #[param(rename = "x-loopgate-session-id", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    session_id: Option<String>,
    /// 1 to 255 visible ASCII characters; the same key with the same body gives the first one's run
    #[param(rename = "idempotency-key", pattern = "^[!-~]{1,255}$")]
    idempotency_key: Option<String>,
    /// How often OpenAI's library has sent this before; from 1 on it joins that attempt's run
    #[param(rename = "x-stainless-retry-count")]
    retry_count: Option<u64>,
}

/// What the headers of a request for a response may say beside its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes; the handler reads the headers")]
pub struct ResponseHeaders {
    /// What the body may have as `agent`, as the same JSON
    #[param(rename = "x-loopgate-agent", max_length = 8192)]
    agent: Option<String>,
    /// Names the session instead of the body
    #[param(rename = "x-loopgate-session-id", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    session_id: Option<String>,
    /// 1 to 255 visible ASCII characters; the same key with the same body gives the first one's run
    #[param(rename = "idempotency-key", pattern = "^[!-~]{1,255}$")]
    idempotency_key: Option<String>,
    /// How often OpenAI's library has sent this before; from 1 on it joins that attempt's run
    #[param(rename = "x-stainless-retry-count")]
    retry_count: Option<u64>,
}

/// What the headers of a request for a message may say beside its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes; the handler reads the headers")]
pub struct MessagesHeaders {
    /// What the body may have as `agent`, as the same JSON
    #[param(rename = "x-loopgate-agent", max_length = 8192)]
    agent: Option<String>,
    /// Names the session instead of the body
    #[param(rename = "x-loopgate-session-id", pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    session_id: Option<String>,
    /// 1 to 255 visible ASCII characters; the same key with the same body gives the first one's run
    #[param(rename = "idempotency-key", pattern = "^[!-~]{1,255}$")]
    idempotency_key: Option<String>,
    /// How often Anthropic's library has sent this before; from 1 on it joins that attempt's run
    #[param(rename = "x-stainless-retry-count")]
    retry_count: Option<u64>,
    /// Accepted, whatever it says
    #[param(rename = "anthropic-version")]
    version: Option<String>,
    /// With `mcp-client` in it, the arguments of the server's calls are streamed as deltas
    #[param(rename = "anthropic-beta")]
    beta: Option<String>,
}

/// What the headers of a request of a chat interface may say beside its body.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes; the handlers read the headers")]
pub struct UiHeaders {
    /// What the body may have as `agent`, as the same JSON
    #[param(rename = "x-loopgate-agent", max_length = 8192)]
    agent: Option<String>,
    /// 1 to 255 visible ASCII characters; the same key with the same body gives the first one's run
    #[param(rename = "idempotency-key", pattern = "^[!-~]{1,255}$")]
    idempotency_key: Option<String>,
}

/// Which runs a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct RunsQuery {
    /// Only this session's
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    session_id: Option<String>,
    /// Only those that stand so
    #[param(value_type = Option<RunStatusText>)]
    status: Option<String>,
    /// Only those of this agent
    agent: Option<String>,
    /// Only those that called this model first, as `upstream/model`
    model: Option<String>,
    /// Only those of this user; those without one if it is empty
    user: Option<String>,
    /// Only those that have all of these among their notes, as in `metadata[team]=sales`
    #[param(style = DeepObject, explode, required = false, schema_with = wanted_metadata)]
    metadata: Option<BTreeMap<String, String>>,
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those of this tenant, for keys with the scope `operator`
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    tenant: Option<String>,
    /// Only those older than this run
    #[param(pattern = "^run_[0-9a-f]{32}$")]
    after: Option<String>,
}

/// Whose run it is.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct TenantQuery {
    /// Whose run it is, for keys with the scope `operator`; without it the run is looked for among all tenants
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    tenant: Option<String>,
}

/// A token in the query.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the guard reads the query")]
pub struct TokenQuery {
    /// A token in place of a header, for streams that `EventSource` reads; never a key
    #[param(pattern = "^lgt_")]
    token: Option<String>,
}

/// Where a session is forked, beside what the body says.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct ForkQuery {
    /// `down` forks before a call that `at` would part from its results
    #[param(pattern = "^down$")]
    round: Option<String>,
}

/// Which sessions a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct SessionsQuery {
    /// Only those of this agent
    agent: Option<String>,
    /// Only those that called this model last, as `upstream/model`
    model: Option<String>,
    /// Only those of this user; those without one if it is empty
    user: Option<String>,
    /// Only those that have all of these among their notes, as in `metadata[team]=sales`
    #[param(style = DeepObject, explode, required = false, schema_with = wanted_metadata)]
    metadata: Option<BTreeMap<String, String>>,
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those beyond this session, or beyond the `last_id` of a page
    #[param(pattern = "^([0-9]{1,20}/)?[A-Za-z0-9_.:-]{1,128}$")]
    after: Option<String>,
    /// `asc`, the oldest first, or `desc` (default)
    order: Option<OrderText>,
}

/// Which messages of a session a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct MessagesQuery {
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those beyond this place, in the list's order
    #[param(maximum = 9_007_199_254_740_992_u64)]
    after: Option<u64>,
    /// `asc` (default) or `desc`
    order: Option<OrderText>,
}

/// Which items a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct ItemsQuery {
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// `desc` without it
    #[param(value_type = Option<OrderText>)]
    order: Option<String>,
    /// Only those that follow this item
    after: Option<String>,
}

/// What an export has beside the session and its messages.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct ExportQuery {
    /// `runs` for all of the session's runs with their reports, and the calls of one that waits
    #[param(pattern = "^runs$")]
    include: Option<String>,
}

/// What a report of usage shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct UsageParams {
    /// The first day of UTC; 29 days before `to` without it, and at most 399
    #[param(pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    from: Option<String>,
    /// The last day; today without it
    #[param(pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    to: Option<String>,
    /// What is told apart: some of `day`, `key`, `agent`, `model` and `user`, with commas between them; `day` without it
    #[param(pattern = "^((day|key|agent|model|user)(,(day|key|agent|model|user))*)?$")]
    group_by: Option<String>,
    /// Only runs of the key of this name; runs without a key if it is empty
    key: Option<String>,
    /// Only runs of this agent
    agent: Option<String>,
    /// Only runs of this model, written as `upstream/model`
    model: Option<String>,
    /// Only runs of this user; runs without one if it is empty
    user: Option<String>,
    /// 1 to 1,000; 100 without it
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only sums beyond the `last_id` of a page of the same report
    after: Option<String>,
    /// `json` or `csv`; what `Accept` says without it
    #[param(pattern = "^(json|csv)$")]
    format: Option<String>,
}

/// Whose budgets are shown beside those of the key.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct BudgetParams {
    /// The budgets of this session too
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    session_id: Option<String>,
}

/// The agent that a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it only describes; the handlers read the path")]
pub struct AgentPath {
    /// The agent
    agent: String,
}

/// The version of an agent that a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it only describes; the handler reads the path")]
pub struct AgentVersionPath {
    /// The agent
    agent: String,
    /// The version
    version: u64,
}

/// What must hold of a resource for it to be changed.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes; the handlers read the headers")]
pub struct PreconditionHeaders {
    /// `*` if it must be there, or the `etag` that it must have
    #[param(rename = "if-match")]
    if_match: Option<String>,
    /// `*` if it must not be there yet
    #[param(rename = "if-none-match", pattern = r"^\*$")]
    if_none_match: Option<String>,
}

/// The schedule that a path names.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it only describes; the handlers read the path")]
pub struct SchedulePath {
    /// The schedule
    schedule: String,
}

/// Which token is meant.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "it only describes; the handler reads the path")]
pub struct TokenPath {
    /// The id of the token, never the token
    #[param(pattern = "^tok_[0-9a-f]{32}$")]
    token: String,
}

/// Whose memory is meant.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handlers read the query")]
pub struct MemoryParams {
    /// The user; without one, the memory is the agent's own
    #[param(max_length = 4096)]
    user: Option<String>,
    /// The agent; without one, the memory is the one that all agents share, or in `/v1/memory` each of the user's
    #[param(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    agent: Option<String>,
}

/// Which documents of a memory a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct MemoryDocumentsParams {
    /// The user; without one, the memory is the agent's own
    #[param(max_length = 4096)]
    user: Option<String>,
    /// The agent; without one, the memory is the one that all agents share
    #[param(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    agent: Option<String>,
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those whose names come after this one
    after: Option<String>,
}

/// Whose copy of an agent's file is meant.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handlers read the query")]
pub struct AgentFileParams {
    /// The user; without one, it is the agent's file
    #[param(max_length = 4096)]
    user: Option<String>,
}

/// Which files of an agent a list shows.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes; the handler reads the query")]
pub struct AgentFilesParams {
    /// The user whose copies are meant; without one, the agent's files
    #[param(max_length = 4096)]
    user: Option<String>,
    /// 1 to 100; 20 without it
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those whose names come after this one
    after: Option<String>,
}
