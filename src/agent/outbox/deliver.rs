//! One attempt to send each message about a run that is due.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::TryStreamExt;

use super::Outbox;
use crate::agent::error::unavailable;
use crate::agent::ledger::document::decode;
use crate::agent::ledger::due::Due;
use crate::agent::ledger::keys;
use crate::agent::ledger::outbox::{KeptMessage, PAGE, ttl};
use crate::config::LONGEST_RETRIES;
use crate::failpoint;
use crate::hooks::HookFailure;
use crate::hooks::delivery::{GivenUp, after_failure};
use crate::store::pages::scan_pages;
use crate::store::{CommitError, Document, Key, Order, Partition, Scan, Tx, Unavailable, Write};
use crate::telemetry::metrics::Delivery;
use crate::types::pauses::spread;

/// An entry of the due index is put before the messages that it leads to. So long after its time none comes any more, unless
/// the run is under way: its driver may wait for the store for as long as it has the lease.
const MESSAGE_WITHIN: Duration = Duration::from_secs(60);

/// A message in the store.
struct Found {
    partition: Partition,
    key: Key,
    version: u64,
    message: KeptMessage,
}

impl Outbox {
    /// Sends the messages about a run that are due, and removes the entry that led to them.
    pub(in crate::agent) async fn send_due(&self, due: &Due) -> Result<(), Unavailable> {
        let store = self.0.ledger.store();
        let partition = keys::run_partition(&due.owner.tenant, due.owner.session.as_ref(), &due.run);
        let scan = Scan { prefix: keys::messages_of(&due.run), after: None, limit: PAGE, order: Order::Ascending };
        let (mut pages, mut is_led_to) = (std::pin::pin!(scan_pages(&**store, &partition, scan)), false);
        // The hooks that did not take a message of this run just now.
        let mut failing = HashSet::new();
        while let Some(page) = pages.try_next().await? {
            for (key, document) in page {
                let Some(found) = self.read(&partition, &key, &document).await? else { continue };
                // Whatever was stored together with it follows in this pass.
                is_led_to |= due.message.as_deref() == Some(&found.message.id);
                if found.message.next_ms > store.now_ms() {
                    continue;
                }
                if failing.contains(&found.message.hook) {
                    self.postpone(due, found).await?;
                } else if let Some(hook) = self.attempt(due, found).await? {
                    failing.insert(hook);
                }
            }
        }
        failpoint::hit("outbox.before_settle");
        if is_led_to || self.is_stale(due, &partition).await? {
            due.remove(&**store).await?;
        }
        Ok(())
    }

    /// Whether no message comes any more that an entry would lead to which leads to none.
    async fn is_stale(&self, due: &Due, partition: &Partition) -> Result<bool, Unavailable> {
        let age_ms = u128::from(self.0.ledger.store().now_ms().saturating_sub(due.at_ms));
        if age_ms <= MESSAGE_WITHIN.as_millis() {
            return Ok(false);
        }
        let head = self.0.ledger.head(partition, &due.run).await?;
        Ok(!head.is_some_and(|head| head.is_under_way()))
    }

    /// A message as it is stored; one that cannot be read is removed.
    async fn read(&self, partition: &Partition, key: &str, document: &Document) -> Result<Option<Found>, Unavailable> {
        let (key, version): (Key, u64) = (key.into(), document.version);
        match decode(&document.value) {
            Ok(message) => Ok(Some(Found { partition: partition.clone(), key, version, message })),
            Err(error) => {
                tracing::error!(%key, %error, "a message to a hook is damaged, and is removed");
                self.forget(partition, &key, version).await?;
                Ok(None)
            }
        }
    }

    /// Counts an attempt and makes it, or gives the message up. Returns the hook if that did not take the message.
    async fn attempt(&self, due: &Due, found: Found) -> Result<Option<String>, Unavailable> {
        let (generation, now_ms) = (self.0.generations.current(), self.0.ledger.store().now_ms());
        let Some(hook) = generation.hooks.get(&found.message.hook) else {
            return self.leave_to_others(due, found).await.map(|()| None);
        };
        let (retry_for, timeout) = (hook.config().retry_for, hook.config().timeout);
        if let Err(why) = found.message.progress().may_go_on(now_ms, retry_for) {
            return self.give_up(due, &found, why).await.map(|()| None);
        }
        let name = found.message.hook.clone();
        let Some(place) = self.0.places.take(&name) else { return self.postpone(due, found).await.map(|()| None) };
        let pause = found.message.progress().pause(timeout);
        let next_ms = now_ms + millis(timeout + spread(pause.saturating_sub(timeout)));
        let begun = found.message.attempts + 1;
        let Some(found) = self.claim(due, found, (begun, next_ms), retry_for).await? else { return Ok(None) };
        failpoint::hit("outbox.claimed");
        let sent = hook.tell(&found.message.id, found.message.body.get().to_owned().into()).await;
        failpoint::hit("outbox.sent");
        place.note(sent.is_ok());
        drop(place);
        match sent {
            Ok(()) => {
                self.0.metrics.delivered(&name, Delivery::Delivered);
                self.forget(&found.partition, &found.key, found.version).await?;
                failpoint::hit("outbox.forgotten");
                due.of_message(next_ms, &found.message.id).remove(&**self.0.ledger.store()).await?;
                Ok(None)
            }
            Err(failure) => self.send_again(due, found, (&failure, retry_for)).await.map(|()| Some(name)),
        }
    }

