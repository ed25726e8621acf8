//! What is checked before anything is claimed; what a refusal says stands in `refusal`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::engine::short;
use super::sources;
use super::{Clock, Refusal, RunError, RunRequest, Setup, SnapshotSource};
use crate::config::{Config, DigestConfig};
use crate::digest::Bundle;
use crate::identity::keyring::WeekKey;
use crate::identity::{ContentVersion, DigestType, IsoWeek, hex_text};
use crate::ledger::{IdentityPin, KeyPin, Mode, NewRun, Opening, Pins, Run, StandingPins};
use crate::snapshot::Manifest;

/// What is known before the snapshot is sealed.
pub(super) struct Prepared {
    /// The week that was chosen.
    pub week: IsoWeek,
    /// The version that is sent.
    pub content_version: ContentVersion,
    /// The compiled content.
    pub bundle: Arc<Bundle>,
    /// What must agree with the ledger.
    pub pins: Pins,
}

/// What came of a run that was to be opened.
pub(super) enum Gate {
    /// It may be worked on.
    Opened(Opened),
    /// This run of another version must be closed first.
    Waits(Run),
}

/// A run that may begin.
pub(super) struct Opened {
    /// As the ledger has it.
    pub run: Run,
    /// What renders its rows.
    pub bundle: Arc<Bundle>,
    /// It was open already and had been triggered at this instant before.
    pub triggered_before: Option<Timestamp>,
}

/// The configuration of a type.
///
/// # Errors
/// A type that is not configured.
pub fn digest_config<'a>(config: &'a Config, digest_type: &DigestType) -> Result<&'a DigestConfig, Refusal> {
    config.digests.get(digest_type).ok_or_else(|| {
        let known: Vec<&str> = config.digests.keys().map(DigestType::as_str).collect();
        Refusal::Configuration(format!(
            "there is no [digest.{digest_type}] in the configuration; configured: {}",
            known.join(", ")
        ))
    })
}

/// Checks what can be checked without the snapshot.
///
/// # Errors
/// The first guard that refuses.
pub(super) async fn prepare(request: &RunRequest, setup: &Setup, clock: &Clock) -> Result<Prepared, RunError> {
    let config = &setup.config;
    let digest = digest_config(config, &request.digest_type)?;
    let week = request.week.resolve(clock.now(), &config.time_zone).map_err(Refusal::Week)?;
    horizon(week, config, clock.now())?;
    let content_version = request.content_version.clone().unwrap_or_else(|| digest.content_version.clone());
    let bundle = Arc::new(sources::bundle(config, &request.digest_type, &content_version)?);
    let week_key = setup.keyring.for_week(week).map_err(|error| Refusal::Keyring(error.to_string()))?;
    let pins = Pins {
        environment: config.environment.clone(),
        stable: setup.keyring.stable().check_value(),
        iso_week: week,
        week_key: key_pin(week_key),
        digest_type: request.digest_type.clone(),
        content_version: content_version.clone(),
        content_hash: bundle.content_hash(),
    };
    agree(&setup.ledger.pins(week, &request.digest_type, &content_version).await?, &pins)?;
    tracing::info!(
        "{} {content_version}, week {week} ({} to {}), {}",
        request.digest_type,
        week.first_day(),
        week.last_day(),
        request.mode.as_str()
    );
    Ok(Prepared { week, content_version, bundle, pins })
}

/// Checks that an open run can go on: the same environment, keys and content as when it began, and a week whose
/// receipts are all still there.
///
/// # Errors
/// The first guard that refuses.
pub(super) async fn resume(run: &Run, setup: &Setup, now: Timestamp) -> Result<Arc<Bundle>, RunError> {
    let new = &run.new;
    horizon(new.iso_week, &setup.config, now)?;
    digest_config(&setup.config, &new.digest_type)?;
    let bundle = sources::bundle(&setup.config, &new.digest_type, &new.content_version)?;
    let week_key = setup.keyring.for_week(new.iso_week).map_err(|error| Refusal::Keyring(error.to_string()))?;
    let pins = Pins {
        environment: setup.config.environment.clone(),
        stable: setup.keyring.stable().check_value(),
        iso_week: new.iso_week,
        week_key: key_pin(week_key),
        digest_type: new.digest_type.clone(),
        content_version: new.content_version.clone(),
        content_hash: bundle.content_hash(),
    };
    agree(&setup.ledger.pins(new.iso_week, &new.digest_type, &new.content_version).await?, &pins)?;
    Ok(Arc::new(bundle))
}

fn key_pin(key: &WeekKey) -> KeyPin {
    KeyPin { key_id: key.id().to_owned(), check: key.check_value() }
}

