//! Reads usage: adds up the rows of several days, by what the reader asks for.

use std::collections::BTreeMap;
use std::pin::pin;

use futures_util::TryStreamExt;

use crate::agent::ledger::document::decode;
use crate::agent::ledger::keys;
use crate::agent::requester::Requester;
use crate::agent::usage::Usage;
use crate::agent::usage::row::{Day, Dimensions, OTHER, StoredRow, Totals};
use crate::store::pages::scan_pages;
use crate::store::{Order, Scan, Unavailable};

/// Rows read at a time.
const PAGE: usize = 512;
/// Groups that are told apart where a report is not by day: the first ones in their order, whatever order rows are read in.
/// What comes beyond is counted under [`OTHER`].
pub const GROUPS: usize = 10_000;

/// What usage can be told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// The UTC day.
    Day,
    /// The key.
    Key,
    /// The agent.
    Agent,
    /// The upstream's model.
    Model,
    /// The end user.
    User,
}

impl GroupBy {
    /// All, in the order of a report.
    pub const ALL: [Self; 5] = [Self::Day, Self::Key, Self::Agent, Self::Model, Self::User];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::User => "user",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }

    fn of(self, day: Day, dimensions: &Dimensions) -> Option<String> {
        match self {
            Self::Day => Some(day.to_string()),
            Self::Key => dimensions.key.clone(),
            Self::Agent => Some(dimensions.agent.clone()),
            Self::Model => Some(dimensions.model.clone()),
            Self::User => dimensions.user.clone(),
        }
    }
}

/// What is read of a tenant's usage.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    /// The first day.
    pub from: Day,
    /// The last day.
    pub to: Day,
    /// What is told apart, in the order of [`GroupBy::ALL`].
    pub group_by: Vec<GroupBy>,
    /// Only what has these values; an empty value stands for none.
    pub only: Vec<(GroupBy, String)>,
    /// Only groups beyond this one.
    pub after: Option<Group>,
    /// At most so many groups.
    pub limit: usize,
}

/// The values of a group, in the order of `group_by`. `None` where a run had no key or named no user.
pub type Group = Vec<Option<String>>;

/// A page of a report: groups in their order, and whether there are more.
#[derive(Debug, PartialEq, Eq)]
pub struct UsagePage {
    /// The groups and their sums.
    pub groups: Vec<(Group, Totals)>,
    /// Whether there are more.
    pub has_more: bool,
}

impl UsageQuery {
    /// Whether days are told apart. Then a page is made of the rows of its own days.
    #[must_use]
    pub fn is_by_day(&self) -> bool {
        self.group_by.first() == Some(&GroupBy::Day)
    }

    /// The day with which reading begins.
    fn first_day(&self) -> Day {
        let after = self.after.as_ref().filter(|_| self.is_by_day());
        let day = after.and_then(|group| group.first()?.as_deref()?.parse().ok());
        day.map_or(self.from, |day: Day| day.max(self.from))
    }

    /// The group of a row, if it is asked for.
    fn group_of(&self, requester: Requester<'_>, day: Day, dimensions: &Dimensions) -> Option<Group> {
        let is_asked_for =
            |(by, value): &(GroupBy, String)| by.of(day, dimensions).as_deref().unwrap_or_default() == value;
        if !requester.may_use(&dimensions.agent) || !self.only.iter().all(is_asked_for) {
            return None;
        }
        Some(self.group_by.iter().map(|by| by.of(day, dimensions)).collect())
    }

    fn is_beyond(&self, group: &Group) -> bool {
        self.after.as_ref().is_none_or(|after| group > after)
    }

    /// The group of all that is not told apart.
    fn other(&self) -> Group {
        vec![Some(OTHER.to_owned()); self.group_by.len()]
    }
}

