use super::*;

#[test]
fn the_usage_of_a_response_is_its_own_and_the_runs_is_in_agent() {
    let (leg, own, whole) = (usage(), r#""usage":{"prompt_tokens":10,"#, r#""usage":{"prompt_tokens":70,"#);
    let second =
        Outcome { leg_usage: Some(leg), usage: Usage { prompt_tokens: 70, ..leg }, ..outcome(StopReason::Done) };
    let records = record(vec![Event::RunStarted, Event::RunFinished(Box::new(second.clone()))]);
    let json = serde_json::to_string(&completion(&names(), &second, false)).unwrap();
    let native = encode(AgentEvents::new(names(), false), &records);
    for (what, text) in [("completion", json), ("events", native)] {
        let (_, agent) = text.split_once(r#""agent":"#).unwrap();
        assert!(agent.contains(whole) && text.contains(own), "{what}: {text}");
    }
    let chunks = encode(ChatChunks::new(names(), true, false, false), &records);
    let last = chunks.lines().rfind(|line| line.contains(r#""choices":[]"#)).unwrap();
    assert!(last.contains(own), "{last}");
}
