//! The items that a request names without having them: each is found in the response that it was shown in.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::responses::stored::Stored;
use crate::api::state::Api;
use crate::api::wire::responses::id;
use crate::api::wire::responses::input::Known;
use crate::api::wire::responses::input_items;
use crate::types::RunId;

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

/// All items of a run's responses.
async fn read_run(api: &Api, caller: &Caller, run: &RunId, known: &mut Known) -> Result<(), ApiError> {
    for leg in 0.. {
        let id = id::response(run, leg);
        let Ok(stored) = Stored::find(api, caller, &id).await else { return Ok(()) };
        let Ok(events) = stored.read(api, caller, &id).await else { return Ok(()) };
        for item in events.items() {
            if let Ok(Named { id }) = serde_json::from_str(item.get()) {
                known.insert(id, item.to_owned());
            }
        }
        let given = stored.input(api, caller, &id).await?;
        known.extend(input_items::items(run, leg, &given));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Named {
    id: String,
}
