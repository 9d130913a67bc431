//! Numbers that look random and come again: the same seed gives the same numbers.

/// SplitMix64: tiny, and good enough to mix up a test.
#[derive(Debug, Clone)]
pub(crate) struct Seed(u64);

impl Seed {
    /// `LOOPGATE_TEST_SEED`, or the seed that every plain run has.
    pub(crate) fn of_this_run() -> Self {
        let given = std::env::var("LOOPGATE_TEST_SEED").ok();
        let number = given.map(|text| text.parse().unwrap_or_else(|_| panic!("LOOPGATE_TEST_SEED is {text:?}")));
        Self(number.unwrap_or(1))
    }

    /// One with this number.
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number to begin with, to have the same again.
    pub(crate) fn number(&self) -> u64 {
        self.0
    }

    /// Another one for a part of the test, which stays the same whatever the other parts draw.
    pub(crate) fn part(&self, name: &str) -> Self {
        let mixed = name.bytes().fold(self.0, |sum, byte| Self(sum ^ u64::from(byte)).next());
        Self(mixed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(of.len() as u64)).expect("it is below a length");
        &of[index]
    }
}
