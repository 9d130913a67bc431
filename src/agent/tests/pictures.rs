//! Pictures that tools answer with.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::support::{Echo, Say, TestAgent, request, watch};
use crate::tools::{CallContext, Tool, ToolAnswer, ToolError, ToolSpec};
use crate::types::conversation::{Part, PartKind, Source};
use crate::types::tool::Measurement;
use crate::types::{Effect, Event};

/// Answers with a picture of three million bytes.
#[derive(Debug)]
struct Camera(ToolSpec);

#[async_trait]
impl Tool for Camera {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &RawValue, _: &CallContext) -> Result<ToolAnswer, ToolError> {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        bytes.resize(3_000_000, 0);
        let source = Source::Base64 { media_type: "image/jpeg".into(), data: STANDARD.encode(bytes) };
        let measurements = vec![Measurement { name: "lux".into(), value: 2.5, unit: Some("lx".into()) }];
        let parts = vec![PartKind::Image { source, detail: None }.into()];
        Ok(ToolAnswer { parts, measurements, ..ToolAnswer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_keeps_so_many_pictures_and_is_told_of_the_others() {
    let camera = Arc::new(Camera(Echo::new("camera", Effect::Read, 1).spec().clone()));
    let mut turns = vec![Say::Calls("", vec![("camera", "{}")]); 5];
    turns.push(Say::Text(&["done"]));
    let agent = TestAgent::builder().turns(turns).tools(vec![camera]).begin();
    let records = watch(agent.start(request(), None).await.unwrap()).await;
    let results: Vec<(String, bool)> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ToolFinished { outcome, .. } => match &outcome.parts[..] {
                [Part { kind: PartKind::Image { source: Source::Base64 { media_type, .. }, .. }, .. }] => {
                    Some((media_type.clone(), outcome.truncated))
                }
                parts => Some((parts[0].in_words().into_owned(), outcome.truncated)),
            },
            _ => None,
        })
        .collect();
    let kept = ("image/png".to_owned(), false);
    let told = ("[image, image/png, 3000000 bytes]".to_owned(), true);
    assert_eq!(results, [kept.clone(), kept.clone(), kept.clone(), kept, told]);
    let report = records.iter().find_map(|record| match &record.event {
        Event::RunFinished(outcome) => Some(&outcome.report),
        _ => None,
    });
    let measured = &report.unwrap().steps[0].tool_calls[0].measurements;
    assert_eq!((measured.len(), measured[0].name.as_str(), measured[0].value), (1, "lux", 2.5));
}
