//! The tools of servers that a request names, beside those that its agent has.
//!
//! What an agent has is the same for many runs, and is worked out once. What a request names is its run's own, so what comes
//! of both is made for each run.

use std::sync::Arc;

use crate::agent::context::find_tools;
use crate::agent::context::offer::Offer;
use crate::agent::context::selection::{LEAST_FOUND, Selection};
use crate::agent::context::server_tools::ServerTools;
use crate::tools::RegisteredTool;
use crate::tools::schema::Schema;
use crate::types::offer::ToolDefinition;
use crate::types::run::ToolSearch;

/// What a run is offered, or can find.
#[derive(Debug)]
pub struct Joined {
    /// The names of those that are offered from the start.
    pub names: Vec<String>,
    /// All of them but those that the run answers itself.
    pub servers: Arc<ServerTools>,
    /// The tools that the run answers itself.
    pub own: Vec<Arc<ToolDefinition>>,
    /// How more than those of `names` are found.
    pub search: Option<ToolSearch>,
}

impl Joined {
    /// What an agent has and these tools. If they are more than `most` together, those of the servers are found by search.
    #[must_use]
    pub fn of(selection: &Selection, named: &[Arc<RegisteredTool>], most: usize) -> Self {
        let base = selection.servers.offer().tools();
        let (first, more) = base.split_at(selection.servers.first());
        let of_servers = Offer::of(named);
        let is_search = selection.search.is_some() || base.len() + named.len() > most;
        let mut names = selection.names.clone();
        let offer = if is_search {
            Offer::of_offered(base.iter().chain(of_servers.tools()))
        } else {
            names.extend(named.iter().map(|tool| tool.spec().name.clone()));
            Offer::of_offered(first.iter().chain(of_servers.tools()).chain(more))
        };
        let count = if is_search { first.len() } else { first.len() + named.len() };
        let known = |name: &str| -> Option<Arc<Schema>> {
            let of_server = named.iter().find(|tool| tool.spec().name == name).map(|tool| tool.schema().clone());
            of_server.or_else(|| selection.servers.known_schema(name))
        };
        let servers = Arc::new(ServerTools::knowing(offer, count, known));
        let mut own = selection.own.clone();
        if is_search && selection.search.is_none() {
            own.push(find_tools::definition().clone());
        }
        let search = is_search.then(|| {
            let more = u32::try_from(most.saturating_sub(count).max(LEAST_FOUND)).unwrap_or(u32::MAX);
            selection.search.unwrap_or(ToolSearch { first: u32::try_from(count).unwrap_or(u32::MAX), most: more })
        });
        Self { names, servers, own, search }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::context::selection::{Patterns, Selections};
    use crate::tools::{Registry, builtin};

    /// What an agent that has one tool is offered with these of a server, if it is offered so many at most.
    fn joined(most: usize) -> (String, Vec<Arc<RegisteredTool>>, Joined) {
        let mut all = builtin::all().into_iter();
        let own = all.next().expect("there are built-in tools");
        let name = own.spec().name.clone();
        let named: Vec<_> = all.take(2).map(|tool| Arc::new(RegisteredTool::new(tool).unwrap())).collect();
        let registry = Registry::new([own]).unwrap();
        let patterns = Patterns { agent: &["*".to_owned()], asked: None, always: &[], most, policy: None };
        let selection = Selections::default().get(&patterns, &registry, std::iter::empty());
        (name, named.clone(), Joined::of(&selection, &named, most))
    }

    #[test]
    fn tools_of_a_server_are_offered_behind_those_of_the_agent() {
        let (own, named, joined) = joined(8);
        let names: Vec<String> = [own].into_iter().chain(named.iter().map(|tool| tool.spec().name.clone())).collect();
        assert_eq!((&joined.names, joined.servers.first()), (&names, names.len()));
        assert!(joined.search.is_none() && joined.own.is_empty());
        let same = Offer::read(joined.servers.offer().written().clone(), joined.servers.offer().hash()).unwrap();
        assert_eq!(same.tools().len(), names.len(), "another process reads the same");
    }

    #[test]
    fn where_they_are_too_many_they_are_found_by_search() {
        let (own, named, joined) = joined(2);
        assert_eq!((joined.names, joined.servers.first()), (vec![own], 1));
        assert!(named.iter().all(|tool| joined.servers.has(&tool.spec().name)));
        assert_eq!(joined.search.map(|search| search.first), Some(1));
        assert!(joined.own.iter().any(|tool| tool.name == find_tools::NAME));
    }
}
