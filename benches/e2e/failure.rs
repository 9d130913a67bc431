//! The one error of the benchmark.

use std::error::Error;

/// What went wrong, as a sentence for the person who runs the benchmark.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;
