//! Who may read the metrics.

/// Who may read the metrics at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAccess {
    /// The metrics are not there.
    Disabled,
    /// A request needs a key with the scope `metrics`, or none where no keys are declared.
    Key,
    /// A request needs no key.
    Public,
}
