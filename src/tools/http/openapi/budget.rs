//! How much may be made of a document. What one operation may take is bounded where it is read; this bounds what all of them take
//! together, as operations can share what they refer to, so that a short document asks for much work and memory.

/// Most operations that are looked at.
const MAX_OPERATIONS: usize = 5_000;
/// Most schemas, members and parameters that are looked into.
const MAX_SCHEMAS: usize = 1_000_000;
/// Most patterns: each may take a mebibyte once it is compiled.
const MAX_PATTERNS: usize = 2_000;
/// Most bytes of the schemas of all tools.
const MAX_BYTES: usize = 16 << 20;

/// What is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    operations: usize,
    schemas: usize,
    patterns: usize,
    bytes: usize,
}

/// What an operation took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) schemas: usize,
    pub(super) patterns: usize,
    pub(super) bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { operations: MAX_OPERATIONS, schemas: MAX_SCHEMAS, patterns: MAX_PATTERNS, bytes: MAX_BYTES }
    }
}

impl Budget {
    /// Begins another operation. The error says why there can be none.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let Self { operations, schemas, patterns, bytes } = *self;
        let what =
            [(operations, "operations"), (schemas, "schemas"), (patterns, "patterns"), (bytes, "bytes of schemas")];
        if let Some((_, what)) = what.iter().find(|(left, _)| *left == 0) {
            return Err(format!(
                "the operations before it have as many {what} as are read of a document: name those that are needed in include"
            ));
        }
        self.operations -= 1;
        Ok(())
    }

    /// Counts what an operation took, which may be more than was left.
    pub(super) fn count(&mut self, taken: Taken) {
        self.schemas = self.schemas.saturating_sub(taken.schemas);
        self.patterns = self.patterns.saturating_sub(taken.patterns);
        self.bytes = self.bytes.saturating_sub(taken.bytes);
    }
}