    /// Notes that a message was not taken: it is sent again as planned or later, or is given up.
    async fn send_again(
        &self,
        due: &Due,
        found: Found,
        (failure, retry_for): (&HookFailure, Duration),
    ) -> Result<(), Unavailable> {
        let KeptMessage { id, hook, attempts, next_ms, .. } = &found.message;
        self.0.metrics.delivered(hook, Delivery::Failed);
        tracing::warn!(run = %due.run, hook, message = id, attempts, %failure, "a hook did not take a message; it is sent again");
        match after_failure(failure, self.0.ledger.store().now_ms(), *next_ms) {
            Ok(same) if same == *next_ms => Ok(()),
            Ok(later) => {
                let begun = *attempts;
                self.claim(due, found, (begun, later), retry_for).await.map(drop)
            }
            Err(why) => self.give_up(due, &found, why).await,
        }
    }

    /// Leaves a message to a replica that has its hook. This one cannot know for how long the hook's messages are sent.
    async fn leave_to_others(&self, due: &Due, found: Found) -> Result<(), Unavailable> {
        let progress = found.message.progress();
        match progress.is_worth_keeping(self.0.ledger.store().now_ms(), LONGEST_RETRIES) {
            Ok(()) => self.postpone(due, found).await,
            Err(why) => self.give_up(due, &found, why).await,
        }
    }

    /// Leaves a message for later, and counts no attempt.
    async fn postpone(&self, due: &Due, found: Found) -> Result<(), Unavailable> {
        let generation = self.0.generations.current();
        let hook = generation.hooks.get(&found.message.hook);
        let retry_for = hook.map_or(LONGEST_RETRIES, |hook| hook.config().retry_for);
        let (now_ms, attempts) = (self.0.ledger.store().now_ms(), found.message.attempts);
        let next_ms = now_ms + millis(spread(found.message.progress().postponed(now_ms)));
        self.claim(due, found, (attempts, next_ms), retry_for).await.map(drop)
    }

    /// Writes down how many attempts were begun, and when the next one is due; `None` if another replica did so meanwhile.
    async fn claim(
        &self,
        due: &Due,
        found: Found,
        (attempts, next_ms): (u32, u64),
        retry_for: Duration,
    ) -> Result<Option<Found>, Unavailable> {
        let next = due.of_message(next_ms, &found.message.id);
        self.0.ledger.commit(next.put()).await.map_err(unavailable)?;
        failpoint::hit("outbox.before_claim");
        let Found { partition, key, version, message } = found;
        let message = KeptMessage { attempts, next_ms, ..message };
        let tx = Tx::new(partition.clone()).put_at(key.clone(), version, message.encoded(), Some(ttl(retry_for)));
        match self.0.ledger.commit(tx).await {
            Ok(()) => Ok(Some(Found { partition, key, version: version + 1, message })),
            Err(CommitError::VersionConflict { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Gives a message up: nothing but the log tells of it then.
    async fn give_up(&self, due: &Due, found: &Found, why: GivenUp) -> Result<(), Unavailable> {
        let (run, tenant, why) = (&due.run, &due.owner.tenant, why.as_str());
        let KeptMessage { id, hook, attempts, written_ms, .. } = &found.message;
        self.0.metrics.delivered(hook, Delivery::GivenUp);
        tracing::error!(%run, %tenant, hook, message = id, attempts, written_ms, why, "a message to a hook is given up");
        self.forget(&found.partition, &found.key, found.version).await
    }

    /// Removes a message, unless another replica has changed it.
    async fn forget(&self, partition: &Partition, key: &Key, version: u64) -> Result<(), Unavailable> {
        let unchanged = crate::store::Check::Version { key: key.clone(), version };
        let tx = Tx::new(partition.clone()).check(unchanged).write(Write::Delete { key: key.clone() });
        match self.0.ledger.commit(tx).await {
            Ok(()) | Err(CommitError::VersionConflict { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
