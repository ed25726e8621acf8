//! A shadow run: every row is keyed, fingerprinted and rendered; nothing is claimed, nothing is sent, and no
//! provider is even made.

use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;

use super::engine::{PARTS_AT_ONCE, Setup};
use super::guards::{self, Prepared};
use super::sources;
use super::{Clock, Ending, Outcomes, RunError, RunReport, RunRequest, RunSummary, SnapshotCounts};
use crate::digest::ReceiptFacts;
use crate::identity::Identity;
use crate::ledger::Mode;
use crate::snapshot::{Manifest, Row, lines};

/// Rows of one part, by what rendering them found.
#[derive(Default)]
struct Seen {
    observed: u64,
    failed: u64,
}

/// Observes a snapshot: one pass, never joined.
///
/// # Errors
/// The guards of any run, or a ledger or store that fails.
pub(super) async fn run(
    request: &RunRequest,
    setup: &Setup,
    clock: &Clock,
    began: Instant,
) -> Result<RunReport, RunError> {
    let left_open = open_runs(setup, None).await?;
    let Some(source) = &request.snapshot else {
        return Ok(RunReport { left_open, ..RunReport::default() });
    };
    let prepared = Arc::new(guards::prepare(request, setup, clock).await?);
    let snapshot = sources::snapshot(request, source, &prepared.bundle, setup).await?;
    let manifest = Arc::new(snapshot.manifest);
    let run_id =
        guards::run_id(&manifest, prepared.week, &request.digest_type, &prepared.content_version, Mode::Observe);
    setup.progress.begin(&run_id, manifest.rows);
    let mut outcomes = Outcomes::default();
    let mut stopped = false;
    let now = clock.now();
    let mut parts = stream::iter((0_u32..).zip(&manifest.part_rows))
        .map(async |(part, rows)| (part, *rows, observe_part(setup, &prepared, &manifest, part, now).await))
        .buffer_unordered(PARTS_AT_ONCE);
    while let Some((part, rows, seen)) = parts.next().await {
        let seen = seen?;
        outcomes.observed += seen.observed;
        outcomes.failed += seen.failed;
        setup.progress.part(part, u64::from(rows));
        if setup.stop.is_cancelled() {
            stopped = true;
            break;
        }
    }
    setup.progress.end();
    outcomes.never_claimed = manifest.rows.saturating_sub(outcomes.total());
    let summary = RunSummary {
        run_id,
        iso_week: prepared.week,
        digest_type: request.digest_type.clone(),
        content_version: prepared.content_version.clone(),
        mode: Mode::Observe,
        snapshot: SnapshotCounts {
            id: manifest.id.clone(),
            rows: manifest.rows,
            repeated: snapshot.repeated,
            rejected: snapshot.rejected,
        },
        outcomes,
        elapsed_seconds: began.elapsed().as_secs_f64(),
        ending: Ending { failed_otherwise: outcomes.failed, open: stopped, ..Ending::default() },
    };
    Ok(RunReport { main: Some(summary), ..RunReport::default() })
}

/// Names open runs, or the one with this id where it is open: observing finishes nothing.
///
/// # Errors
/// A ledger that fails.
pub(super) async fn open_runs(setup: &Setup, only: Option<&str>) -> Result<Vec<String>, RunError> {
    let mut open = setup.ledger.open_runs().await?;
    open.retain(|run| only.is_none_or(|only| run.new.run_id == only));
    for run in &open {
        tracing::warn!(run = super::engine::short(&run.new.run_id), week = %run.new.iso_week, "an open run; observing finishes nothing");
    }
    Ok(open.into_iter().map(|run| run.new.run_id).collect())
}

async fn observe_part(
    setup: &Setup,
    prepared: &Arc<Prepared>,
    manifest: &Arc<Manifest>,
    part: u32,
    now: Timestamp,
) -> Result<Seen, RunError> {
    let (setup, prepared, manifest) = (setup.clone(), Arc::clone(prepared), Arc::clone(manifest));
    tokio::task::spawn_blocking(move || {
        let bytes = setup.store.part_of(&manifest, part)?;
        let mut seen = Seen::default();
        for line in lines(&bytes) {
            match observe_row(&setup, &prepared, line, now) {
                Ok(()) => seen.observed += 1,
                Err(reason) => {
                    tracing::warn!(part, "a row cannot be rendered: {reason}");
                    seen.failed += 1;
                }
            }
        }
        Ok(seen)
    })
    .await
    .map_err(|_| RunError::Internal)?
}

fn observe_row(setup: &Setup, prepared: &Prepared, line: &[u8], now: Timestamp) -> Result<(), String> {
    let row = Row::from_sealed(line).map_err(|fault| format!("{}: {}", fault.field, fault.reason))?;
    let identity = Identity {
        customer_id: &row.customer_id,
        iso_week: prepared.week,
        digest_type: &prepared.pins.digest_type,
        content_version: &prepared.content_version,
    };
    let key = setup.keyring.for_week(prepared.week).map_err(|error| error.to_string())?;
    let facts = ReceiptFacts { key: key.receipt_key(&identity), first_claimed_at: now };
    prepared
        .bundle
        .render(&row, &facts, &prepared.pins.digest_type, setup.keyring.stable())
        .map_err(|error| format!("receipt {}: {error}", facts.key.short()))?;
    Ok(())
}
