//! The items that a request names without having them: each is found in the response that it was shown in.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::responses::stored::Stored;
use crate::api::state::Api;
use crate::api::wire::responses::events::ResponseEvents;
use crate::api::wire::responses::id;
use crate::api::wire::responses::input::Known;
use crate::api::wire::responses::input_items;
use crate::types::{Event, RunId};

/// Most runs whose items one request may name: a log is read for each.
const MAX_RUNS: usize = 64;

/// The items of these ids. Those that are not found are absent.
pub async fn find(api: &Api, caller: &Caller, ids: &[String]) -> Result<Known, ApiError> {
    let runs: HashSet<RunId> = ids.iter().filter_map(|id| id::run_of_item(id)).collect();
    if runs.len() > MAX_RUNS {
        return Err(ApiError::invalid("input", format!("may name items of at most {MAX_RUNS} runs")));
    }
    let mut known = HashMap::new();
    for run in runs {
        read_run(api, caller, &run, &mut known).await?;
    }
    known.retain(|id, _| ids.contains(id));
    Ok(known)
}

/// All items of a run's responses, and of the requests for them. One that is not there has none.
async fn read_run(api: &Api, caller: &Caller, run: &RunId, known: &mut Known) -> Result<(), ApiError> {
    let id = id::response(run, 0);
    let Ok(stored) = Stored::find(api, caller, &id).await else { return Ok(()) };
    known.extend(input_items::items(run, 0, &stored.input(api, caller, &id).await?));
    let (mut follower, mut events) = (stored.follow(api, caller).await?, stored.all_events());
    loop {
        let page = follower.available_page().await?;
        if page.is_empty() {
            break;
        }
        for record in &page {
            if let Event::RunResumed { leg: Some(leg) } = &record.event {
                keep(&events, known);
                known.extend(input_items::items(run, leg.number, &leg.answers));
            }
            events.take(record);
        }
    }
    keep(&events, known);
    Ok(())
}

/// Keeps the items of a response by their ids.
fn keep(events: &ResponseEvents, known: &mut Known) {
    for item in events.items() {
        if let Ok(Named { id }) = serde_json::from_str(item.get()) {
            known.insert(id, item.to_owned());
        }
    }
}

#[derive(Deserialize)]
struct Named {
    id: String,
}