/// Compares what is pinned with what we have; nothing pinned agrees with everything.
///
/// # Errors
/// The first pin that disagrees.
pub(super) fn agree(standing: &StandingPins, ours: &Pins) -> Result<(), Refusal> {
    let identity = IdentityPin { environment: ours.environment.clone(), stable: ours.stable };
    if let (Some(environment), Some(stable)) = (standing.environment.clone(), standing.stable) {
        same_identity(&IdentityPin { environment, stable }, &identity)?;
    }
    if let Some(pinned) = standing.week_key.as_ref().filter(|pinned| **pinned != ours.week_key) {
        return Err(Refusal::WeekKey {
            week: ours.iso_week,
            pinned_id: pinned.key_id.clone(),
            pinned: hex_text(&pinned.check),
            our_id: ours.week_key.key_id.clone(),
            ours: hex_text(&ours.week_key.check),
        });
    }
    if standing.content_hash.is_some_and(|pinned| pinned != ours.content_hash) {
        return Err(Refusal::Content {
            digest_type: ours.digest_type.clone(),
            content_version: ours.content_version.clone(),
        });
    }
    Ok(())
}

/// Compares what a ledger is for with what we are configured for: under another stable secret its suppression list
/// would silently be empty.
///
/// # Errors
/// The pin that disagrees.
pub fn same_identity(standing: &IdentityPin, ours: &IdentityPin) -> Result<(), Refusal> {
    if standing.environment != ours.environment {
        let (pinned, configured) = (standing.environment.clone(), ours.environment.clone());
        return Err(Refusal::Environment { pinned, configured });
    }
    if standing.stable != ours.stable {
        return Err(Refusal::StableKey { pinned: hex_text(&standing.stable), ours: hex_text(&ours.stable) });
    }
    Ok(())
}

fn horizon(week: IsoWeek, config: &Config, now: Timestamp) -> Result<(), RunError> {
    let weeks = config.retention.replay_horizon_weeks;
    let end = week.end(&config.time_zone).map_err(Refusal::Week)?;
    let oldest = SignedDuration::from_hours(i64::from(weeks) * 7 * 24);
    if now.duration_since(end) > oldest {
        return Err(Refusal::Horizon { week, weeks }.into());
    }
    Ok(())
}

/// A run that may begin as far as can be said before earlier runs are finished.
pub(super) struct Admitted {
    prepared: Prepared,
    /// As it will be opened.
    pub(super) new: NewRun,
    /// The week's end.
    week_end: Timestamp,
}

impl Admitted {
    /// Id of the run, whether it exists or not.
    pub(super) fn run_id(&self) -> &str {
        &self.new.run_id
    }
}

/// Seals the snapshot if needed and checks everything, before anything is claimed, for an earlier run either.
///
/// # Errors
/// The first guard that refuses.
pub(super) async fn admit(
    request: &RunRequest,
    source: &SnapshotSource,
    setup: &Setup,
    clock: &Clock,
) -> Result<Admitted, RunError> {
    let prepared = prepare(request, setup, clock).await?;
    let snapshot = sources::snapshot(request, source, &prepared.bundle, setup).await?;
    let config = &setup.config;
    let digest = digest_config(config, &request.digest_type)?;
    let week_end = prepared.week.end(&config.time_zone).map_err(Refusal::Week)?;
    let send_within = request.send_within.unwrap_or(digest.send_within);
    let deadline_at = week_end.saturating_add(send_within).unwrap_or(Timestamp::MAX);
    let new = NewRun {
        run_id: run_id(
            &snapshot.manifest,
            prepared.week,
            &request.digest_type,
            &prepared.content_version,
            request.mode,
        ),
        iso_week: prepared.week,
        digest_type: request.digest_type.clone(),
        content_version: prepared.content_version.clone(),
        mode: request.mode,
        snapshot_id: snapshot.manifest.id.clone(),
        rows: snapshot.manifest.rows,
        part_rows: snapshot.manifest.part_rows.clone(),
        repeated: snapshot.repeated,
        rejected: snapshot.rejected,
        key_id: prepared.pins.week_key.key_id.clone(),
        content_hash: prepared.pins.content_hash,
        deadline_at,
        correction: request.correction,
        only_unsent: request.only_unsent,
    };
    let admitted = Admitted { prepared, new, week_end };
    if setup.ledger.run(&admitted.new.run_id).await?.is_none() {
        guard_new_run(&admitted, request, digest, setup, clock.now()).await?;
        let mut others = setup.ledger.runs_of_week(admitted.new.iso_week, &admitted.new.digest_type).await?;
        // An open one may be closed until it is this run's turn.
        others.retain(|run| run.closed_at.is_some());
        one_version_a_week(&admitted.new, &others)?;
    }
    Ok(admitted)
}

