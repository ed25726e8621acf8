//! What a provider can say about an earlier attempt under our key, and what it promises about its saying so.

use jiff::SignedDuration;

/// How a provider looks attempts up by our key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// From the end of an attempt until it certainly shows; also the time from one miss to the next.
    pub settle: SignedDuration,
    /// Misses, each a settle time after the one before, that make an absence certain. At least 1.
    pub misses: u32,
    /// For how long after an attempt it can be found; a miss past that proves nothing. `None` is without end.
    pub retention: Option<SignedDuration>,
}

/// The answer to one look: three different things, of which only the first two say anything about the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// The provider accepted it.
    Found {
        /// The provider's own reference.
        reference: String,
    },
    /// The provider knows nothing under this key, as far as it has caught up.
    Absent,
    /// The look failed, or its answer says neither.
    Unknown {
        /// A short class, such as `503` or `unreadable_answer`.
        code: String,
    },
}
