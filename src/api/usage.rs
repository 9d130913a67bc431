//! `/v1/usage`: what the runs of a tenant took.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, header};

use crate::agent::Agent;
use crate::agent::usage::report::{GROUPS, Group, GroupBy, UsagePage, UsageQuery};
use crate::agent::usage::row::Day;
use crate::api::auth::Caller;
use crate::api::error::ApiError;
use crate::api::extract::Query;
use crate::api::params::UsageParams;
use crate::api::state::Api;
use crate::api::wire::body::clip;
use crate::api::wire::error::ErrorCode;
use crate::api::wire::usage_report::{UsageReport, csv_head, csv_rows, read_cursor};
use crate::store::Unavailable;

/// Groups of a page unless asked otherwise, and at most.
const LIMIT: (usize, usize) = (100, 1_000);
/// Days before the last one that a report shows unless asked otherwise.
const DAYS_BEFORE: u32 = 29;
/// Most days of a report.
const MOST_DAYS: u32 = 400;
/// The parameters beside those that name a value of a [`GroupBy`].
const PARAMETERS: [&str; 6] = ["from", "to", "group_by", "limit", "after", "format"];

/// Shows what runs took: sums by day, key, agent, model and user.
///
/// A run is counted on the UTC day on which it ended or began to wait for its client. A key that is bound to agents
/// reads what these agents used.
#[utoipa::path(
    get, path = "/v1/usage", tag = "usage", operation_id = "getUsage",
    params(UsageParams),
    responses((status = 200, description = "A page of sums, or all of them as CSV", content(
                  (UsageReport = "application/json"), (String = "text/csv")))),
)]
pub async fn usage(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let is_csv = wants_csv(&query, &headers)?;
    let asked = read_query(&query, api.agent.usage().today())?;
    if !is_csv {
        let page = api.agent.usage().report(caller.requester(), &asked).await.map_err(unavailable)?;
        return Ok(axum::Json(UsageReport::new(&asked, page)).into_response());
    }
    if let Some(name) = ["limit", "after"].into_iter().find(|name| query.get(name).is_some()) {
        return Err(ApiError::invalid(name, "CSV has all rows; leave this out"));
    }
    let name = format!("attachment; filename=\"usage-{}-{}.csv\"", asked.from, asked.to);
    let mut response = Response::new(Body::from_stream(csv(api.agent, caller, asked).await?));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    Ok(response)
}

/// The whole report, read a page at a time.
async fn csv(
    agent: Agent,
    caller: Caller,
    query: UsageQuery,
) -> Result<BoxStream<'static, Result<Bytes, Unavailable>>, ApiError> {
    // A page that is not by day reads all rows, so there is one.
    let limit = if query.is_by_day() { LIMIT.1 } else { GROUPS + 1 };
    let mut query = UsageQuery { limit, after: None, ..query };
    // What fails at once can still be an error response.
    let mut page = agent.usage().report(caller.requester(), &query).await.map_err(unavailable)?;
    let body = async_stream::try_stream! {
        yield csv_head(&query.group_by);
        loop {
            query.after = last_of(&page);
            yield csv_rows(&page);
            if !page.has_more {
                return;
            }
            page = agent.usage().report(caller.requester(), &query).await.inspect_err(|error| {
                tracing::warn!(%error, "an export of usage broke off");
            })?;
        }
    };
    Ok(Box::pin(body))
}

fn last_of(page: &UsagePage) -> Option<Group> {
    page.groups.last().map(|(group, _)| group.clone())
}

fn unavailable(error: Unavailable) -> ApiError {
    crate::agent::error::LookupError::from(error).into()
}

/// `format`, or what `Accept` asks for.
fn wants_csv(query: &Query, headers: &HeaderMap) -> Result<bool, ApiError> {
    match query.get("format") {
        Some("csv") => Ok(true),
        Some("json") => Ok(false),
        Some(_) => Err(ApiError::invalid("format", "must be `json` or `csv`")),
        None => {
            let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
            let mut kinds = accept.flat_map(|value| value.split(','));
            let of_csv = |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/csv");
            Ok(kinds.any(of_csv))
        }
    }
}

fn read_query(query: &Query, today: Day) -> Result<UsageQuery, ApiError> {
    let is_known = |name: &str| PARAMETERS.contains(&name) || filter_of(name).is_some();
    if let Some(name) = query.names().find(|name| !is_known(name)) {
        // A filter that is misspelt would not filter.
        let message = format!("{:?} is no parameter of this report", clip(name));
        return Err(ApiError::new(ErrorCode::UnknownField, message).at(clip(name)));
    }
    let to = day(query, "to")?.unwrap_or(today);
    let from = day(query, "from")?.unwrap_or_else(|| to.before(DAYS_BEFORE));
    let days = from.days_to(to);
    if !(1..=MOST_DAYS).contains(&days) {
        return Err(ApiError::invalid("from", format!("must be at most {} days before `to`", MOST_DAYS - 1)));
    }
    let group_by = match query.get("group_by") {
        Some(names) => read_group_by(names)?,
        None => vec![GroupBy::Day],
    };
    let filters = GroupBy::ALL.into_iter().filter(|by| *by != GroupBy::Day);
    let only = filters.filter_map(|by| Some((by, query.get(by.name())?.to_owned()))).collect();
    let after = query.parsed("after", |text| read_cursor(text, &group_by))?;
    Ok(UsageQuery { from, to, only, after, limit: query.limit_of(LIMIT)?, group_by })
}

/// What a parameter of this name filters by.
fn filter_of(name: &str) -> Option<GroupBy> {
    GroupBy::parse(name).filter(|by| *by != GroupBy::Day)
}

fn day(query: &Query, name: &str) -> Result<Option<Day>, ApiError> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let wrong = |()| ApiError::invalid(name, "must be a day of UTC such as 2026-11-23");
    text.parse().map(Some).map_err(wrong)
}

/// Names between commas, which may be none: then all is one sum.
fn read_group_by(names: &str) -> Result<Vec<GroupBy>, ApiError> {
    let mut named = Vec::new();
    for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let message = || format!("{:?} is none of day, key, agent, model and user", clip(name));
        named.push(GroupBy::parse(name).ok_or_else(|| ApiError::invalid("group_by", message()))?);
    }
    Ok(GroupBy::ALL.into_iter().filter(|by| named.contains(by)).collect())
}
