//! A ledger that was restored from an older copy, or that failed over with a loss: what shows it, and which rows are in
//! doubt then. What is decided about a row in doubt is [`crate::receipt::ledger_restored()`]'s; entering it is
//! [`super::begun`]'s.
//!
//! For each part, and for each visit of a process to a run, the ledger remembers it first, then a marker is written
//! beside the snapshots, then claims begin. So a marker that the ledger does not know means that the ledger has lost what
//! it had committed; a part without a marker was never begun by anyone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::engine::short;
use super::{Refusal, RunError, Setup};
use crate::identity::{ContentVersion, DigestType, IsoWeek};
use crate::ledger::{Ledger, NewRun, ReceiptFilter, ReceiptRecord, Review, ReviewAnswer, Run, RunTrust};
use crate::receipt::{Decision, Reason, State};
use crate::snapshot::{Mark, MarkerPlace, Store, StoreError};

/// What the ledger's owner says about a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LedgerLoss {
    /// Nothing: what shows a loss is acted upon.
    #[default]
    Detect,
    /// It was restored, although nothing may show it.
    Distrust,
    /// What it does not know was not sent.
    Accept,
}

/// A week's digest: its runs as the ledger knows them, and the markers of its parts.
pub(super) struct Scope {
    markers: Vec<MarkerPlace>,
    runs: Vec<Run>,
}

impl Scope {
    /// Markers first: one that is written later than the ledger is read is no loss.
    pub(super) async fn read(
        ledger: &dyn Ledger,
        store: &Store,
        week: IsoWeek,
        digest_type: &DigestType,
    ) -> Result<Self, RunError> {
        let wanted = digest_type.clone();
        let markers = blocking(store, move |store| store.markers(week, &wanted)).await?;
        Ok(Self { markers, runs: ledger.runs_of_week(week, digest_type).await? })
    }

    fn marks_of<'a>(&'a self, run_id: &'a str) -> impl Iterator<Item = &'a MarkerPlace> {
        self.markers.iter().filter(move |marker| marker.run_id == run_id)
    }

    /// Visits to a run that were marked.
    fn visits(&self, run_id: &str) -> u32 {
        let number = |marker: &MarkerPlace| match marker.mark {
            Mark::Visit(number) => Some(number),
            Mark::Part(_) => None,
        };
        self.marks_of(run_id).filter_map(number).max().unwrap_or_default()
    }

    /// Parts of a run that were begun.
    pub(super) fn begun(&self, run_id: &str) -> BTreeSet<u32> {
        self.marks_of(run_id).filter_map(part_of).collect()
    }

    /// Markers of runs that the ledger does not know at all.
    fn lost(&self) -> impl Iterator<Item = &MarkerPlace> {
        self.markers.iter().filter(|marker| self.runs.iter().all(|run| run.new.run_id != marker.run_id))
    }

    fn lost_of(&self, version: &ContentVersion) -> Vec<MarkerPlace> {
        self.lost().filter(|marker| marker.content_version == *version).cloned().collect()
    }
}

fn part_of(marker: &MarkerPlace) -> Option<u32> {
    match marker.mark {
        Mark::Part(number) => Some(number),
        Mark::Visit(_) => None,
    }
}

/// Work that blocks, on the store.
pub(super) async fn blocking<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, RunError> {
    let store = store.clone();
    Ok(tokio::task::spawn_blocking(move || work(&store)).await.map_err(|_| RunError::Internal)??)
}

/// Whether the ledger has lost something of a run that it knows.
fn shows_loss(scope: &Scope, run: &Run, trust: &RunTrust) -> bool {
    let begun = scope.begun(&run.new.run_id);
    trust.answering.differs_from(&trust.known)
        || scope.visits(&run.new.run_id) > trust.visits
        || trust.parts.iter().any(|part| begun.contains(&part.part) && !part.marked)
}

/// Looks for what shows a loss, before anything is claimed, and acts on it in every open run: also in one that shows
/// nothing itself.
///
/// # Errors
/// [`Refusal::LostRun`], or when ledger or store fails.
pub(super) async fn examine(
    said: LedgerLoss,
    new: Option<&NewRun>,
    setup: &Setup,
    began: Timestamp,
) -> Result<(), RunError> {
    let ledger = setup.ledger.as_ref();
    if said == LedgerLoss::Accept {
        release(ledger).await?;
    }
    let open = ledger.open_runs().await?;
    let fresh = match new {
        Some(new) if ledger.run(&new.run_id).await?.is_none() => {
            let scope = Scope::read(ledger, &setup.store, new.iso_week, &new.digest_type).await?;
            if said != LedgerLoss::Accept && !new.correction {
                refuse_lost_version(new, &scope)?;
            }
            scope.lost().next().is_some()
        }
        _ => false,
    };
    match said {
        LedgerLoss::Accept => {
            for run in &open {
                let scope = Scope::read(ledger, &setup.store, run.new.iso_week, &run.new.digest_type).await?;
                accept(ledger, run, &scope).await?;
            }
            Ok(())
        }
        LedgerLoss::Distrust => doubt_all(setup, &open, began).await,
        LedgerLoss::Detect => doubt_open_runs(ledger, &setup.store, &open, fresh).await,
    }
}

