//! One receipt key, its two workers, the provider and time: every state and every step between states.

use std::collections::BTreeSet;

use counterfoil::ledger::Purpose;
use counterfoil::receipt::backoff::Backoff;
use counterfoil::receipt::{
    self, Attempt, EventKind, OnAmbiguous, Outcome, Policy, RetryAfter, Settlement, Sighting, State as ReceiptState,
    Verdict,
};
use jiff::{SignedDuration, Timestamp};
use stateright::{Model, Property};

use super::ledger::{End, Grant, Row, other_content, our_content};
use super::properties;
use super::provider::{Account, Kind};

/// A step of time; the one after the deadline stands for all that follow.
pub(super) type Tick = i8;
pub(super) const TICK_SECONDS: i64 = 60;
pub(super) const MAX_ATTEMPTS: u32 = 2;

pub(super) fn instant(tick: Tick) -> Timestamp {
    Timestamp::from_second(i64::from(tick) * TICK_SECONDS).unwrap()
}

pub(super) fn tick(instant: Timestamp) -> Tick {
    Tick::try_from(instant.as_second() / TICK_SECONDS).unwrap()
}

/// What keeps the promises; each can be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// A settle ends only the claim of its own grant number.
    SettlesAreFenced,
    /// A lease that ended without an outcome leaves a doubt.
    LeaseEndIsDoubt,
    /// Whatever a later attempt answers, an earlier doubt stays.
    DoubtOutlivesRefusals,
    /// What is in doubt is granted for reconciling only, and the worker is told.
    DoubtIsNotGrantedAsNew,
    /// Only what is due is granted, never what another worker holds.
    OnlyWhatIsDueIsGranted,
    /// Whether an attempt is still allowed is asked when it begins, not only when it is planned.
    AskedWhenItBegins,
    /// The provider does what it says about repeated keys.
    ProviderReplays,
    /// A look begins a settle time after the attempt has ended.
    LooksWaitToSettle,
    /// An absence counts as often as the provider demands.
    EveryMissIsDemanded,
    /// A look that cannot tell says nothing.
    UnknownIsNotAbsent,
    /// What is in doubt is looked up before it is sent again.
    LooksComeFirst,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) provider: Kind,
    pub(super) on_ambiguous: OnAmbiguous,
    /// Bytes may reach the provider longer after the last check than the margin of the replay window allows.
    pub(super) bytes_may_be_late: bool,
    /// Ends of a claim that spend no attempt. With the attempts they bound the grants: three.
    pub(super) free_ends: u8,
    /// Looks that cannot tell.
    pub(super) unknown_looks: u8,
    /// Somebody presents another content under the key, once.
    pub(super) other_content: bool,
    /// Which worker is which matters. Where it does not, half of the states are the other half mirrored.
    pub(super) workers_differ: bool,
    /// The guards that are taken out.
    pub(super) broken: Vec<Guard>,
}

/// Where a worker stands. A worker that takes no step any more is a zombie: it may wake up at any time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Worker {
    Idle,
    Looked(Purpose),
    Granted(Grant),
    /// The last check is done; nothing lies between it and the bytes.
    Checked(Grant, Tick),
    /// The end is known here and not yet in the ledger.
    Ending(End),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) now: Tick,
    pub(super) row: Option<Row>,
    pub(super) workers: [Worker; 2],
    pub(super) account: Account,
    /// A message that its worker gave up on and that may still arrive, with when its last check was.
    pub(super) under_way: Option<Tick>,
    free_ends: u8,
    unknown_looks: u8,
    other_content_seen: bool,
    /// The oldest doubt that the ledger recorded and no look has ended.
    pub(super) doubt: Option<Tick>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    TimePasses,
    LeaseEnds,
    LateArrival,
    OtherContent,
    By(usize, Step),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Look,
    Claim,
    GiveBack,
    Check,
    Write(Answer),
    /// Asks the provider about a doubtful attempt.
    Ask(Heard),
    /// The ledger records the end.
    Settle,
    /// The ledger records the end and its answer is lost: the worker settles again.
    SettleUnheard,
    Crash,
}

