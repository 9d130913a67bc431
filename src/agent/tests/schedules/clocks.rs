//! Schedules under clocks that are behind, or were set back.

use super::*;

/// A replica whose clock is behind says of a time that has come that it is next.
#[tokio::test(start_paused = true)]
async fn a_time_that_has_come_already_does_not_end_a_schedule() {
    let agent = replica(&shared(), says());
    create(&agent, every_minute()).await.unwrap();
    clock::shift(MINUTE);
    agent.schedules().fire_what_is_due().await;
    let fired = read(&agent).await;
    ended(std::slice::from_ref(&agent), &fired).await;
    clock::shift(0);
    let changed = change(&agent, ScheduleSettings { on_missed: OnMissed::Skip, ..every_minute() }).await;
    assert_eq!(changed.next_ms, fired.firings[0].due_ms, "the time that has come is next again");
    clock::shift(MINUTE);
    agent.schedules().fire_what_is_due().await;
    let noted = read(&agent).await;
    assert_eq!((results(&noted), noted.next_ms > changed.next_ms), (vec![None], true), "it came once");
    clock::shift(2 * MINUTE);
    agent.schedules().fire_what_is_due().await;
    assert_eq!(results(&read(&agent).await), [None, None]);
}

/// What became of a time stays, also where nothing began.
#[tokio::test(start_paused = true)]
async fn a_time_that_was_skipped_begins_nothing_when_it_comes_again() {
    let agent = replica(&shared(), vec![Say::Text(&["done"]), Say::Stall(&["slow"])]);
    create(&agent, every_minute()).await.unwrap();
    for minute in 1..=3 {
        clock::shift(minute * MINUTE);
        agent.schedules().fire_what_is_due().await;
        if minute == 1 {
            ended(std::slice::from_ref(&agent), &read(&agent).await).await;
        }
    }
    let skipped = read(&agent).await;
    assert_eq!(results(&skipped), [None, None, Some(SkipReason::Overlap)]);
    agent.runs().cancel(&tenant(), skipped.last_run().unwrap().0).await.unwrap();
    ended(std::slice::from_ref(&agent), &skipped).await;
    clock::shift(2 * MINUTE);
    let changed = change(&agent, ScheduleSettings { on_missed: OnMissed::Skip, ..every_minute() }).await;
    assert_eq!(changed.next_ms, skipped.firings[2].due_ms);
    clock::shift(3 * MINUTE);
    agent.schedules().fire_what_is_due().await;
    let noted = read(&agent).await;
    assert_eq!((noted.firings.len(), runs(&agent).await.len()), (3, 2), "nothing begins that is noted nowhere");
    assert!(noted.next_ms > changed.next_ms);
}
