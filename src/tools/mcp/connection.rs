//! A connection to a server: opened in the newest revision that both know, and used to list and call tools.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::Peer;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, InputRequest, InputResponses, ListToolsRequest, MetaObject,
    PaginatedRequestParams, ProtocolVersion, RequestMetaObject, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientLifecycleMode, PeerRequestOptions, RequestHandle, RoleClient, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::IntoTransport;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::McpProtocol;
use crate::tools::ProgressSink;
use crate::tools::mcp::auth::{Authorization, NoToken};
use crate::tools::mcp::elicitation::CallQuestions;
use crate::tools::mcp::fault::Fault;
use crate::tools::mcp::handler::Handler;
use crate::tools::mcp::pages::Pages;
use crate::tools::mcp::secrets::Secrets;
use crate::tools::mcp::under_way::UnderWay;

/// How often a tool may ask for something during one call.
const MAX_ROUNDS: usize = 4;

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    handler: Handler,
    tasks: TaskTracker,
    closing: CancellationToken,
    closed: CancellationToken,
    renewed: AtomicBool,
    secrets: Secrets,
    under_way: UnderWay,
    /// Held by a call whose server may ask something meanwhile, without saying which call asks.
    turns: Arc<Mutex<()>>,
    authorization: Authorization,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Connection {
    /// Opens a connection through this transport to a server that was given these secrets, and whose calls may ask the user
    /// something if it `elicits`. Its tasks are `tasks`.
    pub(super) async fn open<T, E, A>(
        transport: T,
        protocol: McpProtocol,
        tasks: &TaskTracker,
        secrets: Secrets,
        elicits: bool,
    ) -> Result<Self, Fault>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: Error + Send + Sync + 'static,
    {
        let (handler, closing, closed) =
            (Handler::new(secrets.clone(), elicits), CancellationToken::new(), CancellationToken::new());
        let opening =
            serve_client_with_lifecycle_and_ct(handler.clone(), transport, lifecycle(protocol), closing.clone());
        let running: RunningService<RoleClient, Handler> =
            opening.await.map_err(|error| Fault::of_start(&error).without(&secrets))?;
        let peer = running.peer().clone();
        let ended = closed.clone();
        tasks.spawn(async move {
            // Returns once the transport is closed, and its process has ended.
            drop(running.waiting().await);
            ended.cancel();
        });
        let (tasks, renewed, under_way) = (tasks.clone(), AtomicBool::new(false), UnderWay::default());
        let (turns, authorization) = (Arc::default(), Authorization::default());
        Ok(Self { peer, handler, tasks, closing, closed, renewed, secrets, under_way, turns, authorization })
    }

    /// The same, whose requests show this.
    #[must_use]
    pub(super) fn showing(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Returns once there is what its next request shows.
    pub(super) async fn ready(&self) -> Result<(), NoToken> {
        self.authorization.ready().await
    }

    /// Returns once the connection is closed, by whichever side.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.is_cancelled() || self.closed.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Closes it, so that another takes its place at once.
    pub(super) fn renew(&self) {
        self.renewed.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Whether another is to take its place at once.
    pub(super) fn is_renewed(&self) -> bool {
        self.renewed.load(Ordering::Relaxed)
    }

    /// Closes it.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// All tools of the server, as it lists them.
    pub(super) async fn list(&self) -> Result<Pages, Fault> {
        let (mut pages, mut cursor) = (Pages::default(), None);
        loop {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = ListToolsRequest { params: Some(page), ..ListToolsRequest::default() };
            let page = self.ask(ClientRequest::ListToolsRequest(request)).await?;
            match pages.take(page)? {
                Some(next) => cursor = Some(next),
                None => return Ok(pages),
            }
        }
    }

    /// Whether no call is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns once a call got no answer in its time, and the server may hang.
    pub(super) async fn suspected(&self) {
        self.under_way.suspected().await;
    }

    /// Waits until the server says that its tools have changed.
    pub(super) async fn tools_changed(&self) {
        if self.is_modern() {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            // A server that offers no subscription is asked again when its list is old.
            if let Ok(mut subscription) = self.peer.listen(filter).await
                && let Ok(Some(_)) = subscription.next().await
            {
                return;
            }
        }
        self.handler.changed.notified().await;
    }

    /// Calls a tool, which is to answer until then. Dropping the future tells the server that the call is cancelled.
    pub(super) async fn call(&self, call: ToolRequest, until: Instant) -> Result<Value, Fault> {
        let waiting = self.under_way.begin(until);
        let answer = match call.questions.clone() {
            None => self.call_through(call).await,
            // Boxed, as few servers may ask.
            Some(questions) => Box::pin(self.call_and_ask(call, questions, until)).await,
        };
        waiting.end();
        let mut answer = answer.map_err(|fault| fault.without(&self.secrets))?;
        self.secrets.hide_in(&mut answer);
        Ok(answer)
    }

    /// A turn among the calls, if a server that asks something does not say which call asks.
    pub(super) fn turns(&self) -> Option<Arc<Mutex<()>>> {
        (self.handler.elicits() && !self.is_modern()).then(|| self.turns.clone())
    }

    /// Whether the server speaks a revision from 2026-07-28 on, in which it asks within the answer of a call.
    fn is_modern(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.protocol_version >= ProtocolVersion::V_2026_07_28)
    }

    /// Calls a tool that may ask the user something.
    async fn call_and_ask(&self, call: ToolRequest, questions: CallQuestions, until: Instant) -> Result<Value, Fault> {
        let mut turn = self.turns().map(|_| {
            let asking = self.handler.ask_for(questions.clone());
            (Unanswered { connection: self, is_answered: false }, asking)
        });
        let answer = questions.beside(until, self.call_through(call)).await;
        if let Some((unanswered, _)) = &mut turn {
            unanswered.is_answered = answer.is_some();
        }
        answer.unwrap_or_else(|| Err(Fault::Lost("it did not answer in the time that the call had".to_owned())))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK adds kinds of these")]
    async fn call_through(&self, call: ToolRequest) -> Result<Value, Fault> {
        let ToolRequest { tool, arguments, meta, progress, questions } = call;
        let mut params = CallToolRequestParams::new(tool).with_arguments(arguments);
        for _ in 0..MAX_ROUNDS {
            let mut request = CallToolRequest::new(params.clone());
            request.params.meta = None;
            let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(meta.clone())));
            let request = ClientRequest::CallToolRequest(request);
            let handle =
                self.peer.send_cancellable_request(request, options).await.map_err(|error| Fault::of(&error))?;
            let _reporting = self.handler.report(&handle.progress_token, progress.clone());
            let mut pending = Pending { handle: Some(handle), tasks: self.tasks.clone() };
            match pending.answer().await? {
                ServerResult::InputRequiredResult(asked) => {
                    let mut told = InputResponses::new();
                    for (key, input) in asked.input_requests.unwrap_or_default() {
                        told.insert(key, self.told(&input, questions.as_ref()).await?);
                    }
                    params = params.with_input_responses(told);
                    params.request_state = asked.request_state;
                }
                ServerResult::CreateTaskResult(_) => {
                    return Err(Fault::Lost("it goes on in a task of its own, which is not followed".to_owned()));
                }
                result => return written(&result),
            }
        }
        Err(Fault::Failed("it asks for something again and again that it is not given".to_owned()))
    }

    /// What a server gets that asks for something in the middle of a call.
    async fn told(&self, input: &InputRequest, questions: Option<&CallQuestions>) -> Result<Value, Fault> {
        match (input, questions) {
            (InputRequest::Elicitation(asked), Some(questions)) => {
                let told = questions.ask(&asked.params, &self.secrets).await;
                serde_json::to_value(told).map_err(|_| Fault::Failed("it asks what cannot be answered".to_owned()))
            }
            (InputRequest::Elicitation(_), None) => Ok(json!({"action": "decline"})),
            (InputRequest::ListRoots(_), _) => Ok(json!({"roots": []})),
            _ => Err(Fault::Failed("it asks for an answer of a model, which it is not given".to_owned())),
        }
    }

    async fn ask(&self, request: ClientRequest) -> Result<Value, Fault> {
        let result = self.peer.send_request(request).await;
        let result = result.map_err(|error| Fault::of(&error).without(&self.secrets))?;
        let mut written = written(&result)?;
        self.secrets.hide_in(&mut written);
        Ok(written)
    }
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct ToolRequest {
    /// The server's name of the tool.
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// What the server is told beside the arguments.
    pub(super) meta: Map<String, Value>,
    pub(super) progress: ProgressSink,
    /// What it may ask the user; `None` if it may not.
    pub(super) questions: Option<CallQuestions>,
}

/// What the server is told of how long the call may take.
const DEADLINE: &str = "loopgate/deadline-ms";

impl ToolRequest {
    /// Has the server be told that the call may take so long from now.
    pub(super) fn tell_deadline(&mut self, left: Duration) {
        self.meta.insert(DEADLINE.to_owned(), u64::try_from(left.as_millis()).unwrap_or(u64::MAX).into());
    }

    /// The same once more.
    pub(super) fn again(&self) -> Self {
        let Self { tool, arguments, meta, progress, questions } = self;
        let (tool, arguments, meta) = (tool.clone(), arguments.clone(), meta.clone());
        Self { tool, arguments, meta, progress: progress.clone(), questions: questions.clone() }
    }
}

/// A request under way. Dropped without an answer it is cancelled.
struct Pending {
    handle: Option<RequestHandle<RoleClient>>,
    tasks: TaskTracker,
}

impl Pending {
    async fn answer(&mut self) -> Result<ServerResult, Fault> {
        let Some(handle) = &mut self.handle else { return Err(Fault::closed()) };
        let answer = (&mut handle.rx).await;
        self.handle = None;
        answer.map_err(|_| Fault::closed())?.map_err(|error| Fault::of(&error))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.tasks.spawn(async move {
                // If it cannot be told, the connection is closed, which says the same.
                drop(tokio::time::timeout(CANCEL_WITHIN, handle.cancel(Some("the call was stopped".to_owned()))).await);
            });
        }
    }
}

/// How long telling a server of a cancellation may take.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

/// A call whose server may still work on it, and ask about it, if this is dropped without an answer. What it asked then would be
/// taken for a question of the next call, so the connection ends first.
struct Unanswered<'a> {
    connection: &'a Connection,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.connection.renew();
        }
    }
}

/// A result as it was written.
fn written(result: &ServerResult) -> Result<Value, Fault> {
    serde_json::to_value(result).map_err(|_| Fault::Lost("its answer is not one of the protocol".to_owned()))
}

fn lifecycle(protocol: McpProtocol) -> ClientLifecycleMode {
    let newest = vec![ProtocolVersion::V_2026_07_28];
    match protocol {
        McpProtocol::Initialize => ClientLifecycleMode::Initialize,
        McpProtocol::Discover => ClientLifecycleMode::Discover { preferred_versions: newest },
        McpProtocol::Auto => ClientLifecycleMode::Auto { preferred_versions: newest, legacy_version: None },
    }
}
