//! When a destination may be used: its pauses and its breaker, which all workers share through the ledger, its rate,
//! and how much is asked of it at once. What opens and closes a breaker is decided in [`crate::receipt::breaker`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::destination::{Destination, sleep};
use super::{Clock, RunError};
use crate::ledger::{Ledger, OpenBreaker, Pace, Rate};
use crate::receipt::Outcome;
use crate::receipt::breaker::{self, RecentAnswers, Trip};

/// How long a reading of what keeps us from a destination is good for: so late do we learn what another process met.
const READING: Duration = Duration::from_millis(500);

/// Bounds of how soon a part comes back whose rows found no place at a busy destination.
const LEAST_AWAY: SignedDuration = SignedDuration::from_secs(1);
const MOST_AWAY: SignedDuration = SignedDuration::from_mins(2);
/// The same where nothing tells how busy it is.
const AWAY: SignedDuration = SignedDuration::from_secs(15);

/// Whether rows may be claimed for a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The first of the sends may start now.
    Go,
    /// One may, as a probe of a destination whose breaker is open.
    Probe(OpenBreaker),
    /// The destination is paused until then.
    Paused(Timestamp),
    /// Its breaker is open, and no probe is due before then.
    Open(Timestamp),
    /// The run was stopped.
    Stopped,
}

/// What this process knows of a destination's pace.
pub(super) struct KnownPace {
    known: Mutex<Known>,
    first_reading: OnceCell<()>,
    /// Greatest number of rows claimed at once.
    batch: usize,
    /// So many rows are claimed at once after trouble, to begin with.
    first_batch: usize,
    /// Rows of ours have been due here in this invocation.
    met: AtomicBool,
}

struct Known {
    read_at: Option<Instant>,
    /// A pause that was read or set holds until its end: none is ever shortened.
    paused_until: Option<Timestamp>,
    breaker: Option<OpenBreaker>,
    /// Counts what we changed ourselves, which a reading that began before does not undo.
    changes: u64,
    recent: RecentAnswers,
    /// Rows that may be claimed at once now.
    reach: usize,
    /// Until when its rate is booked by parts that were sent away.
    booked_until: Timestamp,
}

impl KnownPace {
    /// Nothing known yet. At a rate, one second's worth is claimed at once, so that little is reserved ahead.
    pub(super) fn of(concurrency: usize, rate: Option<Rate>, most: usize) -> Self {
        let second = rate.map_or(usize::MAX, |rate| usize::try_from(rate.burst).unwrap_or(usize::MAX));
        let batch = most.min(second).max(1);
        Self {
            known: Mutex::new(Known {
                read_at: None,
                paused_until: None,
                breaker: None,
                changes: 0,
                recent: RecentAnswers::default(),
                reach: batch,
                booked_until: Timestamp::MIN,
            }),
            first_reading: OnceCell::new(),
            batch,
            first_batch: concurrency.clamp(1, batch),
            met: AtomicBool::new(false),
        }
    }

    /// How many rows may be claimed at once now.
    pub(super) fn batch(&self) -> usize {
        self.lock().reach
    }

    /// A batch went without trouble: the next one may be larger.
    pub(super) fn went_well(&self) {
        let mut known = self.lock();
        known.reach = known.reach.saturating_mul(2).min(self.batch);
    }

    /// Whether another send may begin now; `probe` where it is meant to find out whether the destination works.
    pub(super) fn may_begin(&self, now: Timestamp, probe: bool) -> bool {
        let known = self.lock();
        !known.is_paused(now) && (probe || known.breaker.is_none())
    }

    /// Whether nothing goes there but probes.
    pub(super) fn is_left_alone(&self) -> bool {
        self.lock().breaker.is_some()
    }

    /// Whether rows would only wait there now.
    pub(super) fn is_blocked(&self, now: Timestamp) -> bool {
        let known = self.lock();
        known.is_paused(now) || known.breaker.is_some()
    }

