//! What a person's decision does to a receipt. The one place where that is decided; a refusal says what to do.

use jiff::Timestamp;

use super::{Reason, Standing, State};
use crate::identity::Fingerprint;

/// Stands in place of a provider's reference where a person confirmed a message as sent and named none.
pub const CONFIRMED: &str = "confirmed-by-review";

/// A receipt as the decision finds it.
#[derive(Debug, Clone)]
pub struct UnderReview<'a> {
    /// Where it stands.
    pub standing: &'a Standing,
    /// Why.
    pub reason: Option<Reason>,
    /// Another content was presented under its key and nobody has decided about it.
    pub in_conflict: bool,
    /// Every other content that was ever presented under its key.
    pub presented: &'a [Fingerprint],
    /// The provider's reference of an accepted attempt, where one is known.
    pub reference: Option<&'a str>,
    /// An acceptance came late, under a grant before the current one.
    pub accepted_late: bool,
    /// After this instant nothing of its run is sent.
    pub deadline_at: Timestamp,
}

/// What a person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The message was accepted: somebody found it at the provider.
    ConfirmSent {
        /// The provider's reference, where it is known.
        reference: Option<String>,
    },
    /// It is to be tried again.
    Resend {
        /// Which recorded content; `None` is the receipt's own.
        content: Option<Fingerprint>,
        /// A second copy is accepted where an attempt is in doubt.
        accept_duplicate: bool,
        /// A new end of the run's time, where the old one is too early.
        send_until: Option<Timestamp>,
    },
    /// It is not to be sent any more.
    Discard,
}

/// The receipt after a decision. No attempt is in doubt and no conflict is open any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed {
    /// The next state.
    pub state: State,
    /// Why.
    pub reason: Option<Reason>,
    /// The content that it is for.
    pub fingerprint: Fingerprint,
    /// When it may be tried.
    pub next_attempt_at: Option<Timestamp>,
    /// The provider's reference.
    pub reference: Option<String>,
}

/// A decision that cannot be carried out. Names no customer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewRefusal {
    /// A worker is at it.
    #[error("a worker holds it until {until:.0}; decide after that")]
    Live {
        /// End of the lease.
        until: Timestamp,
    },
    /// Nothing is open.
    #[error("it is sent, which is final; new content goes out as a new content version, with `run --correction`")]
    Sent,
    /// An attempt's acceptance is known already.
    #[error("an earlier attempt was accepted by the provider: record that with `review confirm-sent`")]
    Accepted,
    /// Nothing can have been accepted.
    #[error("it was certainly not accepted and is tried again by itself; `review discard` ends that")]
    NotInDoubt,
    /// A second copy was not accepted by the person.
    #[error(
        "an attempt since {since:.0} may have been accepted, so that this may be a second copy. Look for it at the \
         provider: `review confirm-sent` if it is there; `--accept-duplicate` sends it all the same"
    )]
    InDoubt {
        /// The oldest such attempt.
        since: Timestamp,
    },
    /// Which content is meant is not said.
    #[error("two contents stand under its key: choose one with `--fingerprint`, {recorded} (first) or {}", listed(.presented))]
    WhichContent {
        /// The receipt's own.
        recorded: Fingerprint,
        /// The others.
        presented: Vec<Fingerprint>,
    },
    /// A content that was never presented.
    #[error("no content with that fingerprint was presented under its key; known: {}", listed(.known))]
    UnknownContent {
        /// Those that were.
        known: Vec<Fingerprint>,
    },
    /// Another version took its place.
    #[error("another content version took its place; it can never be sent again")]
    Superseded,
    /// It is discarded already.
    #[error("it is discarded already")]
    Discarded,
    /// The run's time is over.
    #[error(
        "nothing of its run is sent after {deadline_at:.0}. If it should go out all the same, say how long after the \
         week's end it may: `--send-within \"30 days\"`"
    )]
    TooLate {
        /// The run's deadline.
        deadline_at: Timestamp,
    },
    /// Another version of the week is being sent or was sent.
    #[error("version {version} of this week's digest has a run ({run}) that is open or has sent: one digest a week")]
    OtherVersion {
        /// The other version.
        version: String,
        /// The first digits of its run's id.
        run: String,
    },
}

