//! A run from its guards to its summary: earlier open runs first, then the one that was asked for.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::begun::{self, Begun};
use super::brake::{Brakes, Limits};
use super::destination::{Destination, Destinations, sleep};
use super::guards;
use super::pace;
use super::part::work_part;
use super::rounds::{Rounds, Worked};
use super::{
    Clock, Ending, LedgerLoss, Progress, Refusal, RunError, RunReport, RunRequest, RunSummary, WorkRequest, observe,
    restored,
};
use crate::config::Config;
use crate::digest::Bundle;
use crate::identity::ContentVersion;
use crate::identity::keyring::{Keyring, WeekKey};
use crate::ledger::{Ledger, Mode, PartGrant, Run};
use crate::rehearsal::{self, Step};
use crate::snapshot::{Manifest, Store};

/// Parts of a process that have rows under way at one destination: enough to overlap round trips, few enough to bound
/// memory.
pub(super) const PARTS_AT_ONCE: usize = 4;
/// Parts that are read, or wait for a place at a destination.
const BEGUN_AT_ONCE: usize = 2;
/// How often a waiting run looks whether something changed.
const POLL: Duration = Duration::from_secs(2);
/// The shortest default of `--wait`.
const LEAST_WAIT: SignedDuration = SignedDuration::from_mins(15);

/// Everything that a run works with.
#[derive(Clone)]
pub struct Setup {
    /// The configuration.
    pub config: Arc<Config>,
    /// The keyring.
    pub keyring: Arc<Keyring>,
    /// The ledger, migrated.
    pub ledger: Arc<dyn Ledger>,
    /// The snapshot store.
    pub store: Store,
    /// Cancelled to stop gracefully.
    pub stop: CancellationToken,
    /// Where progress is shown.
    pub progress: Arc<Progress>,
}

/// Runs as asked.
///
/// # Errors
/// When it is refused, or when ledger, store or a destination cannot be used. Whatever was settled stays settled.
pub async fn run(request: &RunRequest, setup: &Setup) -> Result<RunReport, RunError> {
    let began = Instant::now();
    let clock = Clock::read(setup.ledger.as_ref()).await?;
    if request.mode == Mode::Observe {
        return observe::run(request, setup, &clock, began).await;
    }
    let Some(source) = &request.snapshot else {
        return work(
            &WorkRequest { run: None, mode: request.mode, wait: request.wait, ledger_loss: request.ledger_loss },
            setup,
        )
        .await;
    };
    let admitted = guards::admit(request, source, setup, &clock).await?;
    restored::examine(request.ledger_loss, Some(&admitted.new), setup, clock.now()).await?;
    let invocation = Invocation::begin(setup, clock, began, request.wait, request.ledger_loss).await?;
    let mut rounds = Rounds::default();
    let joined = invocation.join(request, &admitted, &mut rounds).await?;
    invocation.finish_open(None, &mut rounds).await?;
    let opened = match joined {
        Some(opened) => Some(opened),
        None => invocation.open(request, &admitted, &mut rounds).await?,
    };
    let Some(opened) = opened else { return Ok(rounds.report(None)) };
    let run_id = opened.run.new.run_id.clone();
    let repeated = opened.run.new.repeated;
    if !rounds.worked_on(&run_id) {
        let ended = invocation.work(opened.run, opened.bundle).await?;
        rounds.record(ended);
        if rounds.waits_elsewhere(&run_id) {
            invocation.finish_open(None, &mut rounds).await?;
        }
    }
    invocation.recount(&mut rounds).await?;
    let mut report = rounds.report(Some(&run_id));
    if let Some(summary) = &mut report.main {
        summary.snapshot.repeated = repeated;
    }
    Ok(report)
}

/// Works on runs that are open, begun by whichever process; begins none.
///
/// # Errors
/// As [`run`].
pub async fn work(request: &WorkRequest, setup: &Setup) -> Result<RunReport, RunError> {
    let began = Instant::now();
    let clock = Clock::read(setup.ledger.as_ref()).await?;
    let only = request.run.as_deref();
    if request.mode == Mode::Observe {
        return Ok(RunReport { left_open: observe::open_runs(setup, only).await?, ..RunReport::default() });
    }
    restored::examine(request.ledger_loss, None, setup, clock.now()).await?;
    let invocation = Invocation::begin(setup, clock, began, request.wait, request.ledger_loss).await?;
    let mut rounds = Rounds::default();
    invocation.finish_open(only, &mut rounds).await?;
    if let Some(run_id) = only.filter(|run_id| !rounds.knows(run_id)) {
        invocation.sum_up(run_id, &mut rounds).await?;
    }
    invocation.recount(&mut rounds).await?;
    Ok(rounds.report(None))
}

