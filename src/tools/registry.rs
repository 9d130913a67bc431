//! The tools of this server at one moment, by name, each with its compiled schema.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::config::Hints;
use crate::tools::definitions::HeldBecause;
use crate::tools::schema::{self, Schema};
use crate::tools::{Tool, ToolSpec};
use crate::types::json::RawValueEq;
use crate::types::offer::{OfferHash, ToolDefinition};
use crate::types::pattern::matches;

/// All tools, in the order of their names.
#[derive(Debug, Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<RegisteredTool>>,
    /// The names of those that come from sources.
    of_sources: HashSet<String>,
    held: BTreeMap<String, HeldTool>,
    unheard: Vec<String>,
    version: u64,
}

/// The name of the tool by which models find others. It is no tool of a registry: a run answers its calls itself.
pub const FIND_TOOLS: &str = "find_tools";

/// A tool whose definition does not count.
#[derive(Debug, Clone)]
pub struct HeldTool {
    /// As its source defines it.
    pub tool: Arc<RegisteredTool>,
    /// Why it does not count.
    pub why: HeldBecause,
}

/// The next registry's number. The empty one is 0.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// Why a tool cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum RegistryError {
    /// Its name is not 1–64 of `A-Z a-z 0-9 _ -`.
    #[error("tool name `{name}` is not 1 to 64 of A-Z a-z 0-9 _ -")]
    Name { name: String },
    /// A tool that runs answer themselves has its name.
    #[error("`{name}` is the name of the tool by which models find others; give the tool another name")]
    Reserved { name: String },
    /// Another tool has its name.
    #[error("two tools are named `{name}`")]
    Duplicate { name: String },
    /// Its parameters are not a schema that can be checked.
    #[error("tool `{name}`: {reason}")]
    Schema { name: String, reason: String },
}

impl Registry {
    /// Compiles every tool's schema.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, RegistryError> {
        let mut registry = Self { version: VERSIONS.fetch_add(1, Ordering::Relaxed), ..Self::default() };
        for tool in tools {
            let tool = RegisteredTool::new(tool)?;
            match registry.tools.entry(tool.spec().name.clone()) {
                Entry::Vacant(place) => place.insert(Arc::new(tool)),
                Entry::Occupied(place) => return Err(RegistryError::Duplicate { name: place.key().clone() }),
            };
        }
        Ok(registry)
    }

    /// These fixed tools, those of sources, those of which the definition does not count, and the names of the sources that
    /// have not told what they have.
    pub(super) fn of(
        fixed: &[Arc<RegisteredTool>],
        of_sources: BTreeMap<String, Arc<RegisteredTool>>,
        held: BTreeMap<String, HeldTool>,
        unheard: Vec<String>,
    ) -> Self {
        let names = of_sources.keys().cloned().collect();
        let mut tools = of_sources;
        tools.extend(fixed.iter().map(|tool| (tool.spec().name.clone(), tool.clone())));
        Self { tools, of_sources: names, held, unheard, version: VERSIONS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Its number, which no other registry of this process has.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the tool of this name comes from a source, so that another may have the name later.
    #[must_use]
    pub fn is_of_source(&self, name: &str) -> bool {
        self.of_sources.contains(name)
    }

    /// The tools whose definitions do not count, in the order of their names.
    #[must_use]
    pub fn held(&self) -> &BTreeMap<String, HeldTool> {
        &self.held
    }

    /// The sources that have not told yet what they have.
    #[must_use]
    pub fn unheard(&self) -> &[String] {
        &self.unheard
    }

    /// The same, and these tools as far as their names are free.
    #[must_use]
    pub fn and(mut self, more: impl IntoIterator<Item = Arc<RegisteredTool>>) -> Self {
        for tool in more {
            self.tools.entry(tool.spec().name.clone()).or_insert(tool);
        }
        self
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name)
    }

    /// All tools, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> {
        self.tools.values()
    }

    /// The tools that at least one pattern names, in the order of their names. A `*` in a pattern
    /// stands for any number of characters.
    #[must_use]
    pub fn select(&self, patterns: &[String]) -> Vec<&Arc<RegisteredTool>> {
        self.iter().filter(|tool| patterns.iter().any(|pattern| matches(pattern, &tool.spec().name))).collect()
    }
}

