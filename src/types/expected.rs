//! What must hold of a thing for a change of it to be made, so that a caller who changes what it has read overwrites no other change.

/// What is expected of a thing that has versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// Nothing.
    #[default]
    Anything,
    /// It is there.
    Something,
    /// It is not there.
    Nothing,
    /// It has this version.
    Version(u64),
}

impl Expected {
    /// Whether that holds, given the version of the thing if it is there.
    #[must_use]
    pub fn holds(self, version: Option<u64>) -> bool {
        match self {
            Self::Anything => true,
            Self::Something => version.is_some(),
            Self::Nothing => version.is_none(),
            Self::Version(wanted) => version == Some(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_compared_with_what_is_there() {
        for (expected, holds_of_none, holds_of_one, holds_of_two) in [
            (Expected::Anything, true, true, true),
            (Expected::Something, false, true, true),
            (Expected::Nothing, true, false, false),
            (Expected::Version(1), false, true, false),
        ] {
            let held = [None, Some(1), Some(2)].map(|version| expected.holds(version));
            assert_eq!(held, [holds_of_none, holds_of_one, holds_of_two], "{expected:?}");
        }
    }
}
