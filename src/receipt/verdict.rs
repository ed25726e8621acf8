//! What a request for a claim finds. The fingerprint is compared before anything else, in every state.

use jiff::Timestamp;

use super::State;
use crate::identity::Fingerprint;

/// What the decision needs to know of a receipt that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The content that the receipt is for.
    pub fingerprint: Fingerprint,
    /// Its state.
    pub state: State,
    /// When a live claim ends.
    pub lease_ends_at: Option<Timestamp>,
    /// When a retryable receipt may be tried.
    pub next_attempt_at: Option<Timestamp>,
    /// Since when an attempt may have been accepted without our knowing.
    pub ambiguous_since: Option<Timestamp>,
}

/// What may be done for a row now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// May be claimed for an attempt.
    Claimable,
    /// Already sent with this content.
    Duplicate,
    /// Another worker holds a live lease until then.
    InProgress {
        /// End of that lease.
        until: Timestamp,
    },
    /// Waits for its next attempt.
    NotDue {
        /// When it is due.
        at: Timestamp,
    },
    /// A lease ended without an outcome: the claim must be declared ambiguous first.
    LeaseEnded,
    /// May have been accepted: reconcile (look up or replay) before anything is sent anew.
    Ambiguous,
    /// Another content stands under this key.
    Conflict,
    /// Settled in a state that no worker leaves by itself.
    Settled(State),
}

/// Decides what a row with `fingerprint` finds at `now` (the ledger's clock).
pub fn verdict(standing: Option<&Standing>, fingerprint: &Fingerprint, now: Timestamp) -> Verdict {
    let Some(found) = standing else { return Verdict::Claimable };
    if found.fingerprint != *fingerprint {
        return Verdict::Conflict;
    }
    match found.state {
        State::Sent => Verdict::Duplicate,
        State::Claimed => match found.lease_ends_at {
            Some(until) if until > now => Verdict::InProgress { until },
            _ => Verdict::LeaseEnded,
        },
        State::Retryable => match found.next_attempt_at {
            Some(at) if at > now => Verdict::NotDue { at },
            _ if found.ambiguous_since.is_some() => Verdict::Ambiguous,
            _ => Verdict::Claimable,
        },
        settled @ (State::Held | State::Failed | State::Quarantined | State::Suppressed) => Verdict::Settled(settled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn standing(state: State) -> Standing {
        Standing {
            fingerprint: Fingerprint::from_bytes([1; 32]),
            state,
            lease_ends_at: (state == State::Claimed).then(|| at(100)),
            next_attempt_at: (state == State::Retryable).then(|| at(100)),
            ambiguous_since: None,
        }
    }

    fn found(standing: &Standing, now: i64) -> Verdict {
        verdict(Some(standing), &Fingerprint::from_bytes([1; 32]), at(now))
    }

    #[test]
    fn another_fingerprint_is_a_conflict_in_every_state() {
        for state in State::ALL {
            let verdict = verdict(Some(&standing(*state)), &Fingerprint::from_bytes([2; 32]), at(1_000));
            assert_eq!(verdict, Verdict::Conflict, "{state}");
        }
    }

    #[test]
    fn nothing_found_may_be_claimed() {
        assert_eq!(verdict(None, &Fingerprint::from_bytes([1; 32]), at(0)), Verdict::Claimable);
    }

    #[test]
    fn a_lease_is_live_until_the_instant_that_it_ends() {
        assert_eq!(found(&standing(State::Claimed), 99), Verdict::InProgress { until: at(100) });
        assert_eq!(found(&standing(State::Claimed), 100), Verdict::LeaseEnded);
    }

    #[test]
    fn a_retry_waits_until_it_is_due_and_a_doubt_goes_first() {
        let mut retry = standing(State::Retryable);
        assert_eq!(found(&retry, 99), Verdict::NotDue { at: at(100) });
        assert_eq!(found(&retry, 100), Verdict::Claimable);
        retry.ambiguous_since = Some(at(5));
        assert_eq!(found(&retry, 100), Verdict::Ambiguous);
    }

    #[test]
    fn what_is_settled_is_left_alone() {
        assert_eq!(found(&standing(State::Sent), 0), Verdict::Duplicate);
        for state in [State::Held, State::Failed, State::Quarantined, State::Suppressed] {
            assert_eq!(found(&standing(state), 1_000), Verdict::Settled(state));
        }
    }
}
