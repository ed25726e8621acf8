//! The two brakes of a run: too many conflicts, too many rejections. Counted by each invocation from zero, so that
//! running again after the cause was mended goes on: counted over the run, the brake would be on again at once.

use std::collections::HashMap;
use std::sync::Mutex;

/// A brake that is on, in words for the person who has to release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Brake(pub String);

/// Shares above which a run stops, and the floors below which they do not bite.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Share of the rows seen.
    pub max_conflicts: f64,
    /// Share of the attempts.
    pub max_rejected: f64,
}

/// So few conflicts never stop a run.
const CONFLICTS_FLOOR: u64 = 20;
/// So few rejections never stop a run.
const REJECTED_FLOOR: u64 = 50;

#[derive(Debug, Default)]
struct Tally {
    /// Rows and conflicts of each part as last seen: a part that is taken again is no more rows and no more conflicts.
    parts: HashMap<u32, (u64, u64)>,
    attempts: u64,
    rejected: u64,
    on: Option<Brake>,
}

/// What an invocation has seen so far, and the brake once it is on.
#[derive(Debug)]
pub(super) struct Brakes {
    limits: Limits,
    digest_type: String,
    tally: Mutex<Tally>,
}

impl Brakes {
    /// Nothing seen yet.
    pub(super) fn new(limits: Limits, digest_type: &str) -> Self {
        Self { limits, digest_type: digest_type.to_owned(), tally: Mutex::default() }
    }

    /// Counts a part's rows that were looked at and the conflicts among them; answers how many of these conflicts may
    /// be recorded before the brake is on.
    pub(super) fn conflicts(&self, part: u32, rows: usize, conflicts: usize) -> usize {
        let mut tally = self.lock();
        tally.parts.remove(&part);
        let before: u64 = tally.parts.values().map(|(_, conflicts)| conflicts).sum();
        tally.parts.insert(part, (rows as u64, conflicts as u64));
        let seen: u64 = tally.parts.values().map(|(rows, _)| rows).sum();
        let limit = limit(self.limits.max_conflicts, seen, CONFLICTS_FLOOR);
        let room = (limit + 1).saturating_sub(before);
        let found = before + conflicts as u64;
        if found > limit {
            let text = format!(
                "conflicts: {found} of {seen} rows seen have another content than their receipt, more than {limit} are allowed. \
                 The export has probably changed since it was first used; nothing of the other content was sent. Run the \
                 earlier snapshot again and end this run with `counterfoil run close`; or raise digest.{}.max_conflicts \
                 if every one of them is meant to wait for `counterfoil review`",
                self.digest_type
            );
            tally.on.get_or_insert(Brake(text));
        }
        usize::try_from(room).unwrap_or(usize::MAX).min(conflicts)
    }

    /// Counts attempts whose outcome is known and the permanent rejections among them.
    pub(super) fn rejections(&self, attempts: usize, rejected: usize) {
        let mut tally = self.lock();
        tally.attempts += attempts as u64;
        tally.rejected += rejected as u64;
        let limit = limit(self.limits.max_rejected, tally.attempts, REJECTED_FLOOR);
        if tally.rejected > limit {
            let text = format!(
                "rejections: the provider refused {} of {} attempts for good, more than {limit} are allowed. Look at \
                 their codes with `counterfoil receipts list --state failed`, mend the sender or the template, then run \
                 again (`counterfoil review resend` lets those out that were refused); or raise digest.{}.max_rejected \
                 if these recipients are really gone",
                tally.rejected, tally.attempts, self.digest_type
            );
            tally.on.get_or_insert(Brake(text));
        }
    }

    /// The brake, once it is on.
    pub(super) fn on(&self) -> Option<Brake> {
        self.lock().on.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn limit(share: f64, of: u64, floor: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a row count; a float keeps counts exact up to 2^53 and a cast saturates"
    )]
    let allowed = (share * of as f64).floor() as u64;
    allowed.max(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brakes() -> Brakes {
        Brakes::new(Limits { max_conflicts: 0.01, max_rejected: 0.05 }, "weekly_activity")
    }

    #[test]
    fn twenty_conflicts_are_let_through_and_the_next_one_stops_the_run() {
        let brakes = brakes();
        assert_eq!(brakes.conflicts(0, 1_000, 20), 20);
        assert_eq!(brakes.on(), None);
        assert_eq!(brakes.conflicts(1, 1_000, 500), 1);
        assert!(brakes.on().is_some_and(|brake| brake.0.contains("max_conflicts")));
    }

    #[test]
    fn one_per_cent_of_many_rows_is_let_through() {
        let brakes = brakes();
        assert_eq!(brakes.conflicts(0, 100_000, 1_000), 1_000);
        assert_eq!(brakes.on(), None);
        brakes.conflicts(1, 0, 1);
        assert!(brakes.on().is_some());
    }

    #[test]
    fn a_part_that_is_taken_again_counts_once() {
        let brakes = brakes();
        for _ in 0..10 {
            assert_eq!(brakes.conflicts(0, 100, 5), 5);
        }
        assert_eq!(brakes.on(), None);
        assert_eq!(brakes.conflicts(1, 100, 16), 16);
        assert!(brakes.on().is_some());
    }

    #[test]
    fn five_per_cent_of_the_attempts_may_be_rejected() {
        let brakes = brakes();
        brakes.rejections(50, 50);
        assert_eq!(brakes.on(), None);
        brakes.rejections(1_000, 3);
        assert!(brakes.on().is_some_and(|brake| brake.0.contains("max_rejected")));
    }
}
