//! The ledger's row of one receipt and the guards of its statements, as `src/ledger/postgres/{claims,settles}.rs`
//! and `src/ledger/slow_path.rs` have them. What a settle says is decided by `counterfoil::receipt`, not here.

use counterfoil::identity::Fingerprint;
use counterfoil::ledger::Purpose;
use counterfoil::receipt::{Attempt, EventKind, Looks, Reason, Settlement, Standing, State};

use super::world::{Guard, Tick, instant, tick};

/// The content that the receipt is for.
pub(super) fn our_content() -> Fingerprint {
    Fingerprint::from_bytes([1; 32])
}

/// What somebody else presents under the same key.
pub(super) fn other_content() -> Fingerprint {
    Fingerprint::from_bytes([2; 32])
}

/// A claim's lease, as the database's clock has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RowLease {
    pub(super) granted_at: Tick,
    pub(super) live: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) state: State,
    pub(super) attempts: u32,
    pub(super) grant_number: u8,
    pub(super) lease: Option<RowLease>,
    pub(super) first_attempt_at: Option<Tick>,
    pub(super) next_attempt_at: Option<Tick>,
    pub(super) ambiguous_since: Option<Tick>,
    pub(super) in_conflict: bool,
    pub(super) reference: Option<u8>,
    pub(super) late_reference: Option<u8>,
    /// What the events say about looks so far: misses, and failures in a row.
    looks: (u32, u32),
}

/// What a grant tells its worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) grant_number: u8,
    attempts: u32,
    pub(super) first_attempt_at: Option<Tick>,
    ambiguous_since: Option<Tick>,
}

/// The end of a claim, as it is sent to the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) grant_number: u8,
    pub(super) event: EventKind,
    state: State,
    reason: Option<Reason>,
    attempts: u32,
    first_attempt_at: Option<Tick>,
    next_attempt_at: Option<Tick>,
    ambiguous_since: Option<Tick>,
    reference: Option<u8>,
}

impl Grant {
    /// The facts of an attempt that begins at `began_at`.
    pub(super) fn attempt(&self, began_at: Tick) -> Attempt {
        Attempt {
            attempts: self.attempts,
            began_at: instant(began_at),
            first_attempt_at: instant(self.first_attempt_at.unwrap_or(began_at)),
            ambiguous_since: self.ambiguous_since.map(instant),
        }
    }

    /// The same grant without what the ledger knew about earlier attempts.
    pub(super) fn forgetting_earlier_attempts(self) -> Self {
        Self { first_attempt_at: None, ambiguous_since: None, ..self }
    }

    /// What is recorded of an attempt that began at `began_at`: the first one that was spent is remembered.
    pub(super) fn end(&self, settlement: Settlement, began_at: Tick) -> End {
        let spent = (settlement.attempts > self.attempts).then_some(began_at);
        End {
            grant_number: self.grant_number,
            event: settlement.event,
            state: settlement.state,
            // Only what a look has said counts later.
            reason: settlement.reason.filter(|_| settlement.event == EventKind::Lookup),
            attempts: settlement.attempts,
            first_attempt_at: self.first_attempt_at.or(spent),
            next_attempt_at: settlement.next_attempt_at.map(tick),
            ambiguous_since: settlement.ambiguous_since.map(tick),
            reference: settlement.provider_reference.map(|reference| reference.parse().unwrap()),
        }
    }
}

impl End {
    /// What a settle under an older grant can still change: nothing but the events, unless it proves acceptance.
    pub(super) fn forget_what_comes_too_late(&mut self) {
        if self.state != State::Sent {
            *self = Self {
                event: EventKind::Settle,
                reason: None,
                attempts: 0,
                first_attempt_at: None,
                next_attempt_at: None,
                ambiguous_since: None,
                ..self.clone()
            };
        }
    }
}

impl Row {
    /// What is due is due, since whenever; and only where a window ends does it matter when the first attempt was.
    pub(super) fn forget_the_past(&mut self, now: Tick, window_ends: bool) {
        self.next_attempt_at = self.next_attempt_at.map(|at| if at <= now { 0 } else { at });
        if !window_ends {
            self.first_attempt_at = self.first_attempt_at.map(|_| 0);
        }
    }

    /// What `receipt::verdict` needs.
    pub(super) fn standing(&self, now: Tick) -> Standing {
        Standing {
            fingerprint: our_content(),
            state: self.state,
            lease_ends_at: self.lease.map(|lease| instant(if lease.live { now + 1 } else { now })),
            next_attempt_at: self.next_attempt_at.map(instant),
            ambiguous_since: self.ambiguous_since.map(instant),
        }
    }