impl Usage {
    /// A page of what the requester's tenant used. A key that is bound to agents reads what these agents used.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn report(&self, requester: Requester<'_>, query: &UsageQuery) -> Result<UsagePage, Unavailable> {
        let _turn = self.reports.acquire().await.map_err(|error| Unavailable(error.to_string()))?;
        let partition = keys::tenant_partition(requester.tenant);
        let after = Some(keys::usage_of_day(&query.first_day().to_string()));
        let scan = Scan { prefix: keys::USAGE.to_owned(), after, limit: PAGE, order: Order::Ascending };
        let mut pages = pin!(scan_pages(&**self.ledger().store(), &partition, scan));
        let mut groups = Groups::new(query);
        let mut newest = None;
        'rows: while let Some(page) = pages.try_next().await? {
            for (key, document) in page {
                let Some(day) = day_of(&key) else { continue };
                // The groups of the days before are complete.
                let is_complete =
                    query.is_by_day() && groups.sums.len() > query.limit && newest.is_some_and(|at| at != day);
                if day > query.to || is_complete {
                    break 'rows;
                }
                newest = Some(day);
                let StoredRow { dimensions, totals } = decode(&document.value)?;
                let Some(group) = query.group_of(requester, day, &dimensions) else { continue };
                if !query.is_by_day() || query.is_beyond(&group) {
                    groups.add(group, totals);
                }
            }
        }
        let mut groups = groups.finish(query.other());
        groups.retain(|group, _| query.is_beyond(group));
        let has_more = groups.len() > query.limit;
        Ok(UsagePage { groups: groups.into_iter().take(query.limit).collect(), has_more })
    }
}

/// The sums of groups. All are made anew for each page, so every page tells the same ones apart.
#[derive(Debug)]
struct Groups {
    sums: BTreeMap<Group, Totals>,
    /// Most that are told apart.
    most: usize,
    /// The first group that is not told apart, and the sum of it and those after it.
    rest: Option<(Group, Totals)>,
}

impl Groups {
    fn new(query: &UsageQuery) -> Self {
        let most = if query.is_by_day() { usize::MAX } else { GROUPS };
        Self { sums: BTreeMap::new(), most, rest: None }
    }

    fn add(&mut self, group: Group, totals: Totals) {
        match &mut self.rest {
            Some((first, rest)) if group >= *first => *rest += totals,
            _ => *self.sums.entry(group).or_default() += totals,
        }
        if self.sums.len() > self.most
            && let Some((last, mut sum)) = self.sums.pop_last()
        {
            sum += self.rest.take().map(|(_, rest)| rest).unwrap_or_default();
            self.rest = Some((last, sum));
        }
    }

    fn finish(mut self, other: Group) -> BTreeMap<Group, Totals> {
        if let Some((_, rest)) = self.rest {
            *self.sums.entry(other).or_default() += rest;
        }
        self.sums
    }
}

/// The day in the key of a row.
fn day_of(key: &str) -> Option<Day> {
    key.strip_prefix(keys::USAGE)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The same groups are told apart in whichever order rows are read, so pages agree.
        #[test]
        fn which_groups_are_told_apart_does_not_depend_on_the_order_of_rows(
            rows in prop::collection::vec((0..12_u32, 1..5_u64), 0..40),
            most in 1..8_usize,
            seed in 0..40_usize,
        ) {
            let sums = |rows: &[(u32, u64)]| {
                let mut groups = Groups { sums: BTreeMap::new(), most, rest: None };
                for (name, runs) in rows {
                    groups.add(vec![Some(format!("{name:02}"))], Totals { runs: *runs, ..Totals::default() });
                }
                groups.finish(vec![Some(OTHER.to_owned())])
            };
            let mut turned = rows.clone();
            turned.rotate_left(seed.min(rows.len()));
            turned.reverse();
            let found = sums(&rows);
            prop_assert_eq!(&sums(&turned), &found);
            prop_assert_eq!(found.values().map(|totals| totals.runs).sum::<u64>(), rows.iter().map(|row| row.1).sum::<u64>());
            let mut names: Vec<_> = rows.iter().map(|(name, _)| format!("{name:02}")).collect();
            names.sort();
            names.dedup();
            let is_told = |name: &String| found.contains_key(&vec![Some(name.clone())]);
            prop_assert!(names.iter().take(most).all(is_told) && !names.iter().skip(most).any(is_told));
        }
    }
}