    /// Rows are due here.
    pub(super) fn meet(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Whether rows of ours have been due here.
    pub(super) fn was_met(&self) -> bool {
        self.met.load(Ordering::Relaxed)
    }

    /// When a part whose rows found no place here should come back. At a rate it is known when those before it will be
    /// done; half of that is waited for, so that the destination never runs dry.
    pub(super) fn come_back(&self, rows: usize, rate: Option<Rate>, now: Timestamp) -> Timestamp {
        let wait = match rate {
            None => AWAY,
            Some(rate) => {
                let mut known = self.lock();
                let rows = i32::try_from(rows).unwrap_or(i32::MAX);
                let booked = known.booked_until.max(now);
                known.booked_until = booked.saturating_add(rate.interval.saturating_mul(rows)).unwrap_or(booked);
                (known.booked_until.duration_since(now) / 2).clamp(LEAST_AWAY, MOST_AWAY)
            }
        };
        now.saturating_add(wait).unwrap_or(now)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }

    fn pace(&self) -> Pace {
        Pace { paused_until: self.paused_until, breaker: self.breaker }
    }

    fn change(&mut self, breaker: Option<OpenBreaker>) {
        self.changes += 1;
        self.breaker = breaker;
    }

    /// Takes a reading in; answers what breaker was known before.
    fn read(&mut self, read: Pace, changes_before: u64) -> Option<OpenBreaker> {
        let before = self.breaker;
        self.paused_until = self.paused_until.max(read.paused_until);
        if self.changes == changes_before {
            self.breaker = read.breaker;
        }
        before
    }
}

/// What keeps workers from a destination, for the person who reads the summary.
pub(super) fn in_words(destination: &str, pace: &Pace) -> Option<String> {
    if let Some(open) = pace.breaker {
        return Some(format!(
            "destination `{destination}` is left alone since {:.0} because too many attempts there failed or were left in doubt; one \
             probe goes out every {} s while a run works, and {} accepted in a row end that",
            open.opened_at,
            breaker::PROBE_INTERVAL.as_secs(),
            breaker::PROBES_TO_CLOSE
        ));
    }
    pace.paused_until.map(|until| {
        format!("destination `{destination}` is paused until {until:.0}, as its provider asked; nothing is sent before")
    })
}

impl Destination {
    /// Waits until `count` sends may start at the shared rate, of which none take nothing. Does not wait for a pause or an open breaker to end:
    /// whoever asks knows what else there is to do.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn admit(
        &self,
        count: usize,
        ledger: &dyn Ledger,
        clock: &Clock,
        stop: &CancellationToken,
    ) -> Result<Admission, RunError> {
        if let Some(kept_off) = self.keeps_off(ledger, clock).await? {
            return Ok(kept_off);
        }
        let mut wait = self.reserve(count, ledger).await?;
        loop {
            if !sleep(wait.min(READING), stop).await {
                return Ok(Admission::Stopped);
            }
            wait = wait.saturating_sub(READING);
            if wait.is_zero() {
                return Ok(Admission::Go);
            }
            // A pause that comes meanwhile voids what was reserved.
            if let Some(kept_off) = self.keeps_off(ledger, clock).await? {
                return Ok(kept_off);
            }
        }
    }

