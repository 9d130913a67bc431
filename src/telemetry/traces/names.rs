//! The names of attributes and events. Those that begin with `gen_ai` are OpenTelemetry's semantic conventions for
//! generative AI, which are still in development: their names stand here alone, so that they can follow.

/// The conventions that the names are from.
pub const SCHEMA: &str = "https://opentelemetry.io/schemas/1.41.0";

/// What failed, in a word.
pub const ERROR_TYPE: &str = "error.type";

/// What a span does: see [`operation`].
pub const OPERATION: &str = "gen_ai.operation.name";
/// Who answers model calls, by the well-known names.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// What `PROVIDER` was called before; many viewers look for it.
pub const SYSTEM: &str = "gen_ai.system";
/// The model that is asked.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The most output tokens that are reserved.
pub const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
/// Why the model's turn ended.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Seconds until the model's first words.
pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
/// All input tokens.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// All output tokens.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The part of the input that the upstream had cached.
pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// The part of the output that was reasoning.
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
/// The agent.
pub const AGENT: &str = "gen_ai.agent.name";
/// The session.
pub const CONVERSATION: &str = "gen_ai.conversation.id";
/// The tool.
pub const TOOL: &str = "gen_ai.tool.name";
/// What kind of tool it is.
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
/// The call.
pub const CALL: &str = "gen_ai.tool.call.id";
/// What is asked of the run. Content.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// What the model says. Content.
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// Instructions. Content.
pub const SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
/// What a tool is called with. Content.
pub const CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// What a tool answers. Content.
pub const CALL_RESULT: &str = "gen_ai.tool.call.result";

/// Those that tell what was said within a run.
pub const CONTENT: [&str; 3] = [OUTPUT_MESSAGES, CALL_ARGUMENTS, CALL_RESULT];
/// Whether content of a span is left out because the trace has too much.
pub const CONTENT_LEFT_OUT: &str = "loopgate.content_left_out";

/// The run.
pub const RUN: &str = "loopgate.run.id";
/// How the run stands.
pub const STATUS: &str = "loopgate.run.status";
/// Why the run ended.
pub const REASON: &str = "loopgate.run.reason";
/// Model calls of the run that counted.
pub const ITERATIONS: &str = "loopgate.run.iterations";
/// Tool calls of the run.
pub const TOOL_CALLS: &str = "loopgate.run.tool_calls";
/// US dollars.
pub const COST: &str = "loopgate.cost_usd";
/// Whether tokens were estimated.
pub const ESTIMATED: &str = "loopgate.usage.estimated";
/// The upstream's name in the configuration.
pub const UPSTREAM: &str = "loopgate.upstream";
/// The step.
pub const STEP: &str = "loopgate.step";
/// Why a step's answer is void.
pub const DISCARDED: &str = "loopgate.step.discarded";
/// The limit after which a step is the closing answer.
pub const CLOSING: &str = "loopgate.step.closing";
/// Which time a call is made.
pub const ATTEMPT: &str = "loopgate.attempt";
/// What repeating a call would do.
pub const EFFECT: &str = "loopgate.tool.effect";
/// What came of a call.
pub const CALL_OUTCOME: &str = "loopgate.tool.outcome";
/// What a tool answered, in bytes.
pub const RESULT_BYTES: &str = "loopgate.tool.result_bytes";
/// The status with which a tool answered, or the upstream that failed.
pub const HTTP_STATUS: &str = "http.response.status_code";
/// A guardrail.
pub const GUARDRAIL: &str = "loopgate.guardrail.name";
/// What it judges.
pub const GUARDRAIL_ON: &str = "loopgate.guardrail.on";
/// What it said when it was asked.
pub const GUARDRAIL_VERDICT: &str = "loopgate.guardrail.verdict";
/// How messages were replaced.
pub const COMPACTION_METHOD: &str = "loopgate.compaction.method";
/// How many messages are about to be replaced of which what matters is written down.
pub const FLUSHED_MESSAGES: &str = "loopgate.flush.messages";
/// How many tokens the next call had before the conversation was shortened.
pub const TOKENS_BEFORE: &str = "loopgate.context.tokens_before";
/// How many it has then.
pub const TOKENS_AFTER: &str = "loopgate.context.tokens_after";
/// Why a run was resumed.
pub const CAUSE: &str = "loopgate.resumption.cause";
/// Whether the log has no end of a span.
pub const UNFINISHED: &str = "loopgate.unfinished";
/// How many spans the trace lacks because it has too many.
pub const LEFT_OUT: &str = "loopgate.spans_left_out";

/// What a span does.
pub mod operation {
    /// A run.
    pub const INVOKE_AGENT: &str = "invoke_agent";
    /// A model call.
    pub const CHAT: &str = "chat";
    /// A tool call.
    pub const EXECUTE_TOOL: &str = "execute_tool";
}

/// What happens at a moment.
pub mod event {
    /// The upstream failed before it said anything, and is asked again.
    pub const RETRY: &str = "loopgate.upstream_retry";
    /// The run goes on with another model.
    pub const FALLBACK: &str = "loopgate.fallback";
    /// A second call is made beside one that says nothing.
    pub const HEDGE: &str = "loopgate.hedge";
    /// One of the two is dropped.
    pub const HEDGE_ENDED: &str = "loopgate.hedge_ended";
    /// A budget is four fifths used.
    pub const BUDGET_WARNING: &str = "loopgate.budget_warning";
    /// Another run begins for a call.
    pub const DELEGATE: &str = "loopgate.delegate";
    /// It ended.
    pub const DELEGATE_ENDED: &str = "loopgate.delegate_ended";
    /// Another agent goes on with the run.
    pub const HANDOFF: &str = "loopgate.handoff";
    /// The model repeats its tool calls.
    pub const LOOP_GUARD: &str = "loopgate.loop_guard";
    /// The model is asked for a plan.
    pub const PLAN: &str = "loopgate.plan";
    /// The model is asked how far it has come.
    pub const REFLECTION: &str = "loopgate.reflection";
    /// A message looks like an attempt to instruct the model in the operator's place.
    pub const INPUT_FLAGGED: &str = "loopgate.input_flagged";
    /// A message was cut to size.
    pub const INPUT_TRUNCATED: &str = "loopgate.input_truncated";
    /// A text failed a guardrail.
    pub const GUARDRAIL: &str = "loopgate.guardrail_triggered";
    /// A guardrail's service was asked about a text.
    pub const GUARDRAIL_JUDGED: &str = "loopgate.guardrail_judged";
    /// Old results of tools are shortened.
    pub const CONTEXT_PRUNED: &str = "loopgate.context_pruned";
    /// Messages are replaced.
    pub const CONTEXT_COMPACTED: &str = "loopgate.context_compacted";
    /// A method did not shorten the conversation.
    pub const COMPACTION_FAILED: &str = "loopgate.compaction_failed";
    /// What matters in messages that are to be replaced is written down.
    pub const CONTEXT_FLUSHED: &str = "loopgate.context_flushed";
    /// What matters in them was not written down to the end.
    pub const FLUSH_FAILED: &str = "loopgate.flush_failed";
    /// The upstream refused a conversation that is longer than it takes.
    pub const WINDOW_LEARNED: &str = "loopgate.window_learned";
    /// The run is to stop.
    pub const STOP: &str = "loopgate.stop_requested";
    /// Commands of the inbox were applied.
    pub const COMMANDS: &str = "loopgate.commands_applied";
    /// A hook was asked.
    pub const HOOK: &str = "loopgate.hook";
    /// The replica that drove the run leaves it to others.
    pub const HANDED_OFF: &str = "loopgate.handed_off";
}
