//! What runs took, as JSON and as CSV.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::agent::usage::report::{Group, GroupBy, UsagePage, UsageQuery};
use crate::agent::usage::row::Totals;

/// A page of usage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageReport {
    /// `list`.
    pub object: &'static str,
    /// The first day, in UTC.
    #[schema(example = "2026-11-01")]
    pub from: String,
    /// The last day.
    #[schema(example = "2026-11-30")]
    pub to: String,
    /// The sums, by day, key, agent, model and user, in this order.
    pub data: Vec<UsageRow>,
    /// What the next page is `after`.
    pub last_id: Option<String>,
    /// Whether there are more.
    pub has_more: bool,
}

/// What runs took. The members that name a group are there if `group_by` names them.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct UsageRow {
    /// The UTC day on which the runs ended or began to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, example = "2026-11-23")]
    pub day: Option<Option<String>>,
    /// The key that began them; null for runs without a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub key: Option<Option<String>>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub agent: Option<Option<String>>,
    /// The upstream and its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false, example = "openai/gpt-5")]
    pub model: Option<Option<String>>,
    /// The request's `user`; null for runs without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required = false)]
    pub user: Option<Option<String>>,
    /// Runs that ended or began to wait; a run that was continued is counted once.
    pub runs: u64,
    /// Input tokens, cached ones included.
    pub prompt_tokens: u64,
    /// Output tokens, reasoning included.
    pub completion_tokens: u64,
    /// Input that the upstream had cached.
    pub cached_tokens: u64,
    /// Input that the upstream wrote to its cache.
    pub cache_write_tokens: u64,
    /// Output that was reasoning.
    pub reasoning_tokens: u64,
    /// Input and output.
    pub total_tokens: u64,
    /// Cost in US dollars.
    pub cost_usd: f64,
}

impl UsageReport {
    /// This page.
    pub fn new(query: &UsageQuery, page: UsagePage) -> Self {
        let UsagePage { groups, has_more } = page;
        let last_id = groups.last().map(|(group, _)| cursor(group));
        let data = groups.into_iter().map(|(group, totals)| UsageRow::new(&query.group_by, group, &totals)).collect();
        Self { object: "list", from: query.from.to_string(), to: query.to.to_string(), data, last_id, has_more }
    }
}

impl UsageRow {
    fn new(group_by: &[GroupBy], group: Group, totals: &Totals) -> Self {
        let mut row = Self {
            runs: totals.runs,
            prompt_tokens: totals.prompt_tokens,
            completion_tokens: totals.completion_tokens,
            cached_tokens: totals.cached_tokens,
            cache_write_tokens: totals.cache_write_tokens,
            reasoning_tokens: totals.reasoning_tokens,
            total_tokens: total(totals),
            cost_usd: totals.cost.as_usd(),
            ..Self::default()
        };
        for (by, value) in group_by.iter().zip(group) {
            let member = match by {
                GroupBy::Day => &mut row.day,
                GroupBy::Key => &mut row.key,
                GroupBy::Agent => &mut row.agent,
                GroupBy::Model => &mut row.model,
                GroupBy::User => &mut row.user,
            };
            *member = Some(value);
        }
        row
    }
}

fn total(totals: &Totals) -> u64 {
    totals.prompt_tokens.saturating_add(totals.completion_tokens)
}

/// A group as the place after which a page begins.
fn cursor(group: &Group) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(group).unwrap_or_default())
}

/// The group that a cursor names; `None` if it is not one of a report that is told apart like this.
pub fn read_cursor(text: &str, group_by: &[GroupBy]) -> Option<Group> {
    let group: Group = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    (group.len() == group_by.len()).then_some(group)
}

/// The line that names the columns.
pub fn csv_head(group_by: &[GroupBy]) -> Bytes {
    let mut line = String::new();
    for by in group_by {
        line.push_str(by.name());
        line.push(',');
    }
    line.push_str("runs,prompt_tokens,completion_tokens,cached_tokens,cache_write_tokens,reasoning_tokens,total_tokens,cost_usd\r\n");
    line.into()
}

/// The lines of a page, as RFC 4180 writes them.
pub fn csv_rows(page: &UsagePage) -> Bytes {
    let mut lines = String::new();
    for (group, totals) in &page.groups {
        for value in group {
            push_text(&mut lines, value.as_deref().unwrap_or_default());
            lines.push(',');
        }
        let Totals { runs, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, .. } = totals;
        let Totals { reasoning_tokens, cost, .. } = totals;
        let (sum, dollars, micros) = (total(totals), cost.0 / 1_000_000, cost.0 % 1_000_000);
        let written = write!(
            lines,
            "{runs},{prompt_tokens},{completion_tokens},{cached_tokens},{cache_write_tokens},{reasoning_tokens},{sum},\
             {dollars}.{micros:06}\r\n"
        );
        debug_assert!(written.is_ok(), "a string takes all that is written to it");
    }
    lines.into()
}

/// Writes a text so that no spreadsheet takes it for a formula, and in quotes where it has to be.
fn push_text(line: &mut String, text: &str) {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let is_quoted = is_formula || text.contains(['"', ',', '\r', '\n']) || text != text.trim();
    if !is_quoted {
        return line.push_str(text);
    }
    line.push('"');
    if is_formula {
        line.push('\'');
    }
    line.push_str(&text.replace('"', "\"\""));
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Micros;

    #[test]
    fn csv_is_quoted_and_holds_no_formulas() {
        let totals =
            Totals { runs: 1, prompt_tokens: 20, completion_tokens: 3, cost: Micros(1_000_050), ..Totals::default() };
        let users = [None, Some("a,b"), Some("say \"hi\"\r\n"), Some("=1+1"), Some("@x"), Some("é")];
        let groups = users.map(|user| (vec![user.map(str::to_owned)], totals)).into();
        let text = csv_rows(&UsagePage { groups, has_more: false });
        let numbers = "1,20,3,0,0,0,23,1.000050\r\n";
        let names = ["", "\"a,b\"", "\"say \"\"hi\"\"\r\n\"", "\"'=1+1\"", "\"'@x\"", "é"];
        let expected: String = names.iter().flat_map(|name| [name, ",", numbers]).collect();
        assert_eq!(text, expected);
        let columns = csv_head(&[GroupBy::User]);
        assert!(columns.starts_with(b"user,runs,") && columns.ends_with(b",cost_usd\r\n"));
    }

    #[test]
    fn a_cursor_names_a_group_of_its_own_report_alone() {
        let group = vec![Some("2026-11-23".to_owned()), None];
        let text = cursor(&group);
        assert_eq!(read_cursor(&text, &[GroupBy::Day, GroupBy::Key]), Some(group));
        for (text, by) in [(text.as_str(), &[GroupBy::Day][..]), ("", &[]), ("x!", &[]), ("bnVsbA", &[])] {
            assert_eq!(read_cursor(text, by), None, "{text}");
        }
    }
}
