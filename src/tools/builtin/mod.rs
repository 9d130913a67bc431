//! Tools that come with Loopgate. They need no network and change nothing.

pub mod calculator;
pub mod current_time;
mod define;

use std::sync::Arc;

use crate::tools::Tool;

/// One of each.
#[must_use]
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(calculator::Calculator::new()), Arc::new(current_time::CurrentTime::new())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BUILTIN_TOOLS;
    use crate::tools::Registry;
    use crate::types::Effect;

    #[test]
    fn all_can_be_registered() {
        let registry = Registry::new(all()).unwrap();
        let names: Vec<_> = registry.iter().map(|tool| tool.spec().name.as_str()).collect();
        assert_eq!(names, BUILTIN_TOOLS);
        assert!(registry.iter().all(|tool| tool.spec().effect == Effect::Read));
    }
}
