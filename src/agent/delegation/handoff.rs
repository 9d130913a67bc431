//! Lets runs go on as other agents: specifies them anew, and equips their drivers for what they are then.

use std::sync::Arc;

use async_trait::async_trait;

use crate::agent::delegation::Delegation;
use crate::agent::drive::handing_over::{Equipment, HandingOver, Successor, Wanted};
use crate::agent::error::StartError;
use crate::agent::generation::Generation;
use crate::store::Unavailable;
use crate::types::RunSpec;

#[async_trait]
impl HandingOver for Arc<Delegation> {
    async fn specify(&self, wanted: Wanted<'_>) -> Result<Result<Box<Successor>, String>, Unavailable> {
        match self.admission()?.successor(wanted).await {
            Ok(successor) => Ok(Ok(Box::new(successor))),
            Err(StartError::Store(error)) => Err(error),
            Err(refusal) => Ok(Err(refusal.to_string())),
        }
    }

    async fn equip(&self, spec: &RunSpec, generation: &Generation) -> Result<Option<Equipment>, Unavailable> {
        self.admission()?.launcher.equipment(spec, generation).await
    }
}