/// What became of the bytes and what the worker hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    AcceptedUnheard,
    NeverArrived,
    StillUnderWay,
    KeyInUse,
    Throttled,
    Unavailable,
    Rejected,
}

/// What a look hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// What the provider shows by now.
    WhatShows,
    /// Nothing, although it should show by now.
    AStaleMiss,
    /// Neither.
    Unknown,
}

const STEPS: [Step; 17] = [
    Step::Look,
    Step::Claim,
    Step::GiveBack,
    Step::Check,
    Step::Write(Answer::Accepted),
    Step::Write(Answer::AcceptedUnheard),
    Step::Write(Answer::NeverArrived),
    Step::Write(Answer::StillUnderWay),
    Step::Write(Answer::KeyInUse),
    Step::Write(Answer::Throttled),
    Step::Write(Answer::Unavailable),
    Step::Write(Answer::Rejected),
    Step::Ask(Heard::WhatShows),
    Step::Ask(Heard::AStaleMiss),
    Step::Ask(Heard::Unknown),
    Step::Settle,
    Step::SettleUnheard,
];

impl World {
    pub(super) fn new(provider: Kind, on_ambiguous: OnAmbiguous) -> Self {
        Self {
            provider,
            on_ambiguous,
            bytes_may_be_late: false,
            free_ends: 1,
            unknown_looks: 1,
            other_content: false,
            workers_differ: false,
            broken: Vec::new(),
        }
    }

    pub(super) fn without(self, guard: Guard) -> Self {
        Self { broken: vec![guard], ..self }
    }

    fn lacks(&self, guard: Guard) -> bool {
        self.broken.contains(&guard)
    }

    fn policy(&self) -> Policy {
        let mut capabilities = self.provider.capabilities();
        if let Some(lookup) = capabilities.lookup.as_mut() {
            if self.lacks(Guard::LooksWaitToSettle) {
                lookup.settle = SignedDuration::ZERO;
            }
            if self.lacks(Guard::EveryMissIsDemanded) {
                lookup.misses = 1;
            }
        }
        Policy {
            capabilities,
            on_ambiguous: self.on_ambiguous,
            max_attempts: MAX_ATTEMPTS,
            // No wait at all allows every wait: time may pass before the next look.
            backoff: Backoff { base: SignedDuration::ZERO, cap: SignedDuration::ZERO },
            deadline: instant(self.provider.deadline()),
        }
    }

    /// Whether bytes whose last check was at `checked_at` can still arrive.
    fn may_arrive(&self, checked_at: Tick, now: Tick) -> bool {
        !self.provider.arrival_matters() || self.bytes_may_be_late || now - checked_at <= self.provider.arrives_within()
    }

    /// Whether an attempt that begins now would still reach the provider inside the lease, which ends no sooner.
    fn lease_covers(&self, granted_at: Tick, now: Tick) -> bool {
        !self.provider.looks_up() || now == granted_at
    }

    /// Whether a grant for a doubtful attempt allows a look and nothing else.
    fn is_look(&self, attempt: &Attempt) -> bool {
        self.provider.looks_up() && attempt.ambiguous_since.is_some() && !self.lacks(Guard::LooksComeFirst)
    }

    fn look(&self, state: &State) -> Option<Worker> {
        let standing = state.row.as_ref().map(|row| row.standing(state.now));
        match receipt::verdict(standing.as_ref(), &our_content(), instant(state.now)) {
            Verdict::Claimable => Some(Worker::Looked(Purpose::Send)),
            Verdict::Ambiguous if self.lacks(Guard::DoubtIsNotGrantedAsNew) => Some(Worker::Looked(Purpose::Send)),
            Verdict::Ambiguous => Some(Worker::Looked(Purpose::Reconcile)),
            Verdict::LeaseEnded => state.row.as_ref().and_then(|row| self.lease_ended(row, state.now)),
            _ => None,
        }
    }

