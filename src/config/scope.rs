//! What the requests of a key may do, whatever they are about.

use std::fmt;

use toml::Spanned;
use toml::de::DeValue;

use super::value::{FromToml, Misread, Word};

/// One thing that requests may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Start runs, and answer those that wait for their client.
    Run,
    /// Read runs, their events, sessions, what agents remember, and skills.
    Read,
    /// Decide tool calls that wait for an approval.
    Approvals,
    /// Send messages to live runs.
    Steer,
    /// Cancel runs.
    Cancel,
    /// Create, change, copy and delete sessions.
    Sessions,
    /// Write and delete what agents remember.
    Memory,
    /// Write and delete skills of the tenant, and files of agents.
    Skills,
    /// Read what the runs of the tenant took.
    Usage,
    /// Read the metrics of the whole server.
    Metrics,
    /// Accept definitions of tools, for the whole server.
    Tools,
    /// Change the agents of the tenant.
    Agents,
    /// Create, change and delete schedules, and begin their runs.
    Schedules,
    /// List, read and cancel the runs of all tenants.
    Operator,
}

impl Word for Scope {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("run", Self::Run),
        ("read", Self::Read),
        ("approvals", Self::Approvals),
        ("steer", Self::Steer),
        ("cancel", Self::Cancel),
        ("sessions", Self::Sessions),
        ("memory", Self::Memory),
        ("skills", Self::Skills),
        ("usage", Self::Usage),
        ("metrics", Self::Metrics),
        ("tools", Self::Tools),
        ("agents", Self::Agents),
        ("schedules", Self::Schedules),
        ("operator", Self::Operator),
    ];
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, scope)| scope == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}

/// What the requests of a key may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self(Scope::WORDS.iter().map(|(_, scope)| *scope).collect())
    }

    /// What a key may do of which nothing else is said: what concerns a tenant alone, and gives its runs nothing that the
    /// operator did not.
    #[must_use]
    pub fn of_tenant() -> Self {
        let is_given = |scope: &Scope| {
            !matches!(scope, Scope::Metrics | Scope::Tools | Scope::Agents | Scope::Skills | Scope::Operator)
        };
        Self(Self::all().0.into_iter().filter(is_given).collect())
    }

    /// These.
    #[must_use]
    pub fn of(scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self(scopes.into_iter().collect())
    }

    /// Whether this is among them.
    #[must_use]
    pub fn contains(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }
}

impl FromToml for Scopes {
    fn form() -> String {
        "list of scopes".into()
    }

    fn read(value: &Spanned<DeValue<'_>>) -> Result<Self, Misread> {
        let scopes: Vec<Scope> = FromToml::read(value)?;
        if scopes.is_empty() {
            return Err(Misread::new(
                value,
                "a key without any scope could do nothing; leave the list out for all but `metrics`, `tools`, `agents`, `skills` and `operator`",
            ));
        }
        Ok(Self(scopes))
    }

    fn show(&self) -> String {
        self.0.show()
    }
}
