//! What a provider can say about an earlier attempt under our key, what it promises about its saying so, and what
//! each answer does to the receipt.

use jiff::{SignedDuration, Timestamp};

use super::backoff::Backoff;
use super::settlement::{later, standing};
use super::{Attempt, EventKind, Policy, Reason, Settlement, State};

/// So many looks in a row that fail or cannot tell hold the receipt for a person.
pub const LOOKS_THAT_FAIL: u32 = 5;

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

/// The looks since the newest attempt that may have been accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looks {
    /// How many found nothing.
    pub misses: u32,
    /// How many of the last ones, in a row, failed or could not tell.
    pub failures: u32,
}

impl Looks {
    /// The looks so far after one more event of the receipt, oldest event first. The end of an attempt begins anew:
    /// what was absent before it may be there since.
    #[must_use]
    pub fn after(self, kind: EventKind, reason: Option<Reason>) -> Self {
        match (kind, reason) {
            (EventKind::Lookup, Some(Reason::Absent)) => Self { misses: self.misses.saturating_add(1), failures: 0 },
            (EventKind::Lookup, Some(Reason::LookupFailed)) => {
                Self { failures: self.failures.saturating_add(1), ..self }
            }
            (EventKind::Settle | EventKind::LeaseEnd | EventKind::LateSettle | EventKind::Review, _) => Self::default(),
            _ => self,
        }
    }
}

/// Decides what a look does, made under a grant for a doubtful attempt; `looks` are those before it. A look spends no
/// attempt, and one that cannot tell never leads to another attempt. `random` in `0.0..1.0` spreads the waits.
pub fn looked(
    attempt: &Attempt,
    looks: Looks,
    sighting: &Sighting,
    policy: &Policy,
    now: Timestamp,
    random: f64,
) -> Settlement {
    let look = Look { attempt, looks, policy, now };
    let Some(lookup) = policy.capabilities.lookup else { return look.held(Reason::Undecidable) };
    match sighting {
        Sighting::Found { reference } => Settlement {
            provider_reference: Some(reference.clone()),
            reconciled: true,
            ambiguous_since: None,
            ..look.to(State::Sent, None)
        },
        Sighting::Absent => look.absent(&lookup),
        Sighting::Unknown { code } => Settlement { provider_code: Some(code.clone()), ..look.failed(&lookup, random) },
    }
}

struct Look<'a> {
    attempt: &'a Attempt,
    looks: Looks,
    policy: &'a Policy,
    now: Timestamp,
}