    /// Takes `count` sends of the shared rate; answers how long from now the first may start.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn reserve(&self, count: usize, ledger: &dyn Ledger) -> Result<Duration, RunError> {
        let Some(rate) = self.config.rate.filter(|_| count > 0) else { return Ok(Duration::ZERO) };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(ledger.reserve(&self.config.name, count, rate).await?.wait.unsigned_abs())
    }

    /// What keeps us off now, or lets one probe through.
    async fn keeps_off(&self, ledger: &dyn Ledger, clock: &Clock) -> Result<Option<Admission>, RunError> {
        let pace = self.read_pace(ledger).await?;
        let now = clock.now();
        if let Some(until) = pace.paused_until.filter(|until| *until > now) {
            return Ok(Some(Admission::Paused(until)));
        }
        let Some(open) = pace.breaker else { return Ok(None) };
        if open.probe_at > now {
            return Ok(Some(Admission::Open(open.probe_at)));
        }
        let ours = ledger.take_probe(&self.config.name).await?;
        let probe_at = now.saturating_add(breaker::PROBE_INTERVAL).unwrap_or(now);
        let mut known = self.pace.lock();
        if known.breaker.is_some_and(|known| known.opened_at == open.opened_at) {
            known.change(Some(OpenBreaker { probe_at, ..open }));
        }
        Ok(Some(if ours { Admission::Probe(open) } else { Admission::Open(probe_at) }))
    }

    /// What every worker has found out, as of half a second ago.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn read_pace(&self, ledger: &dyn Ledger) -> Result<Pace, RunError> {
        // Before there is a first reading, everyone waits for it: who went on without would not know of a pause.
        self.pace.first_reading.get_or_try_init(|| async { self.read_again(ledger).await.map(drop) }).await?;
        self.read_again(ledger).await
    }

    async fn read_again(&self, ledger: &dyn Ledger) -> Result<Pace, RunError> {
        let changes = {
            let mut known = self.pace.lock();
            if known.read_at.is_some_and(|at| at.elapsed() < READING) {
                return Ok(known.pace());
            }
            // Set before the answer is there, so that of many who ask at once one goes.
            known.read_at = Some(Instant::now());
            known.changes
        };
        let read = ledger.pace(&self.config.name).await?;
        let (before, after) = {
            let mut known = self.pace.lock();
            let before = known.read(read, changes);
            if before.is_none() && known.breaker.is_some() {
                known.reach = self.pace.first_batch;
                known.recent = RecentAnswers::default();
            }
            (before, known.pace())
        };
        let destination = &self.config.name;
        match (before, after.breaker) {
            (None, Some(open)) => {
                tracing::warn!(
                    destination,
                    "left alone since {:.0}: the breaker is open, only probes go out",
                    open.opened_at
                );
            }
            (Some(_), None) => tracing::info!(destination, "works again: the breaker is closed"),
            _ => {}
        }
        Ok(after)
    }

    /// Until when the destination is paused, which keeps back looks too.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn paused_until(&self, ledger: &dyn Ledger, clock: &Clock) -> Result<Option<Timestamp>, RunError> {
        let now = clock.now();
        Ok(self.read_pace(ledger).await?.paused_until.filter(|until| *until > now))
    }

    /// Pauses the destination for every worker.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn pause(&self, until: Timestamp, ledger: &dyn Ledger) -> Result<(), RunError> {
        {
            // At once for our own sends; the others read it.
            let mut known = self.pace.lock();
            known.paused_until = known.paused_until.max(Some(until));
            known.reach = self.pace.first_batch;
        }
        Ok(ledger.pause(&self.config.name, until).await?)
    }

    /// Takes in what an attempt was answered: enough failures open the breaker for every worker, enough accepted
    /// probes close it.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn answered(
        &self,
        outcome: &Outcome,
        probe: Option<OpenBreaker>,
        now: Timestamp,
        ledger: &dyn Ledger,
    ) -> Result<(), RunError> {
        match probe {
            Some(open) => match breaker::probe_answer(outcome) {
                Some(accepted) => self.probe_answered(accepted, open, ledger).await,
                None => Ok(()),
            },
            None => match self.note(outcome, now) {
                Some(trip) => self.leave_alone(trip, ledger).await,
                None => Ok(()),
            },
        }
    }

    fn note(&self, outcome: &Outcome, now: Timestamp) -> Option<Trip> {
        let mut known = self.pace.lock();
        if known.breaker.is_some() {
            return None;
        }
        let trip = known.recent.note(outcome)?;
        let probe_at = now.saturating_add(breaker::PROBE_INTERVAL).unwrap_or(now);
        known.change(Some(OpenBreaker { opened_at: now, probe_at }));
        known.reach = self.pace.first_batch;
        Some(trip)
    }

    async fn leave_alone(&self, trip: Trip, ledger: &dyn Ledger) -> Result<(), RunError> {
        let destination = &self.config.name;
        tracing::warn!(
            destination,
            "left alone: {trip}. The breaker is open: one probe goes out every {} s, {} accepted in a row close it",
            breaker::PROBE_INTERVAL.as_secs(),
            breaker::PROBES_TO_CLOSE
        );
        ledger.open_breaker(destination).await?;
        let mut known = self.pace.lock();
        // From here on the ledger's instants count, which probes are compared with.
        known.changes += 1;
        known.read_at = None;
        Ok(())
    }

    /// Takes in whether a probe of the breaker that opened then speaks for the destination.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn probe_answered(
        &self,
        accepted: bool,
        open: OpenBreaker,
        ledger: &dyn Ledger,
    ) -> Result<(), RunError> {
        let destination = &self.config.name;
        if ledger.probe_answered(destination, open.opened_at, accepted).await? {
            self.pace.lock().change(None);
            tracing::info!(destination, "works again: its probes were accepted, the breaker is closed");
        } else {
            tracing::debug!(destination, accepted, "a probe was answered");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn unavailable() -> Outcome {
        Outcome::Unavailable { code: "connect".to_owned() }
    }

    #[test]
    fn at_a_rate_one_seconds_worth_is_claimed_at_once() {
        let rate = Rate { interval: SignedDuration::from_millis(20), burst: 50 };
        assert_eq!(KnownPace::of(16, Some(rate), 250).batch(), 50);
        assert_eq!(KnownPace::of(16, None, 250).batch(), 250);
        let slow = Rate { interval: SignedDuration::from_mins(1), burst: 1 };
        assert_eq!(KnownPace::of(16, Some(slow), 250).batch(), 1);
    }

    #[test]
    fn after_trouble_little_is_claimed_until_it_goes_well() {
        let pace = KnownPace::of(16, None, 250);
        pace.lock().reach = pace.first_batch;
        let mut batches = Vec::new();
        for _ in 0..6 {
            batches.push(pace.batch());
            pace.went_well();
        }
        assert_eq!(batches, [16, 32, 64, 128, 250, 250]);
    }

    #[test]
    fn parts_that_are_sent_away_come_back_before_a_rate_has_run_dry() {
        let rate = Rate { interval: SignedDuration::from_millis(20), burst: 50 };
        let pace = KnownPace::of(16, Some(rate), 250);
        let back: Vec<i64> = (0..4).map(|_| pace.come_back(1_000, Some(rate), at(0)).as_second()).collect();
        assert_eq!(back, [10, 20, 30, 40], "half of 20 s a part");
        assert_eq!(pace.come_back(1_000_000, Some(rate), at(0)), at(120), "nobody stays away for long");
        assert_eq!(pace.come_back(1_000, None, at(0)), at(15));
    }

    #[test]
    fn a_reading_does_not_undo_what_was_found_out_while_it_was_under_way() {
        let pace = KnownPace::of(16, None, 250);
        let mut known = pace.lock();
        let before = known.changes;
        let open = OpenBreaker { opened_at: at(5), probe_at: at(15) };
        known.change(Some(open));
        known.read(Pace { paused_until: Some(at(9)), breaker: None }, before);
        assert_eq!(known.pace(), Pace { paused_until: Some(at(9)), breaker: Some(open) });
        let changes = known.changes;
        known.read(Pace::default(), changes);
        assert_eq!(known.pace(), Pace { paused_until: Some(at(9)), breaker: None }, "a pause is never shortened");
    }

    #[test]
    fn what_is_left_alone_lets_only_probes_begin_and_a_pause_not_even_those() {
        let pace = KnownPace::of(16, None, 250);
        assert!(pace.may_begin(at(0), false));
        pace.lock().change(Some(OpenBreaker { opened_at: at(0), probe_at: at(10) }));
        assert!(!pace.may_begin(at(10), false) && pace.may_begin(at(10), true));
        pace.lock().paused_until = Some(at(20));
        assert!(!pace.may_begin(at(19), true) && pace.may_begin(at(20), true));
        assert_eq!(pace.lock().recent.note(&unavailable()), None);
    }

    #[test]
    fn the_summary_says_what_rows_wait_for() {
        let open = OpenBreaker { opened_at: at(0), probe_at: at(10) };
        let words = in_words("retail", &Pace { paused_until: None, breaker: Some(open) }).unwrap();
        assert!(words.starts_with("destination `retail` is left alone since 1970-01-01T00:00:00Z"), "{words}");
        let words = in_words("retail", &Pace { paused_until: Some(at(60)), breaker: None }).unwrap();
        assert!(words.starts_with("destination `retail` is paused until 1970-01-01T00:01:00Z"), "{words}");
        assert_eq!(in_words("retail", &Pace::default()), None);
    }
}
