//! Bounds of labels, and of the buckets of histograms.

/// Most agents, tools, tenants, or pairs of upstream and model that are counted by their names.
pub(super) const MOST_NAMES: usize = 50;
/// Bounds of times that last from milliseconds to hours.
pub(super) const DURATIONS: &[f64] =
    &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0];
/// Bounds of the time until a model begins to answer.
pub(super) const FIRST_TOKEN: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0];
/// Bounds of the time between two tokens.
pub(super) const TOKEN_INTERVAL: &[f64] = &[0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0];
