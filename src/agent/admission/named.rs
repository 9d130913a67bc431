//! The servers of tools that a request names: asked for their tools before the run is stored, and then part of what the run is
//! offered.

use std::sync::Arc;

use crate::agent::error::{Field, StartError};
use crate::agent::generation::Generation;
use crate::agent::naming::{AskedServers, Listed, NotListed, may_not_name, owner};
use crate::agent::request::NewRun;
use crate::tools::definitions::own_name;
use crate::tools::mcp::NotOpened;
use crate::types::named_server::{AskedServer, NamedServer};
use crate::types::policy::{Layer, LayerOwner, Rule};
use crate::types::{Message, Role, RunSpec};

/// What the servers of a request list. Refuses a request that may not name them, or not so.
pub(super) async fn listed<'a>(
    asked: &'a AskedServers,
    new: &NewRun,
    generation: &Generation,
) -> Result<&'a Listed, StartError> {
    let key_name = new.key_name.as_deref();
    let Some(naming) = &generation.naming else { return Err(may_not_name(key_name).into()) };
    naming.check(asked, key_name)?;
    if let Some(taken) = asked.all.iter().find(|asked| is_taken(&asked.server.label, generation)) {
        let message =
            format!("the server has tools of the name {:?} already; choose another label", taken.server.label);
        return Err(StartError::Invalid { field: Field::Server(taken.place, "server_label"), message });
    }
    let owner = owner(&new.tenant, key_name);
    Ok(naming.listed(asked, (&new.id, &owner)).await?)
}

/// Whether a tool of the configuration has, or may come to have, a name that begins with this label.
fn is_taken(label: &str, generation: &Generation) -> bool {
    let (tools, now) = (&generation.tools, generation.tools.current());
    tools.sources().iter().any(|source| source.name() == label)
        || now.iter().any(|tool| own_name(label, &tool.spec().name).is_some())
}

/// The rules that the request makes for calls of their tools.
pub(super) fn layer(listed: &Listed) -> Option<Arc<Layer>> {
    let asks = listed.tools.iter().filter(|(_, asks)| *asks).map(|(tool, _)| Rule::of(tool.spec().name.clone()));
    let ask: Vec<Rule> = asks.collect();
    (!ask.is_empty()).then(|| Arc::new(Layer { owner: LayerOwner::Request, ask, ..Layer::default() }))
}

/// Notes in a run's specification what its request named.
pub(super) fn note(spec: &mut RunSpec, asked: &AskedServers, listed: &Listed) {
    spec.servers = Some(asked.all.iter().map(|asked| asked.server.clone()).collect());
    spec.warnings.extend(listed.warnings.iter().cloned());
}

/// What the servers of a request are for: the model is told before the instructions of the request.
pub(super) fn described(new: &NewRun) -> impl Iterator<Item = Message> {
    new.servers.iter().flat_map(|asked| &asked.all).filter_map(description)
}

fn description(asked: &AskedServer) -> Option<Message> {
    let (label, description) = (&asked.server.label, asked.description.as_ref()?);
    let text = format!("Tools whose names begin with `{label}__` are those of: {description}");
    Some(Message::text(Role::System, &text))
}

/// How the servers of a request differ from those of the run that it continues.
pub(super) struct Differ {
    /// It names one that the run does not have so.
    pub(super) servers: bool,
    /// It has one be shown something else.
    pub(super) headers: bool,
}

/// How the servers of a request differ from those of the run that it continues.
pub(super) fn differ(new: &NewRun, run: &RunSpec) -> Differ {
    let (mut differ, kept) = (Differ { servers: false, headers: false }, run.servers.as_deref().unwrap_or_default());
    for AskedServer { server, .. } in new.servers.iter().flat_map(|asked| &asked.all) {
        let is_same =
            |one: &&NamedServer| one.label == server.label && one.url == server.url && one.tools == server.tools;
        let same = kept.iter().find(is_same);
        differ.servers |= same.is_none();
        differ.headers |= same.is_some_and(|same| same.headers != server.headers);
    }
    differ
}

impl From<NotListed> for StartError {
    fn from(error: NotListed) -> Self {
        match error {
            NotListed::Refused(place, message) => Self::Invalid { field: Field::Server(place, "server_url"), message },
            NotListed::Forbidden(why) | NotListed::TooMany(NotOpened::Refused(why)) => Self::ServersForbidden(why),
            NotListed::TooMany(too_many @ NotOpened::TooManyOfKey(_)) => {
                Self::TooManyServersOfKey(too_many.to_string())
            }
            NotListed::TooMany(too_many @ NotOpened::TooMany(_)) => Self::TooManyServers(too_many.to_string()),
            NotListed::Failed { .. } => Self::ServerFailed(error.to_string()),
        }
    }
}
