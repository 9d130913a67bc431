//! What a replica does that stood still for longer than its leases last.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::link::Link;
use super::replicas::{Replica, over, shared, tenant};
use super::support::{Echo, Say, TestAgent, request};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::run::LEASE_TTL;
use crate::types::{Effect, StopReason};

/// Its replica stands still during its first call, whose answer is lost, and does not reach the store afterwards. Notes under
/// which fence each call is made.
#[derive(Debug)]
struct Freezing {
    spec: ToolSpec,
    link: Arc<Link>,
    fences: Mutex<Vec<u64>>,
}

#[async_trait]
impl Tool for Freezing {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _: &RawValue, context: &CallContext) -> Result<ToolAnswer, ToolError> {
        let is_first = {
            let mut fences = self.fences.lock();
            fences.push(context.fence);
            fences.len() == 1
        };
        if !is_first {
            return Ok(ToolAnswer::text("done"));
        }
        self.link.cut(true);
        // Nothing else has its turn before the answer is found lost.
        let _ = tokio::time::advance(LEASE_TTL + Duration::from_secs(5)).now_or_never();
        Err(ToolError::Lost("The connection broke.".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_is_lost_is_not_repeated_once_its_run_may_be_anothers() {
    let store = shared();
    let link = Link::to(&store);
    let spec = Echo::new("i", Effect::Idempotent, 0).spec().clone();
    let tool = Arc::new(Freezing { spec, link: link.clone(), fences: Mutex::default() });
    let begin = |link: &Arc<Link>, turns| {
        let agent = TestAgent::builder().store(link.clone()).turns(turns).tools(vec![tool.clone()]).begin();
        Replica { agent, link: link.clone() }
    };
    let a = begin(&link, vec![Say::Calls("", vec![("i", "{}")]), Say::Text(&["never"])]);
    let b = begin(&Link::to(&store), vec![Say::Text(&["never"]), Say::Text(&["fine"])]);
    let run = a.agent.start(request(), None).await.unwrap().head.id;
    over(&b, &run).await;
    let outcome = b.agent.runs().get(&tenant(), &run).await.unwrap().outcome.unwrap();
    assert_eq!((outcome.reason, outcome.output_text.as_str()), (StopReason::Done, "fine"));
    let fences = tool.fences.lock().clone();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}