/// One process's share of the work, over all the runs that it finishes.
pub(super) struct Invocation<'a> {
    pub(super) setup: &'a Setup,
    pub(super) clock: Clock,
    since: Timestamp,
    began: Instant,
    destinations: Arc<Destinations>,
    wait: Option<SignedDuration>,
    ledger_loss: LedgerLoss,
}

impl<'a> Invocation<'a> {
    async fn begin(
        setup: &'a Setup,
        clock: Clock,
        began: Instant,
        wait: Option<SignedDuration>,
        ledger_loss: LedgerLoss,
    ) -> Result<Self, RunError> {
        let destinations = Arc::new(Destinations::open(&setup.config, setup.ledger.as_ref()).await?);
        Ok(Self { setup, since: clock.now(), clock, began, destinations, wait, ledger_loss })
    }

    /// Sums up a run as the ledger has it, without working on it.
    async fn sum_up(&self, run_id: &str, rounds: &mut Rounds) -> Result<(), RunError> {
        let Some(run) = self.setup.ledger.run(run_id).await? else { return Ok(()) };
        let counts = self.setup.ledger.run_counts(&run, self.since).await?;
        let ending = Ending { open: run.closed_at.is_none(), ..Ending::default() };
        let summary = RunSummary::of_run(&run, &counts, ending, self.began.elapsed());
        rounds.record(Worked { summary, waits_elsewhere: false });
        Ok(())
    }

    /// Counts once more what was on its way when a closed run was summed up: other processes have settled since what
    /// they held when a person closed it.
    async fn recount(&self, rounds: &mut Rounds) -> Result<(), RunError> {
        for summary in rounds.on_their_way() {
            let Some(run) = self.setup.ledger.run(&summary.run_id).await? else { continue };
            let counts = self.setup.ledger.run_counts(&run, self.since).await?;
            *summary = RunSummary::of_run(&run, &counts, summary.ending.clone(), self.began.elapsed());
        }
        Ok(())
    }

    /// Works until the run is closed or can only wait longer than allowed, and sums it up.
    pub(super) async fn work(&self, run: Run, bundle: Arc<Bundle>) -> Result<Worked, RunError> {
        let setup = self.setup;
        let key =
            setup.keyring.for_week(run.new.iso_week).map_err(|error| Refusal::Keyring(error.to_string()))?.clone();
        let digest = guards::digest_config(&setup.config, &run.new.digest_type)?;
        let limits = Limits { max_conflicts: digest.max_conflicts, max_rejected: digest.max_rejected };
        let wait = self.wait.unwrap_or_else(|| {
            let in_doubt = self.destinations.longest_lease().saturating_add(self.destinations.longest_settle());
            in_doubt.max(LEAST_WAIT)
        });
        let other_versions = self.other_versions(&run).await?;
        let snapshot_id = run.new.snapshot_id.clone();
        let manifest = restored::blocking(&setup.store, move |store| store.manifest(&snapshot_id)).await?;
        let begun = restored::watch(&run, self.ledger_loss, setup, self.since).await?;
        setup.progress.begin(&run.new.run_id, run.new.rows);
        let work = Arc::new(Work {
            bundle,
            key,
            keyring: Arc::clone(&setup.keyring),
            destinations: Arc::clone(&self.destinations),
            default_destination: digest.destination.clone(),
            ledger: Arc::clone(&setup.ledger),
            store: setup.store.clone(),
            manifest,
            begun,
            halt: setup.stop.child_token(),
            clock: self.clock,
            brakes: Brakes::new(limits, run.new.digest_type.as_str()),
            progress: Arc::clone(&setup.progress),
            other_versions,
            closed: AtomicBool::new(false),
            elsewhere: Mutex::default(),
            problem: Mutex::default(),
            progressed_at: Mutex::new(Instant::now()),
            wait: wait.unsigned_abs(),
            slots: Arc::new(Semaphore::new(BEGUN_AT_ONCE)),
            run,
        });
        begun::visit(&work).await?;
        let ending = drive(&work, wait).await?;
        if ending.brake != work.run.brake {
            work.ledger.set_brake(work.run.run_number, ending.brake.as_deref()).await?;
        }
        setup.progress.end();
        let counts = work.ledger.run_counts(&work.run, self.since).await?;
        // What a brake has stopped has no second turn.
        let waits_elsewhere = ending.open && ending.brake.is_none() && !work.elsewhere().is_empty();
        let summary = RunSummary::of_run(&work.run, &counts, ending, self.began.elapsed());
        Ok(Worked { summary, waits_elsewhere })
    }

    /// The versions that a run must ask before it sends to a customer. While it is open none is added to them.
    async fn other_versions(&self, run: &Run) -> Result<Vec<ContentVersion>, RunError> {
        if !run.new.only_unsent {
            return Ok(Vec::new());
        }
        let runs = self.setup.ledger.runs_of_week(run.new.iso_week, &run.new.digest_type).await?;
        let versions: BTreeSet<ContentVersion> = runs.into_iter().map(|other| other.new.content_version).collect();
        Ok(versions.into_iter().filter(|version| *version != run.new.content_version).collect())
    }
}

