//! Summaries that a model writes.

use super::super::quota::{count, counter, keyed, memory, quotas, standing, tokens};
use super::*;
use crate::types::shortfall::BudgetKind;

#[tokio::test(start_paused = true)]
async fn a_summary_is_kept_in_the_session_and_goes_into_the_next() {
    let model = Windowed::new(WINDOW, true, 2, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules(Compaction::Auto)).begin();
    let (mut compacted, mut total) = (0, 0);
    for turn in 0..60 {
        let records = watch(agent.start(says(&format!("turn {turn} {}", "x".repeat(400))), None).await.unwrap()).await;
        assert_eq!(outcome(&records).reason, StopReason::Done, "turn {turn}");
        compacted += methods(&records).iter().filter(|method| **method == Method::Llm).count();
        total += outcome(&records).usage.total();
    }
    assert_eq!(model.refused.load(Relaxed), 0);
    let summarised = model.summarised.lock().clone();
    assert_eq!((summarised.len(), compacted), (compacted, summarised.len()), "each was asked for once");
    assert!((4..20).contains(&compacted), "{compacted}");
    for (number, asked) in summarised.iter().enumerate() {
        let asked = joined(asked);
        assert!(asked.contains("Result: ") && asked.contains("Assistant calls echo"), "{asked}");
        let earlier = format!("SUMMARY {}", number.wrapping_sub(1));
        assert_eq!(asked.contains("earlier_summary"), number > 0);
        assert!(number == 0 || asked.contains(&earlier), "{number}: {asked}");
    }
    let session = agent.sessions().get(&Tenant::default_tenant(), &session()).await.unwrap().session;
    assert_eq!(session.usage.total(), total, "the session is charged for its summaries");
    let kept = session.context.unwrap().view;
    assert_eq!(kept.summary.unwrap().text, format!("SUMMARY {}", compacted - 1));
    assert_eq!(stored(&agent).await.len(), 60 * 6);
}

#[tokio::test(start_paused = true)]
async fn where_a_model_writes_none_rules_make_it() {
    for summaries in [Summaries::Empty, Summaries::Failing, Summaries::Stalled] {
        let model = Windowed::new(WINDOW, true, 1, summaries);
        let mut rules = rules(Compaction::Llm);
        rules.context.summary.timeout_ms = 1_000;
        let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules).begin();
        let mut found = Vec::new();
        for turn in 0..30 {
            let records =
                watch(agent.start(says(&format!("turn {turn} {}", "x".repeat(400))), None).await.unwrap()).await;
            let end = outcome(&records);
            assert_eq!(end.reason, StopReason::Done, "{summaries:?}: {:?}", end.error);
            found.extend(methods(&records));
        }
        assert!(!found.is_empty() && found.iter().all(|method| *method == Method::Local), "{summaries:?}: {found:?}");
        assert_eq!(model.refused.load(Relaxed), 0);
    }
}

/// A transcript that does not fit.
pub(super) fn transcript() -> Vec<Message> {
    let said = (0..30).flat_map(|turn| [(Role::User, turn), (Role::Assistant, turn)]);
    let said = said.map(|(role, turn)| Message::text(role, &format!("{turn} {}", "x".repeat(500))));
    said.chain([Message::text(Role::User, "And now?")]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_charged_to_the_budgets() {
    let store = memory();
    let model = Windowed::new(WINDOW, true, 1, Summaries::Written);
    let builder = TestAgent::builder().windowed(&model, WINDOW).rules(rules(Compaction::Auto));
    let agent = builder.store(store.clone()).quotas(quotas(tokens(100_000))).begin();
    let records = watch(agent.start(NewRun { messages: transcript(), ..keyed() }, None).await.unwrap()).await;
    let end = outcome(&records);
    assert_eq!((end.reason, methods(&records)), (StopReason::Done, vec![Method::Llm]));
    let steps: u64 = end.report.steps.iter().map(|step| step.usage.total()).sum();
    assert!(end.usage.total() > steps + 1_000, "{} and {steps}", end.usage.total());
    agent.idle(Duration::from_secs(5)).await;
    assert_eq!(count(&store, &counter(BudgetKind::Tokens)).await, end.usage.total());
    assert!(standing(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_room_for_a_summary_has_rules_make_it() {
    let model = Windowed::new(WINDOW, true, 0, Summaries::Written);
    let agent = TestAgent::builder().windowed(&model, WINDOW).rules(rules(Compaction::Auto)).begin();
    let limits = crate::agent::LimitsPatch { token_budget: Some(3_000), ..crate::agent::LimitsPatch::default() };
    let new = NewRun { messages: transcript(), limits, ..request() };
    let records = watch(agent.start(new, None).await.unwrap()).await;
    let end = outcome(&records);
    assert_eq!((end.reason, methods(&records)), (StopReason::Done, vec![Method::Local]), "{:?}", end.error);
    assert_eq!(model.summarised.lock().len(), 0);
}