/// Checks once more, now that earlier runs are finished, pins, and opens or joins the run. The ledger looks for another
/// version a last time as it opens it: two that are started at the same instant are not both opened.
///
/// # Errors
/// The first guard that refuses; nothing of this run was claimed.
pub(super) async fn open(
    request: &RunRequest,
    admitted: &Admitted,
    setup: &Setup,
    clock: &Clock,
) -> Result<Gate, RunError> {
    let (new, ours) = (&admitted.new, &admitted.prepared.pins);
    if setup.ledger.run(&new.run_id).await?.is_none() {
        let digest = digest_config(&setup.config, &request.digest_type)?;
        guard_new_run(admitted, request, digest, setup, clock.now()).await?;
        let others = setup.ledger.runs_of_week(new.iso_week, &new.digest_type).await?;
        if let Some(open) = one_version_a_week(new, &others)? {
            return Ok(Gate::Waits(open.clone()));
        }
    }
    agree(&setup.ledger.pin(ours).await?, ours)?;
    let (run, triggered_before) = match setup.ledger.open_run(new).await? {
        Opening::Opened(run) => (run, None),
        Opening::Joined { run, last_triggered_at } => (run, Some(last_triggered_at)),
        Opening::OtherVersion(other) => {
            let open = one_version_a_week(new, std::slice::from_ref(&other))?.cloned();
            return Ok(Gate::Waits(open.unwrap_or(other)));
        }
    };
    as_it_was_begun(&run, new);
    let standing = if run.closed_at.is_some() { "closed" } else { "open" };
    tracing::debug!(run = run.new.run_id, snapshot = run.new.snapshot_id, rows = run.new.rows, standing, "run");
    let triggered_before = triggered_before.filter(|_| run.closed_at.is_none());
    Ok(Gate::Opened(Opened { run, bundle: Arc::clone(&admitted.prepared.bundle), triggered_before }))
}

/// A run that is joined goes on as it was begun; whoever asks for something else should know.
fn as_it_was_begun(run: &Run, asked: &NewRun) {
    let of = |new: &NewRun| match (new.correction, new.only_unsent) {
        (true, _) => "with --correction",
        (_, true) => "with --only-unsent",
        _ => "without --only-unsent and --correction",
    };
    if of(&run.new) != of(asked) {
        tracing::warn!(run = short(&run.new.run_id), "this run was begun {} and goes on like that", of(&run.new));
    }
}

/// What only a run that does not exist yet can be refused for; one that exists is joined.
async fn guard_new_run(
    admitted: &Admitted,
    request: &RunRequest,
    digest: &DigestConfig,
    setup: &Setup,
    now: Timestamp,
) -> Result<(), RunError> {
    let Admitted { new, week_end, .. } = admitted;
    if now > new.deadline_at {
        let days = now.duration_since(*week_end).as_hours() / 24 + 3;
        let refusal =
            Refusal::Deadline { week: new.iso_week, deadline: new.deadline_at, suggestion: format!("{days} days") };
        return Err(refusal.into());
    }
    let ledger = &setup.ledger;
    let last = ledger.last_enforced_run(&new.digest_type).await?.filter(|_| !request.accept_row_count);
    if let Some(last) = last.filter(|last| !row_count_fits(new.rows, last.new.rows, digest.max_row_change)) {
        let refusal = Refusal::RowCount {
            rows: new.rows,
            last: last.new.rows,
            digest_type: new.digest_type.clone(),
            week: last.new.iso_week,
            allowed: digest.max_row_change * 100.0,
        };
        return Err(refusal.into());
    }
    let used = ledger.runs_of_snapshot(&new.snapshot_id).await?;
    if let Some(other) = used.iter().find(|run| run.new.iso_week != new.iso_week).filter(|_| !request.reuse_snapshot) {
        return Err(Refusal::Reused { snapshot: short(&new.snapshot_id).to_owned(), week: other.new.iso_week }.into());
    }
    Ok(())
}

/// Whether a number of rows is near enough to the last one.
fn row_count_fits(rows: u64, last: u64, max_change: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "row counts stay far below 2^53")]
    let change = (rows as f64 - last as f64).abs() / (last.max(1) as f64);
    change <= max_change
}

/// One digest a week: the open run of another version that must be closed first, or the refusal where that version has
/// ended and this run says nothing of it. What stands in the way is decided by [`NewRun::in_the_way`].
fn one_version_a_week<'a>(new: &NewRun, same_week: &'a [Run]) -> Result<Option<&'a Run>, Refusal> {
    match new.in_the_way(same_week) {
        Some(ended) if ended.closed_at.is_some() => Err(Refusal::OtherVersion {
            week: new.iso_week,
            digest_type: new.digest_type.clone(),
            other: ended.new.content_version.clone(),
        }),
        in_the_way => Ok(in_the_way),
    }
}

/// The id of a run: the first 16 bytes of SHA-256 over snapshot, week, type, version and mode, in hex.
pub(super) fn run_id(
    manifest: &Manifest,
    week: IsoWeek,
    digest_type: &DigestType,
    content_version: &ContentVersion,
    mode: Mode,
) -> String {
    let text = format!("{}|{week}|{digest_type}|{content_version}|{}", manifest.id, mode.as_str());
    let mut id = hex_text(&Sha256::digest(text.as_bytes()));
    id.truncate(32);
    id
}
