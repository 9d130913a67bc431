//! Writes and deletes documents: each change is one commit with the head of its collection.

use std::time::Duration;

use crate::agent::documents::change::{Change, Limits, counted};
use crate::agent::documents::error::DocumentError;
use crate::agent::documents::name::is_name;
use crate::agent::documents::{Documents, Named};
use crate::agent::error::unavailable;
use crate::agent::ledger::collection::{Collection, CollectionHead, KEPT, StoredText};
use crate::agent::ledger::document::{decode, encode};
use crate::agent::ledger::keys;
use crate::store::retry::RetryConflicts;
use crate::store::{Check, CommitError, Document, Tx, Unavailable, Write};
use crate::types::Tenant;
use crate::types::clock::now_ms;

/// A document, and the head of its collection, as they were read together.
pub(super) struct Read {
    document: Option<Document>,
    text: Option<StoredText>,
    head: CollectionHead,
    head_version: u64,
}

impl Documents {
    /// Changes a document, or makes it. What the document is then; or as it is, if the change was made before: of version 0 if it
    /// was deleted since.
    pub async fn put(
        &self,
        tenant: &Tenant,
        of: &Collection,
        name: &str,
        (change, limits): (&Change<'_>, &Limits),
    ) -> Result<Named, DocumentError> {
        if !is_name(name) {
            return Err(DocumentError::BadName);
        }
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let read = self.read(tenant, of, name).await?;
            if read.head.has_made(change.once) {
                return Ok(Named::new(name, read.text.unwrap_or_default()));
            }
            let text = change.of((name, read.text.as_ref(), read.head.floor), now_ms())?;
            let head = counted(&read.head, name, (read.text.as_ref(), Some(&text)), Some(limits))?;
            let head = CollectionHead { of: Some(of.clone()), ..head.making(change.once) };
            let put = Write::Put { key: of.document(name), value: encode(&text), ttl: None };
            if self.change(tenant, of, (name, &read), (put, &head)).await? {
                return Ok(Named::new(name, text));
            }
        }
        Err(DocumentError::Busy)
    }

    /// Deletes a document. A deletion that is known by a name is made once, also if it is asked for again.
    pub async fn delete(
        &self,
        tenant: &Tenant,
        of: &Collection,
        (name, once): (&str, Option<&str>),
    ) -> Result<(), DocumentError> {
        let missing = || DocumentError::NotFound(name.to_owned());
        if !is_name(name) {
            return Err(missing());
        }
        let mut retry = RetryConflicts::new();
        while retry.next().await {
            let read = self.read(tenant, of, name).await?;
            if read.head.has_made(once) {
                return Ok(());
            }
            let Some(text) = &read.text else { return Err(missing()) };
            let head = counted(&read.head, name, (Some(text), None), None)?;
            let head = head.making(once).without(text.version);
            let delete = Write::Delete { key: of.document(name) };
            if self.change(tenant, of, (name, &read), (delete, &head)).await? {
                return Ok(());
            }
        }
        Err(DocumentError::Busy)
    }

    /// Changes the index of a tenant.
    pub(super) async fn index(&self, tenant: &Tenant, write: Write) -> Result<(), Unavailable> {
        self.ledger.commit(Tx::new(keys::tenant_partition(tenant)).write(write)).await.map_err(unavailable)
    }

    async fn read(&self, tenant: &Tenant, of: &Collection, name: &str) -> Result<Read, Unavailable> {
        let (partition, store) = (of.partition(tenant), self.ledger.store());
        let (head_key, key) = (of.head(), of.document(name));
        let (head, document) = tokio::try_join!(store.get(&partition, &head_key), store.get(&partition, &key))?;
        let head_version = head.as_ref().map_or(0, |head| head.version);
        let head = match head {
            Some(head) => decode(&head.value)?,
            None => CollectionHead::default(),
        };
        let text = document.as_ref().map(|document| decode(&document.value)).transpose()?;
        Ok(Read { document, text, head, head_version })
    }

    /// Makes a change of what was read; `false` if another change came first.
    async fn change(
        &self,
        tenant: &Tenant,
        of: &Collection,
        (name, read): (&str, &Read),
        (write, head): (Write, &CollectionHead),
    ) -> Result<bool, DocumentError> {
        let is_new = read.head_version == 0;
        let head = if is_new { &CollectionHead { id: random()?, ..head.clone() } } else { head };
        let grows = head.stored().saturating_sub(read.head.stored());
        if grows > 0 {
            self.ledger.take_storage(tenant, grows).await?;
        }
        if is_new {
            // What the index names may not exist yet, but nothing exists unnamed.
            let entry = encode(&of.entry(now_ms()));
            self.index(tenant, Write::Put { key: of.entry_key(), value: entry, ttl: None }).await?;
        }
        let version = read.document.as_ref().map_or(0, |document| document.version);
        let tx = Tx::new(of.partition(tenant))
            .check(Check::Version { key: of.document(name), version })
            .write(write)
            .put_at(of.head(), read.head_version, encode(head), kept(head));
        match self.ledger.commit(tx).await {
            Ok(()) => {
                self.ledger.return_storage(tenant, read.head.stored().saturating_sub(head.stored())).await;
                Ok(true)
            }
            Err(CommitError::VersionConflict { .. }) => {
                self.ledger.return_storage(tenant, grows).await;
                Ok(false)
            }
            Err(error) => Err(unavailable(error).into()),
        }
    }
}

/// For how long a head is kept; `None` for as long as it has documents.
fn kept(head: &CollectionHead) -> Option<Duration> {
    (head.documents == 0).then_some(KEPT)
}

/// A number that no other collection has, at least not by design.
fn random() -> Result<u64, Unavailable> {
    getrandom::u64().map(|number| number.max(1)).map_err(|error| Unavailable(format!("no random number: {error}")))
}
