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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BACKOFF: Backoff = Backoff { base: SignedDuration::from_secs(2), cap: SignedDuration::from_mins(30) };

    #[test]
    fn the_bound_doubles_up_to_the_cap() {
        let bounds: Vec<i64> = (1..=12).map(|attempts| BACKOFF.bound(attempts).as_secs()).collect();
        assert_eq!(bounds, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1800, 1800]);
    }

    proptest! {
        #[test]
        fn a_wait_lies_between_zero_and_its_bound(attempts in 0_u32..u32::MAX, random in 0.0_f64..1.0) {
            let wait = BACKOFF.wait(attempts, random);
            prop_assert!(wait >= SignedDuration::ZERO && wait <= BACKOFF.bound(attempts).max(SignedDuration::ZERO));
            prop_assert!(wait <= BACKOFF.cap);
        }
    }
}