/// The first digits of a run's id, as logs show it.
pub(super) fn short(run_id: &str) -> &str {
    run_id.get(..12).unwrap_or(run_id)
}

/// Works on parts until nothing is left, something stops the run, or waiting would take too long. Whatever was begun
/// is brought to its end before this returns.
async fn drive(work: &Arc<Work>, wait: SignedDuration) -> Result<Ending, RunError> {
    let mut tasks = JoinSet::new();
    let outcome = take_parts(work, wait, &mut tasks).await;
    if !matches!(outcome, Ok(true)) {
        work.halt.cancel();
    }
    while tasks.join_next().await.is_some() {}
    match outcome? {
        true => Ok(Ending::default()),
        false => work.ending().await,
    }
}

/// Takes part after part, several at a time; answers whether the run could be closed.
async fn take_parts(
    work: &Arc<Work>,
    wait: SignedDuration,
    tasks: &mut JoinSet<Result<(), RunError>>,
) -> Result<bool, RunError> {
    loop {
        let taken = begin_parts(work, wait, tasks).await?;
        if tasks.is_empty() {
            let Taken::AllThatWant { next_due_at } = taken else { continue };
            if work.must_stop() {
                return Ok(false);
            }
            rehearsal::reach(Step::BeforeRunClose);
            if work.ledger.close_finished_run(&work.run).await? {
                rehearsal::reach(Step::AfterRunClose);
                begun::visit(work).await?;
                return Ok(true);
            }
            let elsewhere = work.elsewhere();
            let next_due_at = match elsewhere.is_empty() {
                true => next_due_at,
                false => work.ledger.next_due_at(work.run.run_number, &elsewhere).await?,
            };
            // Rows whose receipts belong to other runs move when those are worked on, which is this process's next
            // business: two runs that have receipts of each other's rows would wait for each other here.
            let only_elsewhere = next_due_at.is_none() && !elsewhere.is_empty();
            if only_elsewhere || !idle(work, next_due_at, wait).await {
                return Ok(false);
            }
            continue;
        }
        tokio::select! {
            Some(ended) = tasks.join_next() => ended.map_err(|_| RunError::Internal)??,
            // A part has found its places: the next one may be begun.
            _ = work.slots.acquire(), if taken == Taken::AsManyAsMay && !work.must_stop() => {}
            // Another part may have come due meanwhile.
            _ = sleep(POLL, &work.halt), if taken != Taken::AsManyAsMay && !work.must_stop() => {}
        }
    }
}

/// Which parts were begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// As many as may be at the same time.
    AsManyAsMay,
    /// All that want work now.
    AllThatWant {
        /// When the next one does.
        next_due_at: Option<Timestamp>,
    },
}

/// Begins what may be begun.
async fn begin_parts(
    work: &Arc<Work>,
    wait: SignedDuration,
    tasks: &mut JoinSet<Result<(), RunError>>,
) -> Result<Taken, RunError> {
    let lease = work.destinations.longest_lease();
    // Parts that only come and go, as under a provider that throttles for ever, are waiting too. Whoever works
    // settles something within a lease.
    let patience = wait.max(lease).unsigned_abs();
    while !work.must_stop() && work.idle_for() <= patience {
        let Ok(slot) = Arc::clone(&work.slots).try_acquire_owned() else { return Ok(Taken::AsManyAsMay) };
        let worker = worker_number()?;
        match work.ledger.take_part(work.run.run_number, worker, lease).await? {
            PartGrant::Taken { part } => {
                let work = Arc::clone(work);
                tasks.spawn(async move { work_part(&work, part, worker, slot).await });
            }
            PartGrant::None { next_due_at } => return Ok(Taken::AllThatWant { next_due_at }),
        }
    }
    Ok(Taken::AllThatWant { next_due_at: None })
}

/// Waits for what is due next; `false` where that would take too long or the run was stopped.
async fn idle(work: &Work, next_due_at: Option<Timestamp>, wait: SignedDuration) -> bool {
    let until_due = next_due_at
        .map_or(Duration::ZERO, |at| at.duration_since(work.clock.now()).max(SignedDuration::ZERO).unsigned_abs());
    if work.idle_for().saturating_add(until_due) > wait.unsigned_abs() {
        return false;
    }
    work.progress.waiting(until_due);
    // Also with nothing due: another worker's part may end, or come free, before its lease says so.
    sleep(until_due.clamp(Duration::from_millis(50), POLL), &work.halt).await
}

