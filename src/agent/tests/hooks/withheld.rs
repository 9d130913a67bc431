//! What a hook was to look at and did not is shown to nobody.

use async_trait::async_trait;
use serde_json::value::RawValue;

use super::*;
use crate::tools::{CallContext, Source, Tool, ToolAnswer, ToolError, ToolSpec};

#[tokio::test]
async fn what_a_hook_did_not_look_at_is_told_to_nobody_unless_it_fails_open() {
    for point in [HookPoint::AfterTool, HookPoint::OnError] {
        for fails_open in [false, true] {
            let hooks = vec![HookConfig { fails_open, ..hook("a", point, program("exit 1")) }];
            let tool = Secretive::tool(point == HookPoint::OnError);
            let agent = TestAgent::builder().hooks(hooks).tools(vec![tool]).turns(calls("tell", "{}")).begin();
            let records = watch(agent.start(request(), None).await.unwrap()).await;
            let (said, is_error) = result(&records);
            let is_hidden = |text: &str| !text.contains("hunter2");
            let shown = serde_json::to_string(&records).unwrap();
            let asked = format!("{:?}", agent.model.requests.lock());
            if fails_open {
                assert_eq!((said.as_str(), is_error), ("hunter2", point == HookPoint::OnError));
            } else {
                assert_eq!((said.as_str(), is_error), ("The result was withheld. The hook `a` gave no answer.", true));
            }
            assert_eq!([is_hidden(&shown), is_hidden(&asked)], [!fails_open; 2], "{point:?}");
        }
    }
}

#[tokio::test]
async fn a_cancellation_while_a_hook_looks_at_a_result_shows_none_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    let hooks = vec![hook("a", HookPoint::AfterTool, program(&format!("touch {}; sleep 60", asked.display())))];
    let agent =
        TestAgent::builder().hooks(hooks).tools(vec![Secretive::tool(false)]).turns(calls("tell", "{}")).begin();
    let new = request();
    let (tenant, run) = (new.tenant.clone(), new.id.clone());
    let started = agent.start(new, None).await.unwrap();
    let cancels = async {
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        while !asked.exists() {
            assert!(tokio::time::Instant::now() < until, "the hook was not asked");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        agent.runs().cancel(&tenant, &run).await.unwrap();
    };
    let (records, ()) = tokio::join!(watch(started), cancels);
    assert_eq!(outcome(&records).status(), RunStatus::Cancelled);
    assert!(!serde_json::to_string(&records).unwrap().contains("hunter2"), "{records:?}");
}

/// A tool that tells a secret.
#[derive(Debug)]
struct Secretive {
    spec: ToolSpec,
    fails: bool,
}

impl Secretive {
    fn tool(fails: bool) -> Arc<dyn Tool> {
        let spec = ToolSpec {
            name: "tell".into(),
            description: "Tells.".into(),
            parameters: RawValue::from_string(r#"{"type":"object"}"#.into()).unwrap(),
            effect: Effect::Read,
            timeout: None,
            source: Source::Builtin,
        };
        Arc::new(Self { spec, fails })
    }
}

#[async_trait]
impl Tool for Secretive {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, _arguments: &RawValue, _context: &CallContext) -> Result<ToolAnswer, ToolError> {
        if self.fails { Err(ToolError::Failed("hunter2".into())) } else { Ok(ToolAnswer::text("hunter2")) }
    }
}
