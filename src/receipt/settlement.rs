//! What an outcome does to the receipt that it belongs to. The one place where that is decided.

use jiff::{SignedDuration, Timestamp};

use super::backoff::Backoff;
use super::{EventKind, Lookup, Outcome, Reason, RetryAfter, State};

/// For how long a provider answers a repeated key with the first answer instead of sending again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// It does not.
    Never,
    /// For this long after the first attempt; a margin is already taken off.
    Within(SignedDuration),
    /// Without end.
    Always,
}

/// What a provider can do about an ambiguous attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Repeats under the same key.
    pub replay: Replay,
    /// Looks by the same key; `None` where there are none.
    pub lookup: Option<Lookup>,
}

/// What to do where neither lookup nor replay exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAmbiguous {
    /// Hold for a person.
    #[default]
    Hold,
    /// Send again and accept that some get it twice.
    Resend,
}

/// The rules of a destination and a run that decide with the outcome.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// What the provider can do.
    pub capabilities: Capabilities,
    /// The owner's choice where it can do nothing.
    pub on_ambiguous: OnAmbiguous,
    /// Attempts that may be spent on one receipt.
    pub max_attempts: u32,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// After this instant no attempt is of use.
    pub deadline: Timestamp,
}

/// The attempt that an outcome belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Attempts spent before this one.
    pub attempts: u32,
    /// When this attempt began.
    pub began_at: Timestamp,
    /// When the first attempt under this key began; the replay window counts from here.
    pub first_attempt_at: Timestamp,
    /// Set where an earlier attempt may have been accepted.
    pub ambiguous_since: Option<Timestamp>,
}

/// The receipt's next standing, as the ledger is asked to record it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// What the event records.
    pub event: EventKind,
    /// The next state.
    pub state: State,
    /// Why.
    pub reason: Option<Reason>,
    /// When a retryable receipt may be tried.
    pub next_attempt_at: Option<Timestamp>,
    /// Since when an attempt may have been accepted; `None` once that is decided.
    pub ambiguous_since: Option<Timestamp>,
    /// Attempts spent, this one included where it counts.
    pub attempts: u32,
    /// The provider's reference, of an accepted attempt.
    pub provider_reference: Option<String>,
    /// The provider's code, or our class of error.
    pub provider_code: Option<String>,
    /// Sent after an attempt whose outcome had been unknown.
    pub reconciled: bool,
}

/// Decides what `outcome` does at `now`; `random` in `0.0..1.0` spreads the waits.
pub fn settlement(attempt: &Attempt, outcome: &Outcome, policy: &Policy, now: Timestamp, random: f64) -> Settlement {
    settled(attempt, attempt.attempts.saturating_add(1), outcome, policy, now, random)
}

/// Decides what `outcome` does where the attempt is not charged to the receipt unless it ends it: a probe of a
/// destination that is left alone, or an attempt that found it gone. A doubt is recorded all the same.
pub fn uncharged(attempt: &Attempt, outcome: &Outcome, policy: &Policy, now: Timestamp, random: f64) -> Settlement {
    let spent = match outcome {
        Outcome::Unavailable { .. }
        | Outcome::Deferred { .. }
        | Outcome::Ambiguous { .. }
        | Outcome::KeyInUse { .. } => attempt.attempts,
        _ => attempt.attempts.saturating_add(1),
    };
    settled(attempt, spent, outcome, policy, now, random)
}

