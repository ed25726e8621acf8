//! When a destination has failed so often that it is left alone, and when it is trusted again. Decided from answers
//! alone: whoever asks brings them, and the time.

use std::collections::VecDeque;
use std::fmt;

use jiff::SignedDuration;

use super::Outcome;

/// Time from one probe of a destination that is left alone to the next.
pub const PROBE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Probes in a row that must be accepted before a destination is trusted again.
pub const PROBES_TO_CLOSE: u32 = 3;

/// So many failures in a row open the breaker.
const IN_A_ROW: usize = 10;

/// Or half of so many answers.
const WINDOW: usize = 100;

/// What opened a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// The last answers were failures without exception.
    InARow,
    /// Half of the last hundred were.
    HalfOfTheLast,
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InARow => write!(f, "the last {IN_A_ROW} attempts failed or were left in doubt"),
            Self::HalfOfTheLast => {
                write!(f, "{} of the last {WINDOW} attempts failed or were left in doubt", WINDOW / 2)
            }
        }
    }
}

/// The last answers of a destination whose breaker is closed.
#[derive(Debug, Default)]
pub struct RecentAnswers {
    /// Newest last; `true` is a failure.
    failures: VecDeque<bool>,
}

impl RecentAnswers {
    /// Takes an answer in; says whether the breaker opens on it, and then forgets them all: what was answered before
    /// an outage says nothing about the time after it.
    pub fn note(&mut self, outcome: &Outcome) -> Option<Trip> {
        let failure = is_failure(outcome)?;
        if self.failures.len() == WINDOW {
            self.failures.pop_front();
        }
        self.failures.push_back(failure);
        let in_a_row = self.failures.iter().rev().take_while(|failure| **failure).count();
        let failures = self.failures.iter().filter(|failure| **failure).count();
        let trip = match () {
            () if in_a_row >= IN_A_ROW => Some(Trip::InARow),
            () if failures >= WINDOW / 2 => Some(Trip::HalfOfTheLast),
            () => None,
        };
        if trip.is_some() {
            self.failures.clear();
        }
        trip
    }
}

/// Whether an outcome speaks against the destination; `None` where no answer of it was heard. A throttle, a refusal
/// or a key in use is the answer of a destination that works.
fn is_failure(outcome: &Outcome) -> Option<bool> {
    match outcome {
        Outcome::Unavailable { .. } | Outcome::Ambiguous { .. } => Some(true),
        Outcome::Accepted { .. }
        | Outcome::Rejected { .. }
        | Outcome::Throttled { .. }
        | Outcome::Deferred { .. }
        | Outcome::KeyInUse { .. }
        | Outcome::OtherPayload { .. }
        | Outcome::Suppressed { .. } => Some(false),
        Outcome::Misconfigured { .. } | Outcome::NotStarted => None,
    }
}

/// What a probe says of the destination: `Some(true)` speaks for it, `Some(false)` against it, `None` says nothing. A
/// refusal of one message neither opens nor closes.
pub fn probe_answer(outcome: &Outcome) -> Option<bool> {
    match outcome {
        Outcome::Accepted { .. } => Some(true),
        Outcome::Unavailable { .. } | Outcome::Ambiguous { .. } => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::RetryAfter;

    fn accepted() -> Outcome {
        Outcome::Accepted { reference: "r".to_owned() }
    }

    fn unavailable() -> Outcome {
        Outcome::Unavailable { code: "connect".to_owned() }
    }

    fn ambiguous() -> Outcome {
        Outcome::Ambiguous { code: "500".to_owned() }
    }

    #[test]
    fn ten_failures_in_a_row_open_it_and_nine_do_not() {
        let mut recent = RecentAnswers::default();
        for round in 0..5 {
            for failure in 0..9 {
                let outcome = if failure % 2 == 0 { unavailable() } else { ambiguous() };
                assert_eq!(recent.note(&outcome), None, "{round} {failure}");
            }
            assert_eq!(recent.note(&accepted()), None);
        }
        let mut recent = RecentAnswers::default();
        let trips: Vec<_> = (0..10).map(|_| recent.note(&ambiguous())).collect();
        assert_eq!(trips.iter().position(Option::is_some), Some(9));
        assert_eq!(trips.last(), Some(&Some(Trip::InARow)));
    }

    #[test]
    fn half_of_the_last_hundred_open_it_and_what_is_older_is_forgotten() {
        let mut recent = RecentAnswers::default();
        let every_other = |at: usize| if at.is_multiple_of(2) { unavailable() } else { accepted() };
        let trip = (0..200).find_map(|at| recent.note(&every_other(at)).map(|trip| (at, trip)));
        assert_eq!(trip, Some((98, Trip::HalfOfTheLast)));
        let mut recent = RecentAnswers::default();
        let every_third = |at: usize| if at.is_multiple_of(3) { unavailable() } else { accepted() };
        assert_eq!((0..10_000).find_map(|at| recent.note(&every_third(at))), None);
    }

    #[test]
    fn once_it_has_opened_it_takes_as_many_failures_again() {
        let mut recent = RecentAnswers::default();
        let trips = (0..30).filter(|_| recent.note(&unavailable()).is_some()).count();
        assert_eq!(trips, 3);
    }

    #[test]
    fn a_destination_that_answers_is_no_failure_whatever_it_says() {
        let mut recent = RecentAnswers::default();
        let throttled = Outcome::Throttled { until: RetryAfter::Unspecified, code: "429".to_owned() };
        let rejected = Outcome::Rejected { code: "550".to_owned(), text: None };
        for outcome in [throttled, rejected, Outcome::KeyInUse { code: "409".to_owned() }] {
            for _ in 0..9 {
                assert_eq!(recent.note(&unavailable()), None);
            }
            assert_eq!(recent.note(&outcome), None, "the row is broken");
        }
        for _ in 0..9 {
            assert_eq!(recent.note(&unavailable()), None);
        }
        assert_eq!(recent.note(&Outcome::NotStarted), None, "what was not sent says nothing");
        assert_eq!(recent.note(&unavailable()), Some(Trip::InARow));
    }

    #[test]
    fn only_an_accepted_probe_speaks_for_the_destination() {
        assert_eq!(probe_answer(&accepted()), Some(true));
        assert_eq!(probe_answer(&unavailable()), Some(false));
        assert_eq!(probe_answer(&ambiguous()), Some(false));
        assert_eq!(probe_answer(&Outcome::Rejected { code: "550".to_owned(), text: None }), None);
        assert_eq!(probe_answer(&Outcome::NotStarted), None);
    }
}
