//! A run from its guards to its summary: earlier open runs first, then the one that was asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::begun::{self, Begun};
use super::brake::{Brakes, Limits};
use super::destination::{Destination, Destinations, sleep};
use super::guards::{self, Refusal};
use super::part::work_part;
use super::{Clock, Ending, LedgerLoss, Progress, RunError, RunReport, RunRequest, RunSummary, observe, restored};
use crate::config::Config;
use crate::digest::Bundle;
use crate::identity::keyring::{Keyring, WeekKey};
use crate::ledger::{Ledger, Mode, PartGrant, Run};
use crate::rehearsal::{self, Step};
use crate::snapshot::{Manifest, Store};

/// Parts that one process works on at the same time: enough to overlap round trips, few enough to bound memory.
pub(super) const PARTS_AT_ONCE: usize = 4;
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
    let since = clock.now();
    if request.mode == Mode::Observe {
        return observe::run(request, setup, &clock, began).await;
    }
    let admitted = match &request.snapshot {
        Some(source) => Some(guards::admit(request, source, setup, &clock).await?),
        None => None,
    };
    restored::examine(request, admitted.as_ref().map(|admitted| &admitted.new), setup, since).await?;
    let invocation = Invocation {
        setup,
        clock,
        since,
        began,
        destinations: Arc::new(Destinations::open(&setup.config, setup.ledger.as_ref()).await?),
        wait: request.wait,
        ledger_loss: request.ledger_loss,
    };
    let mut report = RunReport::default();
    invocation.finish_earlier(&mut report).await?;
    if let Some(admitted) = admitted {
        if setup.stop.is_cancelled() {
            report.unfinished = true;
            return Ok(report);
        }
        let opened = guards::open(request, admitted, setup, &clock).await?;
        let earlier = report.earlier.iter().position(|summary| summary.run_id == opened.run.new.run_id);
        let mut summary = match earlier {
            Some(place) => report.earlier.remove(place),
            None => invocation.work(opened.run.clone(), Arc::clone(&opened.bundle)).await?,
        };
        summary.snapshot.repeated = opened.run.new.repeated;
        report.main = Some(summary);
    }
    Ok(report)
}

/// One process's share of the work, over all the runs that it finishes.
struct Invocation<'a> {
    setup: &'a Setup,
    clock: Clock,
    since: Timestamp,
    began: Instant,
    destinations: Arc<Destinations>,
    wait: Option<SignedDuration>,
    ledger_loss: LedgerLoss,
}

impl Invocation<'_> {
    /// Finishes every open run from its own snapshot. One that cannot be finished is named and left to a person.
    async fn finish_earlier(&self, report: &mut RunReport) -> Result<(), RunError> {
        for run in self.setup.ledger.open_runs().await? {
            if self.setup.stop.is_cancelled() {
                report.unfinished = true;
                break;
            }
            match self.finish(&run).await {
                Ok(summary) => report.earlier.push(summary),
                Err(error) if error.is_about_its_run_alone() => {
                    tracing::error!(run = short(&run.new.run_id), week = %run.new.iso_week, "an earlier run cannot be finished: {error}");
                    report.blocked.push((run.new.run_id.clone(), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn finish(&self, run: &Run) -> Result<RunSummary, RunError> {
        let bundle = guards::resume(run, self.setup).await?;
        tracing::info!(run = short(&run.new.run_id), week = %run.new.iso_week, "finishing an earlier run first");
        self.work(run.clone(), bundle).await
    }

    /// Works until the run is closed or can only wait longer than allowed, and sums it up.
    async fn work(&self, run: Run, bundle: Arc<Bundle>) -> Result<RunSummary, RunError> {
        let setup = self.setup;
        let key =
            setup.keyring.for_week(run.new.iso_week).map_err(|error| Refusal::Keyring(error.to_string()))?.clone();
        let digest = guards::digest_config(&setup.config, &run.new.digest_type)?;
        let limits = Limits { max_conflicts: digest.max_conflicts, max_rejected: digest.max_rejected };
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
            closed: AtomicBool::new(false),
            problem: Mutex::default(),
            progressed_at: Mutex::new(Instant::now()),
            run,
        });
        begun::visit(&work).await?;
        let wait = self.wait.unwrap_or_else(|| self.destinations.longest_lease().max(LEAST_WAIT));
        let ending = drive(&work, wait).await?;
        if ending.brake != work.run.brake {
            work.ledger.set_brake(work.run.run_number, ending.brake.as_deref()).await?;
        }
        setup.progress.end();
        let counts = work.ledger.run_counts(&work.run, self.since).await?;
        Ok(RunSummary::of_run(&work.run, &counts, ending, self.began.elapsed()))
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
        let next_due_at = begin_parts(work, wait, tasks).await?;
        if tasks.is_empty() {
            if work.must_stop() {
                return Ok(false);
            }
            rehearsal::reach(Step::BeforeRunClose);
            if work.ledger.close_finished_run(&work.run).await? {
                rehearsal::reach(Step::AfterRunClose);
                begun::visit(work).await?;
                return Ok(true);
            }
            if !idle(work, next_due_at, wait).await {
                return Ok(false);
            }
            continue;
        }
        tokio::select! {
            Some(ended) = tasks.join_next() => ended.map_err(|_| RunError::Internal)??,
            // Another part may have come due meanwhile.
            _ = sleep(POLL, &work.halt), if tasks.len() < PARTS_AT_ONCE && !work.must_stop() => {}
        }
    }
}

/// Begins what may be begun; answers when the next part wants work where none does now.
async fn begin_parts(
    work: &Arc<Work>,
    wait: SignedDuration,
    tasks: &mut JoinSet<Result<(), RunError>>,
) -> Result<Option<Timestamp>, RunError> {
    let lease = work.destinations.longest_lease();
    // Parts that only come and go, as under a provider that throttles for ever, are waiting too. Whoever works
    // settles something within a lease.
    let patience = wait.max(lease).unsigned_abs();
    while tasks.len() < PARTS_AT_ONCE && !work.must_stop() && work.idle_for() <= patience {
        let worker = worker_number()?;
        match work.ledger.take_part(work.run.run_number, worker, lease).await? {
            PartGrant::Taken { part } => {
                let work = Arc::clone(work);
                tasks.spawn(async move { work_part(&work, part, worker).await });
            }
            PartGrant::None { next_due_at } => return Ok(next_due_at),
        }
    }
    Ok(None)
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
    closed: AtomicBool,
    problem: Mutex<Option<RunError>>,
    progressed_at: Mutex<Instant>,
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

    /// Something was settled: the run is not waiting.
    pub(super) fn progressed(&self) {
        *self.progressed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// For how long nothing was settled.
    fn idle_for(&self) -> Duration {
        self.progressed_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// How the work ended where the run could not be closed.
    async fn ending(&self) -> Result<Ending, RunError> {
        if let Some(error) = self.problem.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        Ok(Ending {
            failed_otherwise: 0,
            brake: self.brakes.on().map(|brake| brake.0),
            open: !self.closed.load(Ordering::Relaxed),
            next_due_at: self.ledger.next_due_at(self.run.run_number).await?,
        })
    }
}
