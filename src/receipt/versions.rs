//! What the receipt of another content version of the same week means for a run that sends to those only whom no other
//! version has served. The one decision that depends on another receipt's row.

use jiff::Timestamp;

use super::{Standing, State};

/// What the receipt of one other version says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherVersion {
    /// That version has served the customer, may have, or waits for a person: nothing is sent under this one.
    Served,
    /// A worker holds it until then at the latest: known soon.
    Undecided {
        /// End of its lease.
        until: Timestamp,
    },
    /// Certainly not sent: it makes way, once it is superseded.
    Unsent,
}

/// Decides what the receipt of another version, which stands so, says at `now` (the ledger's clock).
pub fn other_version(standing: &Standing, now: Timestamp) -> OtherVersion {
    match standing.state {
        State::Claimed => match standing.lease_ends_at {
            Some(until) if until > now => OtherVersion::Undecided { until },
            // Nobody takes it up any more, and it may have been accepted.
            _ => OtherVersion::Served,
        },
        State::Retryable if standing.ambiguous_since.is_some() => OtherVersion::Served,
        State::Retryable | State::Failed => OtherVersion::Unsent,
        State::Sent | State::Held | State::Quarantined | State::Suppressed => OtherVersion::Served,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Fingerprint;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn says(state: State, ambiguous_since: Option<Timestamp>) -> OtherVersion {
        let standing = Standing {
            fingerprint: Fingerprint::from_bytes([1; 32]),
            state,
            lease_ends_at: (state == State::Claimed).then(|| at(100)),
            next_attempt_at: (state == State::Retryable).then(|| at(200)),
            ambiguous_since,
        };
        other_version(&standing, at(100))
    }

    #[test]
    fn only_what_is_certainly_unsent_makes_way() {
        let served = [State::Sent, State::Held, State::Quarantined, State::Suppressed];
        assert!(served.into_iter().all(|state| says(state, None) == OtherVersion::Served));
        assert_eq!(says(State::Failed, None), OtherVersion::Unsent);
        assert_eq!(says(State::Retryable, None), OtherVersion::Unsent);
        assert_eq!(says(State::Retryable, Some(at(5))), OtherVersion::Served);
    }

    #[test]
    fn a_claim_is_undecided_while_its_lease_lasts_and_in_doubt_afterwards() {
        assert_eq!(says(State::Claimed, None), OtherVersion::Served, "ended at this instant");
        let standing = Standing {
            fingerprint: Fingerprint::from_bytes([1; 32]),
            state: State::Claimed,
            lease_ends_at: Some(at(101)),
            next_attempt_at: None,
            ambiguous_since: None,
        };
        assert_eq!(other_version(&standing, at(100)), OtherVersion::Undecided { until: at(101) });
    }
}
