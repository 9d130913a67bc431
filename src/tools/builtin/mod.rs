//! Tools that come with Loopgate and only compute. Those that reach beyond the server are in `tools::http::web`.

pub mod calculator;
pub mod current_time;
pub(in crate::tools) mod define;
pub mod json_query;

use std::sync::Arc;

use crate::tools::Tool;

/// One of each.
#[must_use]
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(calculator::Calculator::new()),
        Arc::new(current_time::CurrentTime::new()),
        Arc::new(json_query::JsonQuery::new()),
    ]
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