fn listed(contents: &[Fingerprint]) -> String {
    contents.iter().map(Fingerprint::to_string).collect::<Vec<_>>().join(", ")
}

/// Decides what `decision` does at `now`, the ledger's clock.
///
/// # Errors
/// Why it cannot be carried out.
pub fn review(receipt: &UnderReview<'_>, decision: &Decision, now: Timestamp) -> Result<Reviewed, ReviewRefusal> {
    if let Some(until) = live_until(receipt, now) {
        return Err(ReviewRefusal::Live { until });
    }
    match decision {
        Decision::ConfirmSent { reference } => confirm_sent(receipt, reference.as_deref()),
        Decision::Resend { content, accept_duplicate, send_until } => {
            let chosen = may_be_resent(receipt, *content, *accept_duplicate)?;
            let deadline_at = send_until.unwrap_or(receipt.deadline_at);
            if now > deadline_at {
                return Err(ReviewRefusal::TooLate { deadline_at });
            }
            let after = standing(receipt, State::Retryable, Some(Reason::Requested));
            Ok(Reviewed { fingerprint: chosen, next_attempt_at: Some(now), ..after })
        }
        Decision::Discard => discard(receipt),
    }
}

fn live_until(receipt: &UnderReview<'_>, now: Timestamp) -> Option<Timestamp> {
    let claimed = receipt.standing.state == State::Claimed;
    receipt.standing.lease_ends_at.filter(|until| claimed && *until > now)
}

/// The oldest attempt that may have been accepted. A claim whose lease has ended is one.
fn doubt(receipt: &UnderReview<'_>) -> Option<Timestamp> {
    let lost = receipt.standing.lease_ends_at.filter(|_| receipt.standing.state == State::Claimed);
    receipt.standing.ambiguous_since.or(lost)
}

fn standing(receipt: &UnderReview<'_>, state: State, reason: Option<Reason>) -> Reviewed {
    Reviewed {
        state,
        reason,
        fingerprint: receipt.standing.fingerprint,
        next_attempt_at: None,
        reference: receipt.reference.map(str::to_owned),
    }
}

fn confirm_sent(receipt: &UnderReview<'_>, reference: Option<&str>) -> Result<Reviewed, ReviewRefusal> {
    match receipt.standing.state {
        State::Sent => return Err(ReviewRefusal::Sent),
        State::Retryable if doubt(receipt).is_none() => return Err(ReviewRefusal::NotInDoubt),
        _ => {}
    }
    let reference = reference.or(receipt.reference).unwrap_or(CONFIRMED);
    Ok(Reviewed { reference: Some(reference.to_owned()), ..standing(receipt, State::Sent, None) })
}

/// The content to send.
fn may_be_resent(
    receipt: &UnderReview<'_>,
    content: Option<Fingerprint>,
    accept_duplicate: bool,
) -> Result<Fingerprint, ReviewRefusal> {
    let recorded = receipt.standing.fingerprint;
    if receipt.standing.state == State::Sent {
        return Err(ReviewRefusal::Sent);
    }
    if receipt.accepted_late {
        return Err(ReviewRefusal::Accepted);
    }
    if receipt.reason == Some(Reason::Superseded) {
        return Err(ReviewRefusal::Superseded);
    }
    let chosen = match content {
        None if receipt.in_conflict => {
            return Err(ReviewRefusal::WhichContent { recorded, presented: receipt.presented.to_vec() });
        }
        None => recorded,
        Some(chosen) if chosen == recorded || receipt.presented.contains(&chosen) => chosen,
        Some(_) => {
            let known = std::iter::once(recorded).chain(receipt.presented.iter().copied()).collect();
            return Err(ReviewRefusal::UnknownContent { known });
        }
    };
    match doubt(receipt) {
        Some(since) if !accept_duplicate => Err(ReviewRefusal::InDoubt { since }),
        _ => Ok(chosen),
    }
}