    fn lease_ended(&self, row: &Row, now: Tick) -> Option<Worker> {
        let (grant, began_at) = (row.grant(), row.lease?.granted_at);
        let mut end = receipt::lease_end(&grant.attempt(began_at), &self.policy(), instant(now), 0.0);
        if self.lacks(Guard::LeaseEndIsDoubt) {
            let outcome = Outcome::Unavailable { code: "lease".to_owned() };
            end = receipt::settlement(&grant.attempt(began_at), &outcome, &self.policy(), instant(now), 0.0);
            end.event = EventKind::LeaseEnd;
        }
        Some(Worker::Ending(grant.end(self.within_time(end), began_at)))
    }

    fn claim(&self, state: &mut State, purpose: Purpose) -> Worker {
        let Some(row) = Row::claimed(state.row.as_ref(), purpose, state.now, &self.broken) else {
            return Worker::Idle;
        };
        let mut grant = row.grant();
        if self.lacks(Guard::DoubtIsNotGrantedAsNew) {
            grant = grant.forgetting_earlier_attempts();
        }
        state.row = Some(row);
        Worker::Granted(grant)
    }

    /// The last act before the bytes.
    fn check(&self, state: &State, grant: &Grant) -> Option<Worker> {
        let attempt = grant.attempt(state.now);
        if self.is_look(&attempt) {
            return None;
        }
        let unasked = self.lacks(Guard::LooksComeFirst)
            || (self.lacks(Guard::AskedWhenItBegins) && state.now <= self.provider.deadline());
        if let Some(settlement) = receipt::barred(&attempt, &self.policy()).filter(|_| !unasked) {
            return Some(Worker::Ending(grant.end(settlement, state.now)));
        }
        let row = state.row.as_ref()?;
        let covered = |granted_at| self.lease_covers(granted_at, state.now);
        let live = row.grant_number == grant.grant_number
            && row.lease.is_some_and(|lease| lease.live && covered(lease.granted_at));
        live.then(|| Worker::Checked(grant.clone(), state.now))
    }

    fn write(&self, state: &mut State, grant: &Grant, checked_at: Tick, answer: Answer) -> Option<Worker> {
        let code = || "x".to_owned();
        let arrives = self.may_arrive(checked_at, state.now);
        let outcome = match answer {
            Answer::Accepted | Answer::AcceptedUnheard if arrives => {
                let reference = state.account.accept(self.provider, state.now, &self.broken);
                if answer == Answer::Accepted {
                    Outcome::Accepted { reference }
                } else {
                    Outcome::Ambiguous { code: code() }
                }
            }
            Answer::StillUnderWay if state.under_way.is_none() => {
                // When it was checked matters only where it matters when the bytes arrive.
                state.under_way = Some(if self.provider.arrival_matters() { checked_at } else { 0 });
                Outcome::Ambiguous { code: code() }
            }
            Answer::NeverArrived => Outcome::Ambiguous { code: code() },
            Answer::KeyInUse if state.account.remembers(self.provider, state.now) => Outcome::KeyInUse { code: code() },
            Answer::Throttled => {
                state.free_ends = state.free_ends.checked_sub(1)?;
                let until = RetryAfter::In(SignedDuration::from_secs(TICK_SECONDS));
                Outcome::Throttled { until, code: code() }
            }
            Answer::Unavailable => Outcome::Unavailable { code: code() },
            Answer::Rejected => Outcome::Rejected { code: code(), text: None },
            _ => return None,
        };
        Some(self.ending(grant, checked_at, &outcome, state.now))
    }