/// Whether `name` is one that OpenAI allows a tool: 1–64 of `A-Z a-z 0-9 _ -`.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// A tool, ready to be offered and called.
#[derive(Debug)]
pub struct RegisteredTool {
    tool: Arc<dyn Tool>,
    schema: Arc<Schema>,
    definition: Arc<ToolDefinition>,
    hash: OnceLock<String>,
    pin: OnceLock<String>,
}

impl RegisteredTool {
    /// Compiles the schema of its arguments.
    pub fn new(tool: Arc<dyn Tool>) -> Result<Self, RegistryError> {
        let name = usable_name(tool.spec())?;
        let schema =
            schema::compile(&tool.spec().parameters).map_err(|reason| RegistryError::Schema { name, reason })?;
        Self::compiled(tool, Arc::new(schema))
    }

    /// The same, where the schema of its arguments is compiled already.
    pub(super) fn compiled(tool: Arc<dyn Tool>, schema: Arc<Schema>) -> Result<Self, RegistryError> {
        usable_name(tool.spec())?;
        let definition = definition(tool.spec());
        Ok(Self { tool, schema, definition, hash: OnceLock::new(), pin: OnceLock::new() })
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    /// The tool itself.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// What offers it to a model.
    #[must_use]
    pub fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    /// The hash of that.
    #[must_use]
    pub fn hash(&self) -> &str {
        self.hash.get_or_init(|| self.definition.hash())
    }

    /// The hash of what is accepted or pinned of a tool: its definition, and what its source says of its effect. So a source
    /// that is believed in this cannot have a call repeated that was accepted as one that is not.
    #[must_use]
    pub fn pin(&self) -> &str {
        let hints = self.tool.hints();
        if hints == Hints::default() {
            return self.hash();
        }
        self.pin.get_or_init(|| {
            let written = format!("{} read_only={} idempotent={}", self.hash(), hints.read_only, hints.idempotent);
            OfferHash::of(written.as_bytes()).as_str().to_owned()
        })
    }

    /// What its arguments must be.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }
}

/// The name of a tool, if tools can be called so.
fn usable_name(spec: &ToolSpec) -> Result<String, RegistryError> {
    let name = spec.name.clone();
    if !is_tool_name(&name) {
        return Err(RegistryError::Name { name });
    }
    if name == FIND_TOOLS {
        return Err(RegistryError::Reserved { name });
    }
    Ok(name)
}

/// What offers a tool to a model.
pub(super) fn definition(spec: &ToolSpec) -> Arc<ToolDefinition> {
    Arc::new(ToolDefinition {
        name: spec.name.clone(),
        description: Some(spec.description.clone()),
        parameters: Some(RawValueEq(spec.parameters.clone())),
        ..ToolDefinition::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::StubTool;

    fn registry(names: &[&str]) -> Result<Registry, RegistryError> {
        Registry::new(names.iter().map(|name| StubTool::named(name).shared()))
    }

    #[test]
    fn names_are_unique_and_plain() {
        let twice = registry(&["a", "b", "a"]).unwrap_err();
        assert_eq!(twice, RegistryError::Duplicate { name: "a".into() });
        for bad in ["", "a b", "ä", "a.b", &"x".repeat(65)] {
            assert_eq!(registry(&[bad]).unwrap_err(), RegistryError::Name { name: bad.into() });
        }
        assert_eq!(registry(&["find_tools"]).unwrap_err(), RegistryError::Reserved { name: "find_tools".into() });
        assert!(registry(&["A-z_9", &"x".repeat(64)]).is_ok());
        let schema = StubTool::named("a").parameters(r#"{"$ref":"http://example.com/"}"#).shared();
        assert!(matches!(Registry::new([schema]), Err(RegistryError::Schema { .. })));
    }

    #[test]
    fn patterns_select_in_the_order_of_names() {
        let registry = registry(&["github__list", "calculator", "github__get_file", "github__get_issue"]).unwrap();
        let select = |patterns: &[&str]| -> Vec<String> {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            registry.select(&patterns).iter().map(|tool| tool.spec().name.clone()).collect()
        };
        assert_eq!(
            select(&["github__get_*", "calculator", "calc*"]),
            ["calculator", "github__get_file", "github__get_issue"]
        );
        assert_eq!(select(&["*"]).len(), 4);
        assert_eq!(select(&["*get*f*e", "absent", "calculato"]), ["github__get_file"]);
        assert!(select(&[]).is_empty());
    }
}
