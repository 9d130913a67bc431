//! What the code that reads a setting declares about it, as data for the documentation.

/// A table of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// `server`, or `agents.NAME.limits` where the operator chooses a name; empty for the whole file.
    pub path: String,
    /// Its keys, nested tables left out.
    pub rows: Vec<Row>,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub name: &'static str,
    /// What it holds, in a few words.
    pub form: String,
    /// What holds where it is not written.
    pub absent: Absent,
    /// One sentence.
    pub help: &'static str,
}

/// What holds for a key that is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absent {
    /// This default, as TOML.
    Default(String),
    /// No such value.
    Nothing,
    /// It must be written.
    Mistake,
}