    /// A look under a live claim of what is in doubt.
    fn ask(&self, state: &mut State, grant: &Grant, heard: Heard) -> Option<Worker> {
        let attempt = grant.attempt(state.now);
        let row = state.row.as_ref()?;
        let live = row.grant_number == grant.grant_number && row.lease.is_some_and(|lease| lease.live);
        if !self.is_look(&attempt) || !live {
            return None;
        }
        let looks = row.looks();
        let sighting = match heard {
            Heard::WhatShows if state.account.shows(state.now) => Sighting::Found { reference: "1".to_owned() },
            Heard::WhatShows => Sighting::Absent,
            Heard::AStaleMiss if state.account.shows(state.now) => {
                state.account.misses_left = state.account.misses_left.checked_sub(1)?;
                Sighting::Absent
            }
            Heard::AStaleMiss => return None,
            Heard::Unknown => {
                state.unknown_looks = state.unknown_looks.checked_sub(1)?;
                if self.lacks(Guard::UnknownIsNotAbsent) {
                    Sighting::Absent
                } else {
                    Sighting::Unknown { code: "x".to_owned() }
                }
            }
        };
        let settlement = receipt::looked(&attempt, looks, &sighting, &self.policy(), instant(state.now), 0.0);
        Some(Worker::Ending(grant.end(self.within_time(settlement), state.now)))
    }

    /// At the end of time everything shows: nobody needs to wait for it.
    fn within_time(&self, settlement: Settlement) -> Settlement {
        let last = instant(self.provider.end_of_time());
        let next_attempt_at = settlement.next_attempt_at.map(|at| at.min(last));
        Settlement { next_attempt_at, ..settlement }
    }

    fn ending(&self, grant: &Grant, began_at: Tick, outcome: &Outcome, now: Tick) -> Worker {
        let attempt = grant.attempt(began_at);
        let mut settlement = receipt::settlement(&attempt, outcome, &self.policy(), instant(now), 0.0);
        if self.lacks(Guard::DoubtOutlivesRefusals) && matches!(outcome, Outcome::Throttled { .. }) {
            settlement = Settlement { ambiguous_since: None, ..settlement };
        }
        Worker::Ending(grant.end(self.within_time(settlement), began_at))
    }

    /// States that differ only in what can change nothing any more are one: looks and the ends of their leases would
    /// otherwise make more and more.
    fn forget_the_past(&self, state: &mut State) {
        let now = state.now;
        state.account.forget_the_past(now);
        state.under_way = state.under_way.filter(|at| self.may_arrive(*at, now));
        let Some(row) = state.row.as_mut() else { return };
        row.forget_the_past(now, self.provider == Kind::ReplaysForAWhile);
        for worker in &mut state.workers {
            if let Worker::Ending(end) = worker
                && end.grant_number < row.grant_number
                && !self.broken.contains(&Guard::SettlesAreFenced)
            {
                end.forget_what_comes_too_late();
            }
        }
        // Of grant numbers, only the order matters.
        let mut numbers: Vec<&mut u8> = vec![&mut row.grant_number];
        numbers.extend(state.workers.iter_mut().filter_map(Worker::grant_number));
        let known: BTreeSet<u8> = numbers.iter().map(|number| **number).collect();
        for number in numbers {
            *number = (1..).zip(&known).find(|(_, old)| **old == *number).map_or(0, |(rank, _)| rank);
        }
    }

