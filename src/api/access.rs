//! Who may read the metrics.

/// Who may read the metrics at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAccess {
    /// They are not there.
    Nobody,
    /// Those whose key has the scope, or everyone where there are no keys.
    Key,
    /// Everyone.
    Everyone,
}