fn discard(receipt: &UnderReview<'_>) -> Result<Reviewed, ReviewRefusal> {
    match receipt.standing.state {
        State::Sent if receipt.in_conflict => Ok(standing(receipt, State::Sent, None)),
        State::Sent => Err(ReviewRefusal::Sent),
        _ if receipt.accepted_late => Err(ReviewRefusal::Accepted),
        State::Failed if receipt.reason == Some(Reason::Superseded) => Err(ReviewRefusal::Superseded),
        State::Failed if receipt.reason == Some(Reason::Discarded) && !receipt.in_conflict => {
            Err(ReviewRefusal::Discarded)
        }
        _ => Ok(standing(receipt, State::Failed, Some(Reason::Discarded))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Fingerprint = Fingerprint::from_bytes([1; 32]);
    const OTHER: Fingerprint = Fingerprint::from_bytes([2; 32]);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn resend(accept_duplicate: bool) -> Decision {
        Decision::Resend { content: None, accept_duplicate, send_until: None }
    }

    fn confirm() -> Decision {
        Decision::ConfirmSent { reference: None }
    }

    /// At second 100: a lease ends at `lease`, a doubt began at 5.
    fn decided(state: State, reason: Option<Reason>, doubtful: bool, lease: i64, decision: &Decision) -> String {
        let standing = Standing {
            fingerprint: OWN,
            state,
            lease_ends_at: (state == State::Claimed).then(|| at(lease)),
            next_attempt_at: (state == State::Retryable).then(|| at(200)),
            ambiguous_since: doubtful.then(|| at(5)),
        };
        let receipt = UnderReview {
            standing: &standing,
            reason,
            in_conflict: state == State::Quarantined,
            presented: &[OTHER],
            reference: None,
            accepted_late: false,
            deadline_at: at(1_000),
        };
        match review(&receipt, decision, at(100)) {
            Ok(after) => match after.reason {
                Some(reason) => format!("{}: {reason}", after.state),
                None => after.state.to_string(),
            },
            Err(refusal) => format!("{refusal:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn every_state_and_every_decision() {
        use {Reason as R, State as S};
        let table = [
            // state, reason, in doubt, end of lease | confirm-sent, resend, resend --accept-duplicate, discard
            (S::Claimed, None, false, 200, ["Live"; 4]),
            (S::Claimed, None, false, 50, ["sent", "InDoubt", "retryable: requested", "failed: discarded"]),
            (S::Sent, None, false, 0, ["Sent"; 4]),
            (
                S::Retryable,
                Some(R::Unavailable),
                false,
                0,
                ["NotInDoubt", "retryable: requested", "retryable: requested", "failed: discarded"],
            ),
            (
                S::Retryable,
                Some(R::Ambiguous),
                true,
                0,
                ["sent", "InDoubt", "retryable: requested", "failed: discarded"],
            ),
            (S::Held, Some(R::Undecidable), true, 0, ["sent", "InDoubt", "retryable: requested", "failed: discarded"]),
            (
                S::Failed,
                Some(R::Rejected),
                false,
                0,
                ["sent", "retryable: requested", "retryable: requested", "failed: discarded"],
            ),
            (S::Failed, Some(R::Superseded), false, 0, ["sent", "Superseded", "Superseded", "Superseded"]),
            (
                S::Failed,
                Some(R::Discarded),
                false,
                0,
                ["sent", "retryable: requested", "retryable: requested", "Discarded"],
            ),
            (
                S::Quarantined,
                Some(R::Conflict),
                false,
                0,
                ["sent", "WhichContent", "WhichContent", "failed: discarded"],
            ),
            (
                S::Suppressed,
                Some(R::OnProviderList),
                false,
                0,
                ["sent", "retryable: requested", "retryable: requested", "failed: discarded"],
            ),
        ];
        for (state, reason, doubtful, lease, expected) in table {
            let decisions = [confirm(), resend(false), resend(true), Decision::Discard];
            let found = decisions.map(|decision| decided(state, reason, doubtful, lease, &decision));
            assert_eq!(found, expected, "{state} {reason:?}");
        }
    }

    fn quarantined() -> Standing {
        Standing {
            fingerprint: OWN,
            state: State::Quarantined,
            lease_ends_at: None,
            next_attempt_at: None,
            ambiguous_since: None,
        }
    }

    fn under_review(standing: &Standing) -> UnderReview<'_> {
        UnderReview {
            standing,
            reason: None,
            in_conflict: true,
            presented: &[OTHER],
            reference: None,
            accepted_late: false,
            deadline_at: at(1_000),
        }
    }

    #[test]
    fn a_recorded_content_can_be_chosen_and_no_other() {
        let standing = quarantined();
        let choose = |content| {
            let decision = Decision::Resend { content: Some(content), accept_duplicate: false, send_until: None };
            review(&under_review(&standing), &decision, at(100)).map(|after| after.fingerprint)
        };
        assert_eq!(choose(OWN), Ok(OWN));
        assert_eq!(choose(OTHER), Ok(OTHER));
        let unknown = choose(Fingerprint::from_bytes([3; 32]));
        assert_eq!(unknown, Err(ReviewRefusal::UnknownContent { known: vec![OWN, OTHER] }));
    }

    #[test]
    fn a_sent_receipt_stays_sent_when_its_conflict_is_closed() {
        let standing = Standing { state: State::Sent, ..quarantined() };
        let receipt = UnderReview { reference: Some("r-1"), ..under_review(&standing) };
        let after = review(&receipt, &Decision::Discard, at(100)).unwrap();
        assert_eq!((after.state, after.reference.as_deref()), (State::Sent, Some("r-1")));
    }

    #[test]
    fn what_was_accepted_late_can_only_be_confirmed() {
        let standing = Standing { state: State::Claimed, lease_ends_at: Some(at(50)), ..quarantined() };
        let receipt =
            UnderReview { accepted_late: true, in_conflict: false, reference: Some("r-1"), ..under_review(&standing) };
        assert_eq!(review(&receipt, &resend(true), at(100)), Err(ReviewRefusal::Accepted));
        assert_eq!(review(&receipt, &Decision::Discard, at(100)), Err(ReviewRefusal::Accepted));
        assert_eq!(review(&receipt, &confirm(), at(100)).unwrap().reference.as_deref(), Some("r-1"));
    }

    #[test]
    fn after_the_deadline_only_a_later_one_lets_it_out() {
        let standing = Standing { state: State::Failed, ..quarantined() };
        let receipt = UnderReview { in_conflict: false, ..under_review(&standing) };
        let late = Err(ReviewRefusal::TooLate { deadline_at: at(1_000) });
        assert_eq!(review(&receipt, &resend(false), at(1_001)), late);
        let decision = Decision::Resend { content: None, accept_duplicate: false, send_until: Some(at(2_000)) };
        assert_eq!(review(&receipt, &decision, at(1_001)).unwrap().next_attempt_at, Some(at(1_001)));
    }

    #[test]
    fn a_reference_is_what_was_named_or_known_or_says_that_a_person_confirmed_it() {
        let standing = Standing { state: State::Held, ambiguous_since: Some(at(5)), ..quarantined() };
        let reference = |named: Option<&str>, known| {
            let receipt = UnderReview { reference: known, ..under_review(&standing) };
            let decision = Decision::ConfirmSent { reference: named.map(str::to_owned) };
            review(&receipt, &decision, at(100)).unwrap().reference.unwrap()
        };
        assert_eq!(reference(Some("q-1"), Some("r-1")), "q-1");
        assert_eq!(reference(None, Some("r-1")), "r-1");
        assert_eq!(reference(None, None), CONFIRMED);
    }
}