    /// The verb `looks`: what the looks since the newest attempt have said.
    pub(super) fn looks(&self) -> Looks {
        Looks { misses: self.looks.0, failures: self.looks.1 }
    }

    fn looks_after(&self, kind: EventKind, reason: Option<Reason>) -> (u32, u32) {
        let looks = self.looks().after(kind, reason);
        (looks.misses, looks.failures)
    }

    /// The grant that the row is under.
    pub(super) fn grant(&self) -> Grant {
        Grant {
            grant_number: self.grant_number,
            attempts: self.attempts,
            first_attempt_at: self.first_attempt_at,
            ambiguous_since: self.ambiguous_since,
        }
    }

    /// The statement CLAIM: inserts what is new, takes what may be tried again, and nothing else.
    pub(super) fn claimed(row: Option<&Self>, purpose: Purpose, now: Tick, broken: &[Guard]) -> Option<Self> {
        let lease = Some(RowLease { granted_at: now, live: true });
        let Some(found) = row else {
            return (purpose == Purpose::Send).then_some(Self {
                state: State::Claimed,
                attempts: 0,
                grant_number: 1,
                lease,
                first_attempt_at: None,
                next_attempt_at: None,
                ambiguous_since: None,
                in_conflict: false,
                reference: None,
                late_reference: None,
                looks: (0, 0),
            });
        };
        let due = found.state == State::Retryable && found.next_attempt_at.is_some_and(|at| at <= now);
        let for_this = (found.ambiguous_since.is_none()) == (purpose == Purpose::Send)
            || broken.contains(&Guard::DoubtIsNotGrantedAsNew);
        let taken = broken.contains(&Guard::OnlyWhatIsDueIsGranted) && found.state == State::Claimed;
        (taken || (due && for_this)).then(|| Self {
            state: State::Claimed,
            grant_number: found.grant_number + 1,
            lease,
            next_attempt_at: None,
            ..found.clone()
        })
    }

    /// The statement SETTLE and, where its guard refuses, the path of what comes too late.
    pub(super) fn settled(&self, end: &End, broken: &[Guard]) -> Self {
        let current = self.grant_number == end.grant_number && self.state == State::Claimed;
        let over = end.event != EventKind::LeaseEnd || self.lease.is_some_and(|lease| !lease.live);
        if (current && over) || broken.contains(&Guard::SettlesAreFenced) {
            self.ended(end)
        } else if end.state == State::Sent {
            self.accepted_late(end)
        } else {
            Self { looks: self.looks_after(EventKind::LateSettle, end.reason), ..self.clone() }
        }
    }

    fn ended(&self, end: &End) -> Self {
        let sent = end.state == State::Sent || self.late_reference.is_some();
        let conflict = !sent && self.in_conflict && end.ambiguous_since.is_none();
        Self {
            state: match (sent, conflict) {
                (true, _) => State::Sent,
                (_, true) => State::Quarantined,
                _ => end.state,
            },
            attempts: self.attempts.max(end.attempts),
            lease: None,
            first_attempt_at: self.first_attempt_at.or(end.first_attempt_at),
            next_attempt_at: end.next_attempt_at.filter(|_| !sent && !conflict),
            ambiguous_since: end.ambiguous_since.filter(|_| !sent),
            reference: end.reference.or(self.late_reference).or(self.reference),
            looks: self.looks_after(end.event, end.reason),
            ..self.clone()
        }
    }

    /// Proof of acceptance makes any state sent; a live newer claim is told when it ends.
    fn accepted_late(&self, end: &End) -> Self {
        match self.state {
            State::Sent => self.clone(),
            State::Claimed => Self { late_reference: self.late_reference.or(end.reference), ..self.clone() },
            _ => Self {
                state: State::Sent,
                attempts: self.attempts.max(end.attempts),
                first_attempt_at: self.first_attempt_at.or(end.first_attempt_at),
                next_attempt_at: None,
                ambiguous_since: None,
                reference: end.reference,
                ..self.clone()
            },
        }
    }

    /// Another content was presented: decided at once, or when the claim or the doubt ends.
    pub(super) fn conflicting(&self) -> Self {
        let waits = matches!(self.state, State::Sent | State::Claimed) || self.ambiguous_since.is_some();
        let noted = Self { in_conflict: true, ..self.clone() };
        if waits { noted } else { Self { state: State::Quarantined, next_attempt_at: None, ..noted } }
    }
}
