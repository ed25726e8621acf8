//! What an outcome does to the receipt that it belongs to. The one place where that is decided.

use jiff::{SignedDuration, Timestamp};

use super::backoff::Backoff;
use super::{EventKind, Outcome, Reason, RetryAfter, State};

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
    let spent = attempt.attempts.saturating_add(1);
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
            count.again(Reason::Deferred, now + policy.backoff.wait(spent, random)).coded(code)
        }
        Outcome::Unavailable { code } => {
            count.again(Reason::Unavailable, now + policy.backoff.wait(spent, random)).coded(code)
        }
        Outcome::Ambiguous { code } => count.in_doubt(Reason::Ambiguous, random).coded(code),
        Outcome::KeyInUse { code } => count.in_doubt(Reason::KeyInUse, random).coded(code),
        Outcome::OtherPayload { code } => count.held(Reason::OtherPayload).coded(code),
        Outcome::Misconfigured { .. } | Outcome::NotStarted => {
            Settlement { event: EventKind::GiveBack, ..keep.again_at(Reason::GivenBack, now) }
        }
    }
}

/// Decides what the end of a lease without an outcome does: the attempt may have been made.
pub fn lease_end(attempt: &Attempt, policy: &Policy, now: Timestamp, random: f64) -> Settlement {
    let draft = Draft { attempt, policy, now, attempts: attempt.attempts.saturating_add(1) };
    Settlement { event: EventKind::LeaseEnd, ..draft.in_doubt(Reason::LeaseEnded, random) }
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
        Settlement {
            event: EventKind::Settle,
            state,
            reason,
            next_attempt_at: None,
            ambiguous_since: self.attempt.ambiguous_since,
            attempts: self.attempts,
            provider_reference: None,
            provider_code: None,
            reconciled: false,
        }
    }

    fn held(&self, reason: Reason) -> Settlement {
        Settlement {
            ambiguous_since: Some(self.attempt.ambiguous_since.unwrap_or(self.attempt.began_at)),
            ..self.to(State::Held, Some(reason))
        }
    }

    /// An end that is only an end where nothing earlier is in doubt.
    fn ended(&self, state: State, reason: Reason, in_doubt: Reason) -> Settlement {
        if self.attempt.ambiguous_since.is_some() { self.held(in_doubt) } else { self.to(state, Some(reason)) }
    }

    fn again_at(&self, reason: Reason, at: Timestamp) -> Settlement {
        Settlement { next_attempt_at: Some(at), ..self.to(State::Retryable, Some(reason)) }
    }

    /// Another attempt at `at`, within the bounds.
    fn again(&self, reason: Reason, at: Timestamp) -> Settlement {
        if self.attempts >= self.policy.max_attempts {
            return self.ended(State::Failed, Reason::AttemptsExhausted, Reason::OutOfTries);
        }
        if at > self.policy.deadline {
            return self.ended(State::Failed, Reason::DeadlinePassed, Reason::OutOfTries);
        }
        match self.attempt.ambiguous_since {
            Some(_) if !self.replay_allowed(at) => self.held(Reason::ReplayWindowOver),
            _ => self.again_at(reason, at),
        }
    }

    /// An attempt that may have been accepted.
    fn in_doubt(&self, reason: Reason, random: f64) -> Settlement {
        let at = self.now + self.policy.backoff.wait(self.attempts, random);
        let since = self.attempt.ambiguous_since.unwrap_or(self.attempt.began_at);
        match (self.policy.capabilities.replay, self.policy.on_ambiguous) {
            (Replay::Never, OnAmbiguous::Resend) => self.again(reason, at),
            (Replay::Never, OnAmbiguous::Hold) => self.held(Reason::Undecidable),
            _ if self.attempts >= self.policy.max_attempts || at > self.policy.deadline => {
                self.held(Reason::OutOfTries)
            }
            _ if !self.replay_allowed(at) => self.held(Reason::ReplayWindowOver),
            _ => Settlement { ambiguous_since: Some(since), ..self.again_at(reason, at) },
        }
    }

    fn replay_allowed(&self, at: Timestamp) -> bool {
        match self.policy.capabilities.replay {
            Replay::Never => false,
            Replay::Always => true,
            Replay::Within(window) => at.duration_since(self.attempt.first_attempt_at) < window,
        }
    }
}

impl Settlement {
    fn coded(self, code: &str) -> Self {
        Self { provider_code: Some(code.to_owned()), ..self }
    }
}
