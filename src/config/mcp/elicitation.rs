//! Whether a server may ask the user something in the middle of a call.

use std::time::Duration;

use crate::config::quantity::seconds;
use crate::config::reader::Section;

/// How long the questions of a call may wait together; `None` where the server asks nothing.
pub(super) fn read(section: &mut Section<'_>) -> Option<Duration> {
    let is_on = section.key(
        "elicitation",
        "Whether a call may ask the user something ([elicitation](mcp.md#questions-of-a-server)): readers of the run are shown what \
         the server asks, and the server is told what they answer.",
        false,
    );
    let within = section.key(
        "elicitation_timeout",
        "How long the questions of one call may wait for their answers together, beside the time of the call. What is not \
         answered then is declined.",
        seconds(120),
    );
    is_on.then_some(within)
}
