//! Exponential back-off with full jitter. Randomness is an argument.

use jiff::SignedDuration;

/// How long to wait between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first wait.
    pub base: SignedDuration,
    /// Upper bound of any wait.
    pub cap: SignedDuration,
}

impl Backoff {
    /// The upper bound of the wait after `attempts` attempts: `base * 2^(attempts − 1)`, at most `cap`.
    pub fn bound(&self, attempts: u32) -> SignedDuration {
        let factor = 1_i32.checked_shl(attempts.saturating_sub(1).min(30)).unwrap_or(i32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// A wait drawn evenly from zero to the bound; `random` is in `0.0..1.0`.
    pub fn wait(&self, attempts: u32, random: f64) -> SignedDuration {
        let bound = self.bound(attempts).as_secs_f64();
        SignedDuration::try_from_secs_f64(bound * random.clamp(0.0, 1.0)).unwrap_or(self.cap)
    }
}
