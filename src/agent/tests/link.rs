//! A replica's way to a store that it shares with others, which can be cut, wholly or to one place.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::store::layer::StoreLayer;
use crate::store::memory::MemoryStore;
use crate::store::{Partition, Store, Unavailable};

/// The way of one replica.
#[derive(Debug)]
pub(super) struct Link {
    store: Arc<dyn Store>,
    /// Watched instead of the store by a replica that hears no nudges.
    silence: Option<MemoryStore>,
    cut: Mutex<Cut>,
}

/// What does not pass.
#[derive(Debug, Clone, Default)]
enum Cut {
    #[default]
    Nothing,
    /// What is about this partition.
    Partition(Partition),
    Everything,
}

impl Link {
    /// A way to this store.
    pub(super) fn to(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), silence: None, cut: Mutex::default() })
    }

    /// One that no nudge finds.
    pub(super) fn deaf(store: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), silence: Some(MemoryStore::default()), cut: Mutex::default() })
    }

    /// Nothing passes from now on, or everything again.
    pub(super) fn cut(&self, cut: bool) {
        *self.cut.lock() = if cut { Cut::Everything } else { Cut::Nothing };
    }

    /// Nothing that is about this partition passes from now on.
    pub(super) fn cut_off(&self, partition: Partition) {
        *self.cut.lock() = Cut::Partition(partition);
    }
}

#[async_trait]
impl StoreLayer for Link {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn pass(&self, partition: Option<&Partition>) -> Result<(), Unavailable> {
        match &*self.cut.lock() {
            Cut::Nothing => Ok(()),
            Cut::Partition(cut) if Some(cut) != partition => Ok(()),
            Cut::Partition(_) | Cut::Everything => Err(Unavailable("the way is cut".into())),
        }
    }

    fn listen(&self) -> &dyn Store {
        self.silence.as_ref().map_or(&*self.store, |silence| silence)
    }

    fn has_others(&self) -> bool {
        true
    }
}