/// A version whose run the ledger has lost may have reached everyone.
fn refuse_lost_version(new: &NewRun, scope: &Scope) -> Result<(), Refusal> {
    match scope.lost().find(|marker| marker.content_version != new.content_version) {
        Some(lost) => Err(Refusal::LostRun {
            week: new.iso_week,
            digest_type: new.digest_type.clone(),
            other: lost.content_version.clone(),
            run: short(&lost.run_id).to_owned(),
        }),
        None => Ok(()),
    }
}

async fn doubt_all(setup: &Setup, open: &[Run], began: Timestamp) -> Result<(), RunError> {
    for run in open {
        let scope = Scope::read(setup.ledger.as_ref(), &setup.store, run.new.iso_week, &run.new.digest_type).await?;
        let trust = setup.ledger.trust(run.run_number, None).await?;
        let doubt = Doubt { ledger: setup.ledger.as_ref(), store: &setup.store, run, scope: &scope, trust: &trust };
        doubt.cast(Some(earliest(setup, run, began)?)).await?;
    }
    Ok(())
}

/// Doubts the begun parts of every open run where one of them shows a loss, or where `loss` says so. Those that show
/// it come last: were this broken off before, they would show it again.
pub(super) async fn doubt_open_runs(
    ledger: &dyn Ledger,
    store: &Store,
    open: &[Run],
    loss: bool,
) -> Result<(), RunError> {
    let (mut showing, mut others) = (Vec::new(), Vec::new());
    for run in open {
        let scope = Scope::read(ledger, store, run.new.iso_week, &run.new.digest_type).await?;
        let trust = ledger.trust(run.run_number, None).await?;
        let list = if shows_loss(&scope, run, &trust) { &mut showing } else { &mut others };
        list.push((run, scope, trust));
    }
    if showing.is_empty() && !loss {
        return Ok(());
    }
    for (run, scope, trust) in others.iter().chain(&showing) {
        Doubt { ledger, store, run, scope, trust }.cast(None).await?;
    }
    Ok(())
}

/// The earliest instant at which something of a run can have been attempted that the ledger knows nothing of.
fn earliest(setup: &Setup, run: &Run, began: Timestamp) -> Result<Timestamp, RunError> {
    const JUST_OPENED: SignedDuration = SignedDuration::from_mins(1);
    if began.duration_since(run.opened_at) > JUST_OPENED {
        return Ok(run.opened_at);
    }
    // This row is new; the run that was lost may have been of any day since the week began.
    let end = run.new.iso_week.end(&setup.config.time_zone).map_err(Refusal::Week)?;
    Ok(end.saturating_sub(SignedDuration::from_hours(8 * 24)).unwrap_or(Timestamp::MIN))
}

/// What is known of one run before its parts are worked on: acts on a loss that concerns it, and answers which of its
/// parts were begun.
///
/// # Errors
/// When ledger or store fails.
pub(super) async fn watch(
    run: &Run,
    said: LedgerLoss,
    setup: &Setup,
    began: Timestamp,
) -> Result<super::begun::Begun, RunError> {
    let (ledger, store) = (setup.ledger.as_ref(), &setup.store);
    let scope = Scope::read(ledger, store, run.new.iso_week, &run.new.digest_type).await?;
    let trust = ledger.trust(run.run_number, None).await?;
    let lost = scope.lost_of(&run.new.content_version);
    let doubt = Doubt { ledger, store, run, scope: &scope, trust: &trust };
    if said == LedgerLoss::Accept {
        accept(ledger, run, &scope).await?;
    } else if said == LedgerLoss::Distrust {
        doubt.cast(Some(earliest(setup, run, began)?)).await?;
    } else if !lost.is_empty() && trust.loss_accepted_at.is_none() {
        // Rows of any part may have been in a part of the lost run.
        doubt.cast(Some(oldest(store, lost).await?.unwrap_or(earliest(setup, run, began)?))).await?;
    } else if sibling_in_doubt(ledger, run, &scope).await? {
        doubt.cast(Some(earliest(setup, run, began)?)).await?;
    } else if shows_loss(&scope, run, &trust) {
        doubt.cast(None).await?;
    }
    Ok(super::begun::Begun::new(trust.ledger_id.clone(), scope.begun(&run.new.run_id)))
}