impl Look<'_> {
    /// Keeps the doubt.
    fn to(&self, state: State, reason: Option<Reason>) -> Settlement {
        let ambiguous_since = Some(self.in_doubt_since());
        let next = standing(self.attempt, self.attempt.attempts, state, reason);
        Settlement { event: EventKind::Lookup, ambiguous_since, ..next }
    }

    fn held(&self, reason: Reason) -> Settlement {
        self.to(State::Held, Some(reason))
    }

    fn again_at(&self, reason: Reason, at: Timestamp) -> Settlement {
        Settlement { next_attempt_at: Some(at), ..self.to(State::Retryable, Some(reason)) }
    }

    fn in_doubt_since(&self) -> Timestamp {
        self.attempt.ambiguous_since.unwrap_or(self.attempt.began_at)
    }

    fn absent(&self, lookup: &Lookup) -> Settlement {
        // Counted from the oldest attempt in doubt: a later one would still be found.
        let in_doubt_for = self.now.duration_since(self.in_doubt_since());
        if lookup.retention.is_some_and(|retention| in_doubt_for >= retention) {
            return self.held(Reason::LookupRetentionOver);
        }
        if self.looks.misses.saturating_add(1) < lookup.misses {
            return self.again_at(Reason::Absent, later(self.now, lookup.settle));
        }
        Settlement { ambiguous_since: None, ..self.confirmed_absent() }
    }

    /// Nothing is in doubt any more: what goes for every receipt that was certainly not accepted goes for this one.
    fn confirmed_absent(&self) -> Settlement {
        if self.attempt.attempts >= self.policy.max_attempts {
            return self.to(State::Failed, Some(Reason::AttemptsExhausted));
        }
        if self.now > self.policy.deadline {
            return self.to(State::Failed, Some(Reason::DeadlinePassed));
        }
        self.again_at(Reason::ConfirmedAbsent, self.now)
    }

    /// Asked again after a wait that begins at the settle time and doubles, with up to as much again for the spread:
    /// a provider that is down is not asked by everyone at once, and its outage is outlived.
    fn failed(&self, lookup: &Lookup, random: f64) -> Settlement {
        let failures = self.looks.failures.saturating_add(1);
        if failures >= LOOKS_THAT_FAIL {
            return self.held(Reason::LookupFailed);
        }
        let base = lookup.settle.max(self.policy.backoff.base);
        let waits = Backoff { base, cap: base.max(self.policy.backoff.cap) };
        let wait = waits.bound(failures).saturating_add(waits.wait(failures, random));
        self.again_at(Reason::LookupFailed, later(self.now, wait))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Capabilities, OnAmbiguous, Outcome, Replay, RetryAfter, barred, lease_end, listed, settlement};
    use super::*;
    use crate::receipt::unsent;

    const NOW: i64 = 1_000_000;
    const SINCE: i64 = NOW - 300;
    const SETTLE: i64 = 120;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lookup() -> Lookup {
        Lookup { settle: SignedDuration::from_secs(SETTLE), misses: 2, retention: Some(SignedDuration::from_hours(1)) }
    }

    fn policy(replay: Replay, lookup: Lookup) -> Policy {
        Policy {
            capabilities: Capabilities { replay, lookup: Some(lookup) },
            on_ambiguous: OnAmbiguous::Hold,
            max_attempts: 3,
            backoff: Backoff { base: SignedDuration::from_secs(2), cap: SignedDuration::from_mins(30) },
            deadline: at(NOW + 3_600),
        }
    }

    fn in_doubt() -> Attempt {
        Attempt { attempts: 1, began_at: at(NOW - 1), first_attempt_at: at(SINCE), ambiguous_since: Some(at(SINCE)) }
    }

    fn first() -> Attempt {
        Attempt { attempts: 0, began_at: at(NOW - 1), first_attempt_at: at(NOW - 1), ambiguous_since: None }
    }

    fn unknown() -> Sighting {
        Sighting::Unknown { code: "503".to_owned() }
    }

    fn code() -> String {
        "x".to_owned()
    }

    const REPLAYS: [Replay; 3] = [Replay::Never, Replay::Within(SignedDuration::from_hours(24)), Replay::Always];

    /// State, reason, next attempt in seconds from now, start of the doubt.
    type Facts = (State, Option<Reason>, Option<i64>, Option<Timestamp>);

    fn facts(settled: &Settlement) -> Facts {
        let wait = settled.next_attempt_at.map(|next| next.as_second() - NOW);
        (settled.state, settled.reason, wait, settled.ambiguous_since)
    }

    fn look(looks: Looks, sighting: &Sighting, policy: &Policy, random: f64) -> Settlement {
        let settled = looked(&in_doubt(), looks, sighting, policy, at(NOW), random);
        assert_eq!((settled.event, settled.attempts), (EventKind::Lookup, 1), "a look spends nothing");
        settled
    }

    const NONE: Looks = Looks { misses: 0, failures: 0 };
    const ONE_MISS: Looks = Looks { misses: 1, failures: 0 };

    #[test]
    fn what_is_found_is_sent_and_reconciled_whatever_was_missed_before() {
        for looks in [NONE, ONE_MISS, Looks { misses: 7, failures: 4 }] {
            let found =
                look(looks, &Sighting::Found { reference: "r-1".to_owned() }, &policy(REPLAYS[0], lookup()), 0.0);
            assert_eq!(facts(&found), (State::Sent, None, None, None));
            assert_eq!((found.provider_reference.as_deref(), found.reconciled), (Some("r-1"), true));
        }
    }

    #[test]
    fn an_absence_counts_as_often_as_the_provider_demands_and_then_ends_the_doubt() {
        let policy = policy(REPLAYS[0], lookup());
        let since = Some(at(SINCE));
        let first = look(NONE, &Sighting::Absent, &policy, 0.9);
        assert_eq!(facts(&first), (State::Retryable, Some(Reason::Absent), Some(SETTLE), since));
        let second = look(ONE_MISS, &Sighting::Absent, &policy, 0.9);
        assert_eq!(facts(&second), (State::Retryable, Some(Reason::ConfirmedAbsent), Some(0), None));
        let one_is_enough = Lookup { misses: 1, ..lookup() };
        let only = look(NONE, &Sighting::Absent, &super::tests::policy(REPLAYS[0], one_is_enough), 0.0);
        assert_eq!(only.reason, Some(Reason::ConfirmedAbsent));
    }

    #[test]
    fn past_its_retention_an_absence_proves_nothing() {
        for looks in [NONE, ONE_MISS] {
            let over = Lookup { retention: Some(SignedDuration::from_secs(300)), ..lookup() };
            let held = look(looks, &Sighting::Absent, &policy(REPLAYS[2], over), 0.0);
            assert_eq!(facts(&held), (State::Held, Some(Reason::LookupRetentionOver), None, Some(at(SINCE))));
            let just_inside = Lookup { retention: Some(SignedDuration::from_secs(301)), ..lookup() };
            assert_eq!(look(looks, &Sighting::Absent, &policy(REPLAYS[2], just_inside), 0.0).state, State::Retryable);
            let without_end = Lookup { retention: None, ..lookup() };
            assert_eq!(look(looks, &Sighting::Absent, &policy(REPLAYS[2], without_end), 0.0).state, State::Retryable);
        }
    }

    #[test]
    fn what_is_certainly_absent_ends_like_anything_that_was_not_accepted() {
        let late = Policy { deadline: at(NOW - 1), ..policy(REPLAYS[0], lookup()) };
        let ended = look(ONE_MISS, &Sighting::Absent, &late, 0.0);
        assert_eq!(facts(&ended), (State::Failed, Some(Reason::DeadlinePassed), None, None));
        let spent = Policy { max_attempts: 1, ..policy(REPLAYS[0], lookup()) };
        let ended = look(ONE_MISS, &Sighting::Absent, &spent, 0.0);
        assert_eq!(facts(&ended), (State::Failed, Some(Reason::AttemptsExhausted), None, None));
    }

    #[test]
    fn a_look_that_cannot_tell_waits_longer_each_time_and_the_fifth_in_a_row_holds() {
        for replay in REPLAYS {
            let policy = policy(replay, lookup());
            let after = |failures, random| look(Looks { misses: 1, failures }, &unknown(), &policy, random);
            for (failures, least) in [(0, 120), (1, 240), (2, 480), (3, 960)] {
                let again = (State::Retryable, Some(Reason::LookupFailed), Some(least), Some(at(SINCE)));
                assert_eq!(facts(&after(failures, 0.0)), again);
                assert_eq!(facts(&after(failures, 0.5)).2, Some(least + least / 2));
            }
            let held = after(4, 0.0);
            assert_eq!(facts(&held), (State::Held, Some(Reason::LookupFailed), None, Some(at(SINCE))));
            assert_eq!(held.provider_code.as_deref(), Some("503"));
        }
    }

    #[test]
    fn a_provider_that_settles_at_once_is_still_not_asked_in_a_loop() {
        let at_once = Lookup { settle: SignedDuration::ZERO, ..lookup() };
        assert_eq!(facts(&look(NONE, &unknown(), &policy(REPLAYS[0], at_once), 0.0)).2, Some(2));
    }

    #[test]
    fn a_provider_that_cannot_be_asked_any_more_leaves_the_doubt_to_a_person() {
        let mut policy = policy(Replay::Always, lookup());
        policy.capabilities.lookup = None;
        let held = look(ONE_MISS, &Sighting::Absent, &policy, 0.0);
        assert_eq!(facts(&held), (State::Held, Some(Reason::Undecidable), None, Some(at(SINCE))));
    }

    #[test]
    fn looks_are_counted_from_the_end_of_the_newest_attempt() {
        use EventKind as E;
        use Reason as R;
        let count = |events: &[(EventKind, Option<Reason>)]| {
            events.iter().fold(Looks::default(), |looks, (kind, reason)| looks.after(*kind, *reason))
        };
        let (miss, failure) = ((E::Lookup, Some(R::Absent)), (E::Lookup, Some(R::LookupFailed)));
        let doubt = (E::Settle, Some(R::Ambiguous));
        assert_eq!(count(&[]), NONE);
        assert_eq!(count(&[doubt, failure, failure, miss, failure]), Looks { misses: 1, failures: 1 });
        assert_eq!(count(&[doubt, miss, failure, miss]), Looks { misses: 2, failures: 0 });
        assert_eq!(count(&[doubt, miss, (E::GiveBack, Some(R::GivenBack)), (E::Conflict, None), miss]).misses, 2);
        for end in [E::Settle, E::LeaseEnd, E::LateSettle, E::Review] {
            assert_eq!(count(&[doubt, miss, failure, (end, None)]), NONE, "{end}");
        }
    }

    fn every_outcome_but_accepted() -> Vec<(Outcome, Reason, u32)> {
        vec![
            (Outcome::Rejected { code: code(), text: None }, Reason::Ambiguous, 1),
            (Outcome::Throttled { until: RetryAfter::Unspecified, code: code() }, Reason::Throttled, 0),
            (Outcome::Deferred { code: code() }, Reason::Deferred, 1),
            (Outcome::Unavailable { code: code() }, Reason::Unavailable, 1),
            (Outcome::KeyInUse { code: code() }, Reason::KeyInUse, 1),
            (Outcome::OtherPayload { code: code() }, Reason::OtherPayload, 1),
            (Outcome::Suppressed { code: code() }, Reason::Ambiguous, 1),
            (Outcome::Ambiguous { code: code() }, Reason::Ambiguous, 1),
        ]
    }

    /// Out of attempts, past its deadline: nothing of that comes before the look.
    fn nothing_left(replay: Replay) -> Policy {
        Policy { max_attempts: 1, deadline: at(NOW - 10), ..policy(replay, lookup()) }
    }

    #[test]
    fn what_is_in_doubt_is_looked_up_before_anything_else_is_decided() {
        for replay in REPLAYS {
            let policy = nothing_left(replay);
            for (outcome, reason, spent) in every_outcome_but_accepted() {
                let settled = settlement(&in_doubt(), &outcome, &policy, at(NOW), 0.5);
                let expected = (State::Retryable, Some(reason), Some(SETTLE), Some(at(SINCE)));
                assert_eq!(facts(&settled), expected, "{outcome:?}");
                assert_eq!((settled.attempts, settled.event), (1 + spent, EventKind::Settle), "{outcome:?}");
            }
            let look = (State::Retryable, Some(Reason::Ambiguous), Some(SETTLE), Some(at(SINCE)));
            assert_eq!(facts(&unsent(&in_doubt(), &policy, Reason::RenderError, at(NOW))), look);
            assert_eq!(facts(&listed(&in_doubt(), &policy, at(NOW))), look);
            let began = Attempt { began_at: at(NOW), ..in_doubt() };
            assert_eq!(barred(&began, &policy).as_ref().map(facts), Some(look));
        }
    }

    #[test]
    fn a_first_attempt_that_leaves_a_doubt_is_looked_up_a_settle_time_after_its_end() {
        let doubts = [
            (Outcome::Ambiguous { code: code() }, Reason::Ambiguous),
            (Outcome::KeyInUse { code: code() }, Reason::KeyInUse),
            (Outcome::OtherPayload { code: code() }, Reason::OtherPayload),
        ];
        for (outcome, reason) in doubts {
            let settled = settlement(&first(), &outcome, &nothing_left(Replay::Always), at(NOW), 0.5);
            let expected = (State::Retryable, Some(reason), Some(SETTLE), Some(at(NOW - 1)));
            assert_eq!(facts(&settled), expected, "{outcome:?}");
        }
        let rejected = Outcome::Rejected { code: code(), text: None };
        let certain = settlement(&first(), &rejected, &nothing_left(Replay::Always), at(NOW), 0.5);
        assert_eq!(facts(&certain), (State::Failed, Some(Reason::Rejected), None, None), "nothing to look for");
    }

    #[test]
    fn a_throttled_doubt_waits_for_the_later_of_both() {
        let throttled = |seconds| {
            let until = RetryAfter::In(SignedDuration::from_secs(seconds));
            let outcome = Outcome::Throttled { until, code: code() };
            facts(&settlement(&in_doubt(), &outcome, &policy(Replay::Never, lookup()), at(NOW), 0.0)).2
        };
        assert_eq!(throttled(3), Some(SETTLE));
        assert_eq!(throttled(SETTLE + 3), Some(SETTLE + 3));
    }

    #[test]
    fn a_lease_that_ends_is_an_attempt_in_doubt_or_a_look_that_nobody_heard() {
        let lost = lease_end(&first(), &nothing_left(Replay::Never), at(NOW), 0.5);
        let expected = (State::Retryable, Some(Reason::LeaseEnded), Some(SETTLE), Some(at(NOW - 1)));
        assert_eq!((facts(&lost), lost.attempts, lost.event), (expected, 1, EventKind::LeaseEnd));
        let look = lease_end(&in_doubt(), &nothing_left(Replay::Never), at(NOW), 0.5);
        let expected = (State::Retryable, Some(Reason::LeaseEnded), Some(SETTLE), Some(at(SINCE)));
        assert_eq!((facts(&look), look.attempts, look.event), (expected, 1, EventKind::LeaseEnd));
    }

    #[test]
    fn a_look_that_was_not_begun_is_given_back_as_it_was() {
        let back = settlement(&in_doubt(), &Outcome::NotStarted, &nothing_left(Replay::Always), at(NOW), 0.5);
        assert_eq!(facts(&back), (State::Retryable, Some(Reason::GivenBack), Some(0), Some(at(SINCE))));
        assert_eq!(back.event, EventKind::GiveBack);
    }
}