fn settled(
    attempt: &Attempt,
    spent: u32,
    outcome: &Outcome,
    policy: &Policy,
    now: Timestamp,
    random: f64,
) -> Settlement {
    let keep = Draft { attempt, policy, now, attempts: attempt.attempts };
    let count = Draft { attempts: spent, ..keep };
    match outcome {
        Outcome::Accepted { reference } => Settlement {
            provider_reference: Some(reference.clone()),
            reconciled: attempt.ambiguous_since.is_some(),
            ambiguous_since: None,
            ..count.to(State::Sent, None)
        },
        Outcome::Rejected { code, .. } => {
            count.ended(State::Failed, Reason::Rejected, Reason::ReplayRefused).coded(code)
        }
        Outcome::Suppressed { code } => {
            count.ended(State::Suppressed, Reason::OnProviderList, Reason::ReplayRefused).coded(code)
        }
        Outcome::Throttled { until, code } => {
            keep.again(Reason::Throttled, throttled_until(*until, policy, attempt, now, random)).coded(code)
        }
        Outcome::Deferred { code } => {
            count.again(Reason::Deferred, later(now, policy.backoff.wait(spent, random))).coded(code)
        }
        Outcome::Unavailable { code } => {
            count.again(Reason::Unavailable, later(now, policy.backoff.wait(spent, random))).coded(code)
        }
        Outcome::Ambiguous { code } => count.in_doubt(Reason::Ambiguous, random).coded(code),
        Outcome::KeyInUse { code } => count.in_doubt(Reason::KeyInUse, random).coded(code),
        Outcome::OtherPayload { code } => count.other_payload().coded(code),
        Outcome::Misconfigured { .. } | Outcome::NotStarted => {
            Settlement { event: EventKind::GiveBack, ..keep.again_at(Reason::GivenBack, now) }
        }
    }
}

/// Decides what the end of a lease without an outcome does: the attempt may have been made. A claim of what was in
/// doubt already, where the provider can be asked, was a look, which spends no attempt.
pub fn lease_end(attempt: &Attempt, policy: &Policy, now: Timestamp, random: f64) -> Settlement {
    let was_a_look = attempt.ambiguous_since.is_some() && policy.capabilities.lookup.is_some();
    let attempts = attempt.attempts.saturating_add(u32::from(!was_a_look));
    let draft = Draft { attempt, policy, now, attempts };
    Settlement { event: EventKind::LeaseEnd, ..draft.in_doubt(Reason::LeaseEnded, random) }
}

/// Decides about a row that the ledger may have forgotten: an attempt may have been made at `since` at the earliest.
pub fn ledger_restored(since: Timestamp, policy: &Policy, now: Timestamp, random: f64) -> Settlement {
    let attempt = Attempt { attempts: 0, began_at: since, first_attempt_at: since, ambiguous_since: None };
    let settled = lease_end(&attempt, policy, now, random);
    let reason = match settled.reason {
        Some(Reason::LeaseEnded | Reason::Undecidable) => Some(Reason::LedgerRestored),
        other => other,
    };
    Settlement { reason, ..settled }
}

/// Ends a granted claim without an attempt: the row cannot be rendered, or it comes too late. Where an earlier
/// attempt is in doubt, that is no end: the provider is asked, or a person decides.
pub fn unsent(attempt: &Attempt, policy: &Policy, reason: Reason, now: Timestamp) -> Settlement {
    Draft { attempt, policy, now, attempts: attempt.attempts }.ended(State::Failed, reason, Reason::OutOfTries)
}

/// Ends a granted claim without an attempt because the recipient is on our suppression list. Where an earlier attempt
/// is in doubt, that is no end: it is not sent again; the provider is asked, or a person decides.
pub fn listed(attempt: &Attempt, policy: &Policy, now: Timestamp) -> Settlement {
    Draft { attempt, policy, now, attempts: attempt.attempts }.ended(
        State::Suppressed,
        Reason::OnOurList,
        Reason::OutOfTries,
    )
}

/// Whether the attempt may not begin, and what is recorded instead. An attempt that was planned in time can begin
/// after its deadline, or repeat a doubtful one where that is allowed no more: its provider may have forgotten the key.
/// Where the provider can be asked, a doubtful one is never repeated.
pub fn barred(attempt: &Attempt, policy: &Policy) -> Option<Settlement> {
    let draft = Draft { attempt, policy, now: attempt.began_at, attempts: attempt.attempts };
    if attempt.ambiguous_since.is_some()
        && let Some(look) = draft.look_first(Reason::Ambiguous, attempt.began_at)
    {
        return Some(look);
    }
    if attempt.began_at > policy.deadline {
        return Some(unsent(attempt, policy, Reason::DeadlinePassed, attempt.began_at));
    }
    if attempt.ambiguous_since.is_none() || draft.repeat_allowed(attempt.began_at) {
        return None;
    }
    Some(draft.held(if policy.cannot_repeat() { Reason::Undecidable } else { Reason::ReplayWindowOver }))
}

