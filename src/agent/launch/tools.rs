//! The tools of a run that is resumed: those that it was accepted with.

use crate::agent::context::offer::Offer;
use crate::agent::context::toolbox::Toolbox;
use crate::agent::drive::handing_over::Equipment;
use crate::agent::drive::notices::Notices;
use crate::agent::error::unavailable;
use crate::agent::generation::Generation;
use crate::agent::launch::Launcher;
use crate::store::Unavailable;
use crate::types::RunSpec;

impl Launcher {
    /// What a run is driven with that goes on as another agent. `None` if the store lost the definitions of its tools.
    pub(in crate::agent) async fn equipment(
        &self,
        spec: &RunSpec,
        generation: &Generation,
    ) -> Result<Option<Equipment>, Unavailable> {
        let Some(tools) = self.tools(spec, generation).await? else { return Ok(None) };
        let notices = Notices::of(spec, &generation.hooks, &self.outbox);
        Ok(Some(Equipment { tools, tree: self.limits.tree(spec), notices }))
    }

    /// The tools of a run that was accepted before, perhaps elsewhere and under another configuration. `None` if
    /// the store lost their definitions.
    pub(in crate::agent) async fn tools(
        &self,
        spec: &RunSpec,
        generation: &Generation,
    ) -> Result<Option<Toolbox>, Unavailable> {
        let servers = if let Some(known) = generation.known_offer(spec) {
            known
        } else {
            let written = self.offers.find(spec).await?;
            let Some(found) = written.and_then(|written| Offer::read(written, &spec.offer)) else {
                tracing::error!(run = %spec.id, "the definitions of the run's tools are no longer stored");
                return Ok(None);
            };
            generation.accepted_offer(spec, found)
        };
        self.offers.keep(spec, servers.offer().written()).await.map_err(unavailable)?;
        Ok(Some(Toolbox::new(servers, generation.tools.clone(), generation.servers_of(spec), spec)))
    }
}
