//! How many messages to one hook are sent at once: fewer while the hook does not take them.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How many messages to one hook are sent at once by one replica: half of what all hooks have.
const AT_ONCE: u32 = 32;
/// The same while the hook's last attempt has failed: each may take as long as the hook's timeout.
const WHILE_FAILING: u32 = 4;

/// The hooks that messages are sent to.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<HashMap<String, Hook>>);

#[derive(Debug, Default)]
struct Hook {
    under_way: u32,
    /// Whether its last attempt failed.
    fails: bool,
}

/// That a message to a hook is being sent.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    hook: String,
}

impl Places {
    /// A place for sending this hook a message, if there is one.
    pub(super) fn take(&self, hook: &str) -> Option<Place<'_>> {
        let mut hooks = self.0.lock();
        let found = hooks.entry(hook.to_owned()).or_default();
        if found.under_way >= if found.fails { WHILE_FAILING } else { AT_ONCE } {
            return None;
        }
        found.under_way += 1;
        Some(Place { places: self, hook: hook.to_owned() })
    }
}

impl Place<'_> {
    /// Notes whether the hook took the message.
    pub(super) fn note(&self, is_taken: bool) {
        if let Some(hook) = self.places.0.lock().get_mut(&self.hook) {
            hook.fails = !is_taken;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut hooks = self.places.0.lock();
        if let Some(hook) = hooks.get_mut(&self.hook) {
            hook.under_way -= 1;
            // The names of hooks that earlier configurations had do not gather.
            if hook.under_way == 0 && !hook.fails {
                hooks.remove(&self.hook);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_fails_has_few_places_until_it_takes_a_message_and_others_have_theirs() {
        let places = Places::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| places.take("dead")).collect();
        assert_eq!(taken.len(), 32);
        taken[0].note(false);
        taken.truncate(5);
        assert!(places.take("dead").is_none());
        taken.truncate(3);
        let fourth = places.take("dead").unwrap();
        assert!(places.take("dead").is_none() && places.take("well").is_some());
        fourth.note(true);
        assert!(places.take("dead").is_some());
        taken.clear();
        drop(fourth);
        assert!(places.0.lock().is_empty());
    }
}