/// Holds a receipt whose doubtful attempt went to another account than the destination points at now.
pub fn destination_changed(attempt: &Attempt) -> Settlement {
    Settlement {
        ambiguous_since: Some(attempt.ambiguous_since.unwrap_or(attempt.began_at)),
        ..standing(attempt, attempt.attempts, State::Held, Some(Reason::DestinationChanged))
    }
}

/// A settlement that says nothing yet but where the receipt stands.
pub(super) fn standing(attempt: &Attempt, attempts: u32, state: State, reason: Option<Reason>) -> Settlement {
    Settlement {
        event: EventKind::Settle,
        state,
        reason,
        next_attempt_at: None,
        ambiguous_since: attempt.ambiguous_since,
        attempts,
        provider_reference: None,
        provider_code: None,
        reconciled: false,
    }
}

/// The instant that a throttled receipt waits for: what the provider asked for in full, and a jitter behind it,
/// so that not everyone comes at once.
fn throttled_until(until: RetryAfter, policy: &Policy, attempt: &Attempt, now: Timestamp, random: f64) -> Timestamp {
    let wait = policy.backoff.wait(attempt.attempts.saturating_add(1), random);
    let asked = match until {
        RetryAfter::In(span) => now.saturating_add(span).unwrap_or(now),
        RetryAfter::At(at) => at,
        RetryAfter::Unspecified => now,
    };
    asked.max(now).saturating_add(wait).unwrap_or(now)
}

/// The end of a wait; where the calendar is too short for it, the calendar's end.
pub(super) fn later(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// What every settlement starts from.
#[derive(Clone, Copy)]
struct Draft<'a> {
    attempt: &'a Attempt,
    policy: &'a Policy,
    now: Timestamp,
    attempts: u32,
}

impl Draft<'_> {
    fn to(&self, state: State, reason: Option<Reason>) -> Settlement {
        standing(self.attempt, self.attempts, state, reason)
    }

    fn held(&self, reason: Reason) -> Settlement {
        Settlement {
            ambiguous_since: Some(self.attempt.ambiguous_since.unwrap_or(self.attempt.began_at)),
            ..self.to(State::Held, Some(reason))
        }
    }

    /// Where the provider can be asked what became of a doubtful attempt, it is, before anything else is decided: a
    /// settle time from now, and not before `at`. Neither attempts nor deadline limit a look.
    fn look_first(&self, reason: Reason, at: Timestamp) -> Option<Settlement> {
        let lookup = self.policy.capabilities.lookup?;
        let since = self.attempt.ambiguous_since.unwrap_or(self.attempt.began_at);
        let look = self.again_at(reason, later(self.now, lookup.settle).max(at));
        Some(Settlement { ambiguous_since: Some(since), ..look })
    }

    /// An end that is only an end where nothing earlier is in doubt.
    fn ended(&self, state: State, reason: Reason, in_doubt: Reason) -> Settlement {
        if self.attempt.ambiguous_since.is_none() {
            return self.to(state, Some(reason));
        }
        self.look_first(Reason::Ambiguous, self.now).unwrap_or_else(|| self.held(in_doubt))
    }

    /// An earlier request under this key reached the provider, with other bytes.
    fn other_payload(&self) -> Settlement {
        self.look_first(Reason::OtherPayload, self.now).unwrap_or_else(|| self.held(Reason::OtherPayload))
    }

    fn again_at(&self, reason: Reason, at: Timestamp) -> Settlement {
        Settlement { next_attempt_at: Some(at), ..self.to(State::Retryable, Some(reason)) }
    }

    /// Another attempt at `at`, within the bounds.
    fn again(&self, reason: Reason, at: Timestamp) -> Settlement {
        if self.attempt.ambiguous_since.is_some()
            && let Some(look) = self.look_first(reason, at)
        {
            return look;
        }
        if self.attempts >= self.policy.max_attempts {
            return self.ended(State::Failed, Reason::AttemptsExhausted, Reason::OutOfTries);
        }
        if at > self.policy.deadline {
            return self.ended(State::Failed, Reason::DeadlinePassed, Reason::OutOfTries);
        }
        match self.attempt.ambiguous_since {
            Some(_) if !self.repeat_allowed(at) => self.held(Reason::ReplayWindowOver),
            _ => self.again_at(reason, at),
        }
    }

    /// An attempt that may have been accepted.
    fn in_doubt(&self, reason: Reason, random: f64) -> Settlement {
        if let Some(look) = self.look_first(reason, self.now) {
            return look;
        }
        let at = later(self.now, self.policy.backoff.wait(self.attempts, random));
        if self.policy.cannot_repeat() {
            return self.held(Reason::Undecidable);
        }
        if self.attempts >= self.policy.max_attempts || at > self.policy.deadline {
            return self.held(Reason::OutOfTries);
        }
        if !self.repeat_allowed(at) {
            return self.held(Reason::ReplayWindowOver);
        }
        let since = self.attempt.ambiguous_since.unwrap_or(self.attempt.began_at);
        Settlement { ambiguous_since: Some(since), ..self.again_at(reason, at) }
    }

    /// Whether a doubtful attempt may be repeated at `at`: inside the window, or because its owner accepts two.
    fn repeat_allowed(&self, at: Timestamp) -> bool {
        match self.policy.capabilities.replay {
            Replay::Never => self.policy.on_ambiguous == OnAmbiguous::Resend,
            Replay::Always => true,
            Replay::Within(window) => at.duration_since(self.attempt.first_attempt_at) < window,
        }
    }
}