/// A number that nobody else has: claims whose commit was not acknowledged are recognised by it.
fn worker_number() -> Result<i64, RunError> {
    getrandom::u64().map(u64::cast_signed).map_err(|_| RunError::NoRandomness)
}

/// A run while this process works on it.
pub(super) struct Work {
    /// The run as the ledger has it.
    pub run: Run,
    /// What renders its rows.
    pub bundle: Arc<Bundle>,
    /// The week's key.
    pub key: WeekKey,
    /// For what does not change with the week.
    pub keyring: Arc<Keyring>,
    /// Where messages go.
    pub destinations: Arc<Destinations>,
    /// The destination of rows that name none.
    pub default_destination: String,
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Where the rows are.
    pub store: Store,
    /// What the snapshot consists of.
    pub manifest: Manifest,
    /// Which parts were begun.
    pub begun: Begun,
    /// Cancelled when nothing new may be started any more.
    pub halt: CancellationToken,
    /// The ledger's clock.
    pub clock: Clock,
    /// What stops the run.
    pub brakes: Brakes,
    /// Where progress is shown.
    pub progress: Arc<Progress>,
    /// The versions to ask before anything is sent; empty unless the run is for the unsent only.
    pub other_versions: Vec<ContentVersion>,
    closed: AtomicBool,
    /// Parts that have nothing left but rows whose receipts move in other runs.
    elsewhere: Mutex<BTreeSet<u32>>,
    problem: Mutex<Option<RunError>>,
    progressed_at: Mutex<Instant>,
    /// For how long nothing may be settled before the run is given up for now.
    wait: Duration,
    /// Parts that may be read, or wait for a place at a destination, at the same time.
    pub slots: Arc<Semaphore>,
}

impl Work {
    /// The run's id as logs show it.
    pub(super) fn run_id(&self) -> &str {
        short(&self.run.new.run_id)
    }

    /// An even number in `0.0..1.0`; where the operating system has no randomness, zero, which only makes waits shorter.
    pub(super) fn random(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are what a float holds exactly")]
        let fraction = (getrandom::u64().unwrap_or_default() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }

    /// The destination of a row.
    ///
    /// # Errors
    /// A name that is not configured (any more).
    pub(super) fn route(&self, name: Option<&str>) -> Result<&Arc<Destination>, RunError> {
        let name = name.unwrap_or(&self.default_destination);
        let unknown = || {
            Refusal::Configuration(format!(
                "setting `destination.{name}` is missing: rows of run {} go there",
                self.run_id()
            ))
        };
        Ok(self.destinations.get(name).ok_or_else(unknown)?)
    }

    /// Whether nothing new may be claimed: a stop, a brake, or a closed run.
    pub(super) fn must_stop(&self) -> bool {
        if self.brakes.on().is_some() {
            self.halt.cancel();
        }
        self.halt.is_cancelled()
    }

    /// The run was closed while we worked on it.
    pub(super) fn run_was_closed(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.halt.cancel();
    }

    /// Something that concerns every row: stop. What comes first is told.
    pub(super) fn fail(&self, error: RunError) {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.halt.cancel();
    }

    /// Remembers whether a part waits for other runs and for nothing else.
    pub(super) fn waits_elsewhere(&self, part: u32, waits: bool) {
        let mut elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        if waits {
            elsewhere.insert(part);
        } else {
            elsewhere.remove(&part);
        }
    }

    fn elsewhere(&self) -> Vec<u32> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Something was settled: the run is not waiting.
    pub(super) fn progressed(&self) {
        *self.progressed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// For how long nothing was settled.
    fn idle_for(&self) -> Duration {
        self.progressed_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Whether so long a wait is within what the run may wait.
    pub(super) fn may_wait(&self, wait: Duration) -> bool {
        self.idle_for().saturating_add(wait) <= self.wait
    }

    /// How the work ended where the run could not be closed.
    async fn ending(&self) -> Result<Ending, RunError> {
        if let Some(error) = self.problem.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let waits_for = self.waits_for().await?;
        for wait in &waits_for {
            tracing::warn!(run = self.run_id(), "work is left: {wait}");
        }
        Ok(Ending {
            failed_otherwise: 0,
            brake: self.brakes.on().map(|brake| brake.0),
            open: !self.closed.load(Ordering::Relaxed),
            next_due_at: self.ledger.next_due_at(self.run.run_number, &self.elsewhere()).await?,
            waits_for,
        })
    }

    /// The destinations that keep our rows waiting now.
    async fn waits_for(&self) -> Result<Vec<String>, RunError> {
        let mut waits = Vec::new();
        for destination in self.destinations.all().filter(|destination| destination.pace.was_met()) {
            let pace = self.ledger.pace(&destination.config.name).await?;
            waits.extend(pace::in_words(&destination.config.name, &pace));
        }
        Ok(waits)
    }
}
