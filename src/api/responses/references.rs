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
use crate::types::{Event, Message, RunId};

/// Most runs whose items one request may name: a log is read for each.
const MAX_RUNS: usize = 64;

/// The items of these ids. Those that are not found are absent.
pub async fn find(api: &Api, caller: &Caller, ids: &HashSet<String>) -> Result<Known, ApiError> {
    let runs: HashSet<RunId> = ids.iter().filter_map(|id| id::run_of_item(id)).collect();
    if runs.len() > MAX_RUNS {
        return Err(ApiError::invalid("input", format!("may name items of at most {MAX_RUNS} runs")));
    }
    let mut known = HashMap::new();
    for run in runs {
        read_run(api, caller, &run, &mut Found { ids, known: &mut known }).await?;
    }
    Ok(known)
}

/// What was found of the items of these ids.
struct Found<'a> {
    ids: &'a HashSet<String>,
    known: &'a mut Known,
}

/// Finds items of a run's responses, and of the requests for them. One that is not there has none.
async fn read_run(api: &Api, caller: &Caller, run: &RunId, found: &mut Found<'_>) -> Result<(), ApiError> {
    let id = id::response(run, 0);
    let Some(stored) = Stored::of_run(api, caller, (run, 0)).await? else { return Ok(()) };
    found.given(run, 0, &stored.input(api, caller, &id).await?);
    let (mut follower, mut events) = (stored.follow(api, caller).await?, stored.all_events());
    loop {
        let page = follower.available_page().await?;
        if page.is_empty() {
            break;
        }
        for record in &page {
            if let Event::RunResumed { leg: Some(leg) } = &record.event {
                found.shown(&events);
                found.given(run, leg.number, &leg.answers);
            }
            events.take(record);
        }
    }
    found.shown(&events);
    Ok(())
}

impl Found<'_> {
    /// Looks among the items of a request.
    fn given(&mut self, run: &RunId, leg: u32, messages: &[Message]) {
        if self.ids.iter().any(|id| id::is_given(id)) {
            self.known
                .extend(input_items::items(run, leg, messages).into_iter().filter(|(id, _)| self.ids.contains(id)));
        }
    }

    /// Looks among the items of a response.
    fn shown(&mut self, events: &ResponseEvents) {
        for item in events.items() {
            if let Ok(Named { id }) = serde_json::from_str(item.get())
                && self.ids.contains(&id)
            {
                self.known.insert(id, item.to_owned());
            }
        }
    }
}

#[derive(Deserialize)]
struct Named {
    id: String,
}