/// Whether another open run of the same digests has parts in doubt: its rows may be rows of ours.
async fn sibling_in_doubt(ledger: &dyn Ledger, run: &Run, scope: &Scope) -> Result<bool, RunError> {
    let sibling = |other: &&Run| {
        other.run_number != run.run_number
            && other.closed_at.is_none()
            && other.new.content_version == run.new.content_version
    };
    for other in scope.runs.iter().filter(sibling) {
        let trust = ledger.trust(other.run_number, None).await?;
        if trust.parts.iter().any(|part| part.doubted_since.is_some() && !part.done) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// When the oldest of these markers was written.
async fn oldest(store: &Store, places: Vec<MarkerPlace>) -> Result<Option<Timestamp>, RunError> {
    Ok(times(store, places).await?.into_values().min())
}

/// When each of these markers was written.
async fn times(store: &Store, places: Vec<MarkerPlace>) -> Result<BTreeMap<MarkerPlace, Timestamp>, RunError> {
    blocking(store, move |store| {
        let read = |place: &MarkerPlace| Ok(store.marker(place)?.map(|marker| (place.clone(), marker.at)));
        places.iter().filter_map(|place| read(place).transpose()).collect()
    })
    .await
}

/// A run that is about to be doubted.
pub(super) struct Doubt<'a> {
    pub(super) ledger: &'a dyn Ledger,
    pub(super) store: &'a Store,
    pub(super) run: &'a Run,
    pub(super) scope: &'a Scope,
    pub(super) trust: &'a RunTrust,
}

impl Doubt<'_> {
    /// Doubts the parts that were begun, since their marker; with `everything` also those that were not, since then.
    pub(super) async fn cast(&self, everything: Option<Timestamp>) -> Result<(), RunError> {
        let run_id = &self.run.new.run_id;
        let unfinished: Vec<u32> = match self.trust.takes_new {
            true => self.trust.parts.iter().filter(|part| !part.done).map(|part| part.part).collect(),
            // Nothing without a receipt is sent in it any more.
            false => Vec::new(),
        };
        let wanted = |marker: &&MarkerPlace| part_of(marker).is_some_and(|part| unfinished.contains(&part));
        let places = self.scope.marks_of(run_id).filter(wanted).cloned().collect();
        let times: BTreeMap<u32, Timestamp> =
            times(self.store, places).await?.iter().filter_map(|(place, at)| Some((part_of(place)?, *at))).collect();
        let since = |part: &u32| match (times.get(part).copied(), everything) {
            (Some(marked), Some(everything)) => Some((*part, marked.min(everything))),
            (marked, everything) => marked.or(everything).map(|since| (*part, since)),
        };
        let doubts: Vec<(u32, Timestamp)> = unfinished.iter().filter_map(since).collect();
        let parts = self.ledger.doubt_parts(self.run.run_number, &doubts, self.scope.visits(run_id)).await?;
        tracing::warn!(
            run = short(&self.run.new.run_id),
            week = %self.run.new.iso_week,
            parts,
            "the ledger was restored from an older copy or has failed over: rows of these parts that have no receipt may \
             have been sent. They are looked up or repeated under their key where the destination can do that, else held. \
             If nothing was lost: `run --accept-ledger-loss`"
        );
        Ok(())
    }
}

async fn accept(ledger: &dyn Ledger, run: &Run, scope: &Scope) -> Result<(), RunError> {
    let begun: Vec<u32> = scope.begun(&run.new.run_id).into_iter().collect();
    Ok(ledger.accept_loss(run.run_number, &begun, scope.visits(&run.new.run_id)).await?)
}

/// Receipts that are read at a time.
const PAGE: u32 = 1_000;

/// Lets go of every receipt that was only entered because the ledger might have forgotten it.
async fn release(ledger: &dyn Ledger) -> Result<(), RunError> {
    let mut filter = ReceiptFilter { reason: Some(Reason::LedgerRestored), limit: PAGE, ..ReceiptFilter::default() };
    let (mut released, mut left) = (0_u64, 0_u64);
    loop {
        let page = ledger.receipts(&filter).await?;
        let Some(last) = page.last() else { break };
        filter.after = Some((last.iso_week, last.key));
        for receipt in &page {
            match ledger.review(&acceptance(receipt)).await? {
                ReviewAnswer::Recorded(State::Retryable) => released += 1,
                _ => left += 1,
            }
        }
    }
    if released + left > 0 {
        tracing::warn!(released, left, "receipts that a restored ledger left in doubt are sent as new");
    }
    Ok(())
}

fn acceptance(receipt: &ReceiptRecord) -> Review {
    Review {
        key: receipt.key,
        iso_week: receipt.iso_week,
        seen_state: receipt.standing.state,
        seen_grant: receipt.grant_number,
        decision: Decision::Resend { content: None, accept_duplicate: true, send_until: None },
        actor: "run --accept-ledger-loss".to_owned(),
        note: "what the restored ledger does not know was not sent".to_owned(),
        dry_run: false,
    }
}
