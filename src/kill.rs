//! Places at which a test lets the process die, as if the machine had lost its power there.
//!
//! `LOOPGATE_KILL_AT=NAME` or `NAME:NTH` aborts the process when it passes the place of that name for
//! the first or the NTH time. This is no setting: a build without debug assertions, and so every build
//! that is shipped, has none of it. The module knows nobody; the loop names its places by one line each.

/// Every place, in the order in which a run passes them.
pub const POINTS: &[&str] = &[
    "claim.recorded",
    "run.before_create",
    "run.indexed",
    "run.created",
    "step.before_start",
    "step.reserved",
    "model.before_call",
    "model.delta_recorded",
    "model.answered",
    "step.before_settle",
    "turn.settled",
    "tool.before_intent",
    "tool.intent_recorded",
    "tool.answering",
    "tool.answered",
    "tool.finished",
    "run.before_end",
    "run.ended",
    "run.unmarked",
    "run.released",
    "resume.leased",
    "resume.before_record",
    "resume.recorded",
];

/// Dies here if it was asked for.
#[inline]
pub fn point(name: &'static str) {
    #[cfg(debug_assertions)]
    armed::pass(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

/// Checks, before anything is begun, that there is such a place as the one asked for.
///
/// # Errors
/// In one sentence, what is wrong with the request.
#[inline]
pub fn check() -> Result<(), String> {
    #[cfg(debug_assertions)]
    armed::check()?;
    Ok(())
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::POINTS;

    const VARIABLE: &str = "LOOPGATE_KILL_AT";

    #[derive(Debug)]
    struct Armed {
        name: String,
        left: AtomicU64,
    }

    static ARMED: LazyLock<Result<Option<Armed>, String>> =
        LazyLock::new(|| std::env::var(VARIABLE).ok().map(|wish| parse(&wish)).transpose());

    pub(super) fn check() -> Result<(), String> {
        ARMED.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    pub(super) fn pass(name: &'static str) {
        debug_assert!(POINTS.contains(&name), "{name} is missing from the list of places");
        if let Ok(Some(armed)) = &*ARMED
            && armed.name == name
            && armed.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            std::process::abort();
        }
    }

    fn parse(wish: &str) -> Result<Armed, String> {
        let (name, nth) = wish.split_once(':').unwrap_or((wish, "1"));
        if !POINTS.contains(&name) {
            return Err(format!("{VARIABLE} names {name:?}, which is none of {}", POINTS.join(", ")));
        }
        match nth.parse() {
            Ok(nth) if nth > 0 => Ok(Armed { name: name.to_owned(), left: AtomicU64::new(nth) }),
            Ok(_) | Err(_) => Err(format!("{VARIABLE} counts passages from 1, and {nth:?} is no such number")),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_wish_names_a_place_and_a_passage() {
            let found = |wish: &str| parse(wish).map(|armed| (armed.name, armed.left.into_inner()));
            assert_eq!(found("run.ended"), Ok(("run.ended".to_owned(), 1)));
            assert_eq!(found("run.ended:3"), Ok(("run.ended".to_owned(), 3)));
            for wish in ["", "run.ending", "run.ended:", "run.ended:0", "run.ended:-1", "run.ended:x"] {
                parse(wish).expect_err(wish);
            }
        }

        #[test]
        fn nobody_who_asked_for_nothing_dies() {
            check().expect("nothing was asked for");
            for name in POINTS {
                pass(name);
            }
        }
    }
}