impl Policy {
    /// Whether the provider cannot help and its owner does not want a second message.
    fn cannot_repeat(&self) -> bool {
        self.capabilities.replay == Replay::Never && self.on_ambiguous == OnAmbiguous::Hold
    }
}

impl Settlement {
    fn coded(self, code: &str) -> Self {
        Self { provider_code: Some(code.to_owned()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn policy(replay: Replay) -> Policy {
        Policy {
            capabilities: Capabilities { replay, lookup: None },
            on_ambiguous: OnAmbiguous::Hold,
            max_attempts: 3,
            backoff: Backoff { base: SignedDuration::from_secs(2), cap: SignedDuration::from_mins(30) },
            deadline: at(NOW + 3_600),
        }
    }

    fn first() -> Attempt {
        Attempt { attempts: 0, began_at: at(NOW - 1), first_attempt_at: at(NOW - 1), ambiguous_since: None }
    }

    fn in_doubt() -> Attempt {
        Attempt {
            attempts: 1,
            began_at: at(NOW - 1),
            first_attempt_at: at(NOW - 100),
            ambiguous_since: Some(at(NOW - 100)),
        }
    }

    fn code() -> String {
        "x".to_owned()
    }

    fn every_outcome() -> Vec<Outcome> {
        vec![
            Outcome::Accepted { reference: "r".to_owned() },
            Outcome::Rejected { code: code(), text: None },
            Outcome::Throttled { until: RetryAfter::Unspecified, code: code() },
            Outcome::Deferred { code: code() },
            Outcome::Unavailable { code: code() },
            Outcome::KeyInUse { code: code() },
            Outcome::OtherPayload { code: code() },
            Outcome::Suppressed { code: code() },
            Outcome::Ambiguous { code: code() },
            Outcome::Misconfigured { problem: code() },
            Outcome::NotStarted,
        ]
    }

    fn settle(attempt: &Attempt, outcome: &Outcome, policy: &Policy) -> Settlement {
        settlement(attempt, outcome, policy, at(NOW), 0.5)
    }

    #[test]
    fn what_the_ledger_may_have_forgotten_is_repeated_inside_the_window_and_held_elsewhere() {
        let forgotten = |replay, since| ledger_restored(at(since), &policy(replay), at(NOW), 0.5);
        for replay in [Replay::Always, Replay::Within(SignedDuration::from_hours(1))] {
            let settled = forgotten(replay, NOW - 60);
            assert_eq!((settled.state, settled.reason), (State::Retryable, Some(Reason::LedgerRestored)));
            assert_eq!(settled.ambiguous_since, Some(at(NOW - 60)));
        }
        let over = forgotten(Replay::Within(SignedDuration::from_hours(1)), NOW - 3_600);
        assert_eq!((over.state, over.reason), (State::Held, Some(Reason::ReplayWindowOver)));
        let undecidable = forgotten(Replay::Never, NOW - 60);
        assert_eq!((undecidable.state, undecidable.reason), (State::Held, Some(Reason::LedgerRestored)));
    }

    #[test]
    fn a_first_attempt_ends_as_its_outcome_says() {
        use Reason as R;
        use State as S;
        let replays = policy(Replay::Always);
        let expected = [
            (S::Sent, None, 1, false),
            (S::Failed, Some(R::Rejected), 1, false),
            (S::Retryable, Some(R::Throttled), 0, false),
            (S::Retryable, Some(R::Deferred), 1, false),
            (S::Retryable, Some(R::Unavailable), 1, false),
            (S::Retryable, Some(R::KeyInUse), 1, true),
            (S::Held, Some(R::OtherPayload), 1, true),
            (S::Suppressed, Some(R::OnProviderList), 1, false),
            (S::Retryable, Some(R::Ambiguous), 1, true),
            (S::Retryable, Some(R::GivenBack), 0, false),
            (S::Retryable, Some(R::GivenBack), 0, false),
        ];
        for (outcome, (state, reason, attempts, doubtful)) in every_outcome().iter().zip(expected) {
            let settled = settle(&first(), outcome, &replays);
            assert_eq!((settled.state, settled.reason, settled.attempts), (state, reason, attempts), "{outcome:?}");
            assert_eq!(settled.ambiguous_since.is_some(), doubtful, "{outcome:?}");
            assert_eq!(settled.next_attempt_at.is_some(), state == S::Retryable, "{outcome:?}");
        }
    }

    #[test]
    fn a_probe_that_fails_is_not_charged_and_its_doubt_is_remembered() {
        for outcome in every_outcome() {
            let at = at(NOW);
            let charged = settlement(&first(), &outcome, &policy(Replay::Always), at, 0.5);
            let probe = uncharged(&first(), &outcome, &policy(Replay::Always), at, 0.5);
            assert_eq!((probe.state, probe.reason), (charged.state, charged.reason), "{outcome:?}");
            assert_eq!(probe.ambiguous_since, charged.ambiguous_since, "{outcome:?}");
            let ends = charged.state != State::Retryable;
            assert_eq!(probe.attempts, if ends { charged.attempts } else { 0 }, "{outcome:?}");
        }
        let last = Attempt { attempts: 2, ..first() };
        let unavailable = Outcome::Unavailable { code: code() };
        let probe = uncharged(&last, &unavailable, &policy(Replay::Never), at(NOW), 0.5);
        assert_eq!((probe.state, probe.attempts), (State::Retryable, 2), "a probe exhausts nothing");
        let doubtful = uncharged(&first(), &Outcome::Ambiguous { code: code() }, &policy(Replay::Never), at(NOW), 0.5);
        assert_eq!((doubtful.state, doubtful.attempts), (State::Held, 0));
        assert!(doubtful.ambiguous_since.is_some());
    }

    #[test]
    fn a_doubt_is_only_ended_by_acceptance() {
        for replay in [Replay::Never, Replay::Within(SignedDuration::from_hours(1)), Replay::Always] {
            for outcome in every_outcome() {
                let settled = settle(&in_doubt(), &outcome, &policy(replay));
                match outcome {
                    Outcome::Accepted { .. } => assert!(settled.reconciled && settled.ambiguous_since.is_none()),
                    _ => {
                        assert_eq!(settled.ambiguous_since, Some(at(NOW - 100)), "{outcome:?}");
                        assert!(matches!(settled.state, State::Retryable | State::Held), "{outcome:?}: {settled:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn without_replay_a_doubt_is_held_unless_the_owner_chose_to_resend() {
        let ambiguous = Outcome::Ambiguous { code: code() };
        let held = settle(&first(), &ambiguous, &policy(Replay::Never));
        assert_eq!(
            (held.state, held.reason, held.ambiguous_since),
            (State::Held, Some(Reason::Undecidable), Some(at(NOW - 1)))
        );
        let resend = Policy { on_ambiguous: OnAmbiguous::Resend, ..policy(Replay::Never) };
        let again = settle(&first(), &ambiguous, &resend);
        assert_eq!((again.state, again.ambiguous_since), (State::Retryable, Some(at(NOW - 1))));
        let unavailable = settle(&in_doubt(), &Outcome::Unavailable { code: code() }, &resend);
        assert_eq!((unavailable.state, unavailable.ambiguous_since), (State::Retryable, Some(at(NOW - 100))));
        assert_eq!(lease_end(&first(), &policy(Replay::Never), at(NOW), 0.5).state, State::Held);
        assert_eq!(lease_end(&first(), &policy(Replay::Always), at(NOW), 0.5).state, State::Retryable);
    }

    #[test]
    fn the_replay_window_counts_from_the_first_attempt() {
        let ambiguous = Outcome::Ambiguous { code: code() };
        let inside = settle(&in_doubt(), &ambiguous, &policy(Replay::Within(SignedDuration::from_secs(200))));
        assert_eq!(inside.state, State::Retryable);
        let outside = settle(&in_doubt(), &ambiguous, &policy(Replay::Within(SignedDuration::from_secs(100))));
        assert_eq!((outside.state, outside.reason), (State::Held, Some(Reason::ReplayWindowOver)));
        let throttled = Outcome::Throttled { until: RetryAfter::In(SignedDuration::from_secs(300)), code: code() };
        let waits_past_it = settle(&in_doubt(), &throttled, &policy(Replay::Within(SignedDuration::from_secs(200))));
        assert_eq!((waits_past_it.state, waits_past_it.reason), (State::Held, Some(Reason::ReplayWindowOver)));
    }

    #[test]
    fn the_choice_to_resend_does_not_make_what_may_have_been_accepted_a_failure() {
        let resend = Policy { on_ambiguous: OnAmbiguous::Resend, ..policy(Replay::Never) };
        let last = Attempt { attempts: 2, ..in_doubt() };
        for outcome in [Outcome::Ambiguous { code: code() }, Outcome::Unavailable { code: code() }] {
            let settled = settle(&last, &outcome, &resend);
            assert_eq!((settled.state, settled.reason), (State::Held, Some(Reason::OutOfTries)), "{outcome:?}");
        }
        assert_eq!(lease_end(&last, &resend, at(NOW), 0.5).state, State::Held);
        let rejected = settle(&in_doubt(), &Outcome::Rejected { code: code(), text: None }, &resend);
        assert_eq!((rejected.state, rejected.reason), (State::Held, Some(Reason::ReplayRefused)));
    }

    #[test]
    fn an_attempt_is_barred_once_it_is_late_or_its_replay_is_no_longer_allowed() {
        let reason = |attempt: &Attempt, policy: &Policy| barred(attempt, policy).map(|end| (end.state, end.reason));
        let within = |seconds| policy(Replay::Within(SignedDuration::from_secs(seconds)));
        assert_eq!(reason(&in_doubt(), &within(100)), None);
        assert_eq!(reason(&in_doubt(), &within(99)), Some((State::Held, Some(Reason::ReplayWindowOver))));
        assert_eq!(reason(&first(), &within(0)), None);
        assert_eq!(reason(&in_doubt(), &policy(Replay::Always)), None);
        assert_eq!(reason(&in_doubt(), &policy(Replay::Never)), Some((State::Held, Some(Reason::Undecidable))));
        let resend = Policy { on_ambiguous: OnAmbiguous::Resend, ..policy(Replay::Never) };
        assert_eq!(reason(&in_doubt(), &resend), None);
        let late = Policy { deadline: at(NOW - 2), ..policy(Replay::Always) };
        assert_eq!(reason(&first(), &late), Some((State::Failed, Some(Reason::DeadlinePassed))));
        assert_eq!(reason(&in_doubt(), &late), Some((State::Held, Some(Reason::OutOfTries))));
        assert_eq!(barred(&in_doubt(), &late).map(|end| end.attempts), Some(1), "nothing was spent");
    }

    #[test]
    fn the_last_attempt_and_the_deadline_end_a_receipt_that_is_not_in_doubt() {
        let unavailable = Outcome::Unavailable { code: code() };
        let last = Attempt { attempts: 2, ..first() };
        let exhausted = settle(&last, &unavailable, &policy(Replay::Always));
        assert_eq!(
            (exhausted.state, exhausted.reason, exhausted.attempts),
            (State::Failed, Some(Reason::AttemptsExhausted), 3)
        );
        let late = Policy { deadline: at(NOW), ..policy(Replay::Always) };
        assert_eq!(settle(&first(), &unavailable, &late).reason, Some(Reason::DeadlinePassed));
        assert_eq!(unsent(&first(), &late, Reason::DeadlinePassed, at(NOW)).state, State::Failed);
        assert_eq!(unsent(&in_doubt(), &late, Reason::DeadlinePassed, at(NOW)).state, State::Held);
    }

    #[test]
    fn a_doubtful_attempt_is_only_repeated_inside_its_window_whenever_it_was_granted() {
        let bar = |attempt: &Attempt, replay, now| {
            barred(&Attempt { began_at: at(now), ..*attempt }, &policy(replay))
                .map(|settlement| (settlement.state, settlement.reason))
        };
        let window = Replay::Within(SignedDuration::from_secs(200));
        assert_eq!(bar(&in_doubt(), window, NOW + 99), None);
        let over = Some((State::Held, Some(Reason::ReplayWindowOver)));
        assert_eq!(bar(&in_doubt(), window, NOW + 100), over);
        assert_eq!(bar(&first(), window, NOW + 100), None);
        assert_eq!(bar(&in_doubt(), Replay::Always, NOW + 100), None);
        assert_eq!(bar(&in_doubt(), Replay::Never, NOW), Some((State::Held, Some(Reason::Undecidable))));
        let late = Some((State::Failed, Some(Reason::DeadlinePassed)));
        assert_eq!(bar(&first(), Replay::Always, NOW + 3_601), late);
        assert_eq!(bar(&in_doubt(), Replay::Always, NOW + 3_601), Some((State::Held, Some(Reason::OutOfTries))));
    }

    #[test]
    fn a_throttled_receipt_waits_in_full_and_a_little_longer() {
        let wait = |until| {
            settle(&first(), &Outcome::Throttled { until, code: code() }, &policy(Replay::Never))
                .next_attempt_at
                .unwrap()
        };
        assert_eq!(wait(RetryAfter::In(SignedDuration::from_secs(120))), at(NOW + 121));
        assert_eq!(wait(RetryAfter::At(at(NOW + 120))), at(NOW + 121));
        assert_eq!(wait(RetryAfter::At(at(NOW - 120))), at(NOW + 1));
        assert_eq!(wait(RetryAfter::Unspecified), at(NOW + 1));
    }

    #[test]
    fn a_claim_given_back_spends_nothing_and_keeps_its_doubt() {
        let back = settle(&in_doubt(), &Outcome::NotStarted, &policy(Replay::Always));
        assert_eq!((back.event, back.attempts, back.next_attempt_at), (EventKind::GiveBack, 1, Some(at(NOW))));
        assert_eq!(back.ambiguous_since, in_doubt().ambiguous_since);
    }

    #[test]
    fn a_listed_recipient_gets_no_attempt_and_a_doubtful_one_is_held() {
        for replay in [Replay::Never, Replay::Always] {
            let ended = listed(&first(), &policy(replay), at(NOW));
            let facts = (ended.event, ended.state, ended.reason, ended.attempts, ended.ambiguous_since);
            assert_eq!(facts, (EventKind::Settle, State::Suppressed, Some(Reason::OnOurList), 0, None));
            assert_eq!(ended.next_attempt_at, None);
            let ended = listed(&in_doubt(), &policy(replay), at(NOW));
            let facts = (ended.state, ended.reason, ended.attempts, ended.ambiguous_since);
            assert_eq!(facts, (State::Held, Some(Reason::OutOfTries), 1, Some(at(NOW - 100))));
        }
    }
}