    /// The state after a worker's step; `None` where the step is not possible.
    fn stepped(&self, last: &State, index: usize, step: Step) -> Option<State> {
        let mut state = last.clone();
        let worker = match (&last.workers[index], step) {
            (Worker::Idle, Step::Crash) => return None,
            (_, Step::Crash) => Worker::Idle,
            (Worker::Idle, Step::Look) => self.look(&state)?,
            (Worker::Looked(purpose), Step::Claim) => self.claim(&mut state, *purpose),
            (Worker::Granted(grant), Step::GiveBack) => {
                state.free_ends = state.free_ends.checked_sub(1)?;
                self.ending(grant, state.now, &Outcome::NotStarted, state.now)
            }
            (Worker::Granted(grant), Step::Check) => self.check(&state, grant)?,
            (Worker::Granted(grant), Step::Ask(heard)) => self.ask(&mut state, grant, heard)?,
            (Worker::Checked(grant, at), Step::Write(answer)) => self.write(&mut state, grant, *at, answer)?,
            (Worker::Ending(end), Step::Settle | Step::SettleUnheard) => {
                let in_doubt = |row: &Option<Row>| row.as_ref().is_some_and(|row| row.ambiguous_since.is_some());
                state.row = state.row.as_ref().map(|row| row.settled(end, &self.broken));
                if end.event == EventKind::Lookup && in_doubt(&last.row) && !in_doubt(&state.row) {
                    // Accepted, or certainly absent.
                    state.doubt = None;
                }
                if step == Step::Settle { Worker::Idle } else { last.workers[index].clone() }
            }
            _ => return None,
        };
        state.workers[index] = worker;
        Some(state)
    }
}

impl Worker {
    fn grant_number(&mut self) -> Option<&mut u8> {
        match self {
            Self::Granted(grant) | Self::Checked(grant, _) => Some(&mut grant.grant_number),
            Self::Ending(end) => Some(&mut end.grant_number),
            Self::Idle | Self::Looked(_) => None,
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            row: None,
            workers: [Worker::Idle, Worker::Idle],
            account: Account::of(self.provider),
            under_way: None,
            free_ends: self.free_ends,
            unknown_looks: if self.provider.looks_up() { self.unknown_looks } else { 0 },
            other_content_seen: !self.other_content,
            doubt: None,
        }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::TimePasses, Action::LeaseEnds, Action::LateArrival, Action::OtherContent]);
        for worker in 0..2 {
            actions.extend(STEPS.map(|step| Action::By(worker, step)));
            actions.push(Action::By(worker, Step::Crash));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = match action {
            Action::By(worker, step) => self.stepped(last, worker, step)?,
            _ => last.clone(),
        };
        match action {
            Action::By(..) => {}
            Action::TimePasses => state.now = Some(last.now + 1).filter(|now| *now <= self.provider.end_of_time())?,
            Action::LeaseEnds => {
                let now = last.now;
                let lease = state.row.as_mut()?.lease.as_mut().filter(|lease| lease.live)?;
                // Where it matters when bytes arrive, a lease is longer than they may take.
                let over = !self.provider.looks_up()
                    || now >= lease.granted_at + self.provider.arrives_within().max(1)
                    || now == self.provider.end_of_time();
                if !over {
                    return None;
                }
                lease.live = false;
            }
            Action::LateArrival => {
                let checked_at = state.under_way.take()?;
                if self.may_arrive(checked_at, state.now) {
                    state.account.accept(self.provider, state.now, &self.broken);
                }
            }
            Action::OtherContent => {
                let row = state.row.as_ref().filter(|_| !last.other_content_seen)?;
                let found = receipt::verdict(Some(&row.standing(state.now)), &other_content(), instant(state.now));
                state.other_content_seen = true;
                state.row = (found == Verdict::Conflict).then(|| row.conflicting());
            }
        }
        if self.provider == Kind::ReplaysAlways && state.account.remembers(self.provider, state.now) {
            // An arrival that changes nothing.
            state.under_way = None;
        }
        self.forget_the_past(&mut state);
        if !self.workers_differ {
            state.workers.sort();
        }
        let recorded = state.row.as_ref().and_then(|row| row.ambiguous_since);
        state.doubt = state.doubt.or(recorded);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl State {
    /// Nothing is left for the program to do: accepted, refused for good, or a person's to decide.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.row.as_ref().map(|row| row.state);
        state.is_some_and(|state| !matches!(state, ReceiptState::Claimed | ReceiptState::Retryable))
    }

    pub(super) fn is(&self, state: ReceiptState) -> bool {
        self.row.as_ref().is_some_and(|row| row.state == state)
    }
}
