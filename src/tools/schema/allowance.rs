//! What the schemas of one source may take together: the memory that they keep, and the work to compile them.

use super::survey::Patterns;

/// Most bytes of JSON: compiled, a schema takes up to sixty times as much.
const MAX_BYTES: usize = 2 << 20;
/// How much all patterns may weigh.
const MAX_WEIGHT: usize = 128 << 10;
/// Most bytes of compiled patterns.
const MAX_COMPILED: usize = 32 << 20;
/// What a pattern weighs more that could not be compiled: until that is known, it is as much work as a large one.
const FAILED: usize = 1 << 10;

/// What is left for the schemas of one source.
#[derive(Debug)]
pub struct Allowance {
    bytes: usize,
    weight: usize,
    compiled: usize,
}

/// What a schema took of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) bytes: usize,
    pub(super) patterns: Patterns,
    /// Most bytes of its compiled patterns.
    pub(super) compiled: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { bytes: MAX_BYTES, weight: MAX_WEIGHT, compiled: MAX_COMPILED }
    }
}

impl Allowance {
    /// Takes what it needs to compile a schema with these patterns, which counts also if it cannot be compiled. The error is a
    /// sentence without its end.
    pub(super) fn take_source(&mut self, bytes: usize, patterns: Patterns) -> Result<(), String> {
        let left = (self.bytes.checked_sub(bytes), self.weight.checked_sub(patterns.weight));
        let (Some(bytes), Some(weight)) = left else {
            let what = if left.0.is_none() { "schemas" } else { "patterns in the schemas" };
            let most = if left.0.is_none() { MAX_BYTES } else { MAX_WEIGHT };
            return Err(format!("the {what} of its server together take more than {most} bytes"));
        };
        (self.bytes, self.weight) = (bytes, weight);
        Ok(())
    }

    /// Looks whether patterns may keep so much once they are compiled. After a refusal no more are compiled: what is refused
    /// may be much work too.
    pub(super) fn check_compiled(&mut self, bytes: usize) -> Result<(), String> {
        if bytes <= self.compiled {
            return Ok(());
        }
        self.compiled = 0;
        Err(format!(
            "the compiled patterns in the schemas of its server together may take more than {MAX_COMPILED} bytes"
        ))
    }

    /// Takes what compiled patterns keep.
    pub(super) fn take_compiled(&mut self, bytes: usize) -> Result<(), String> {
        self.check_compiled(bytes)?;
        self.compiled -= bytes;
        Ok(())
    }

    /// Takes what it needed to see that these patterns cannot be compiled.
    pub(super) fn take_failure(&mut self, patterns: Patterns) {
        self.weight = self.weight.saturating_sub(patterns.count * FAILED);
    }

    /// Takes what a schema takes that is compiled already.
    pub(super) fn take(&mut self, taken: Taken) -> Result<(), String> {
        self.take_source(taken.bytes, taken.patterns)?;
        self.take_compiled(taken.compiled)
    }
}
