//! Opens what a command works with, from the configuration: the one place where the command line meets the ledger,
//! the snapshot store, the templates and the engine.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::check::Finding;
use super::output::Format;
use super::preview::{Preview, PreviewRequest};
use super::snapshot::{SealRequest, by_prefix};
use super::{Failure, Session, stop};
use crate::config::{Config, load_keyring};
use crate::digest::{Bundle, Message, ReceiptFacts};
use crate::identity::{ContentVersion, DigestType, Identity, IsoWeek};
use crate::ledger::{self, Ledger, LedgerError};
use crate::rehearsal;
use crate::run::{self, Progress, RunReport, RunRequest, Setup, SnapshotSource, WorkRequest};
use crate::snapshot::{Manifest, Row, RowChecks, SealOptions, Sealed, Store, lines, seal as seal_export};

/// The configured ledger.
pub(super) async fn ledger(config: &Config) -> Result<Arc<dyn Ledger>, Failure> {
    let opened = ledger::open(&config.ledger.url, config.clock_offset).await;
    opened.map_err(|error| match error {
        LedgerError::Unreachable(_) => Failure::from(error).with_hint(format!(
            "is {} there and open to this user (ledger.url)? what was settled stays settled; run again",
            config.ledger.place()
        )),
        other => other.into(),
    })
}

/// The configured ledger, if there is one already: looking must not make an empty one.
pub(super) async fn existing_ledger(config: &Config) -> Result<Arc<dyn Ledger>, Failure> {
    match config.ledger.file().filter(|file| !file.exists()) {
        Some(file) => Err(Failure::refused_because(format!("there is no ledger yet at {}", file.display()))
            .with_hint("`counterfoil migrate` makes it, and so does the first run")),
        None => {
            let ledger = ledger(config).await?;
            ledger.check_schema().await?;
            Ok(ledger)
        }
    }
}

/// The configured ledger, made and brought up to date where the configuration allows that.
pub(super) async fn migrated_ledger(config: &Config) -> Result<Arc<dyn Ledger>, Failure> {
    let ledger = ledger(config).await?;
    if config.ledger.auto_migrate {
        ledger.migrate().await?;
    } else {
        ledger.check_schema().await?;
    }
    Ok(ledger)
}

/// One invocation of the engine, from start to report. A first SIGINT or SIGTERM stops it gracefully.
pub(super) async fn run(session: &Session, config: &Config, request: &RunRequest) -> Result<RunReport, Failure> {
    let setup = setup(session, config).await?;
    expected_of_sealed(&setup.store, request)?;
    let listener = tokio::spawn(stop::on_signal(setup.stop.clone()));
    let report = Box::pin(run::run(request, &setup)).await;
    listener.abort();
    setup.ledger.close().await;
    Ok(report?)
}

/// The same for runs that are open already.
pub(super) async fn work(session: &Session, config: &Config, request: &WorkRequest) -> Result<RunReport, Failure> {
    let setup = setup(session, config).await?;
    let listener = tokio::spawn(stop::on_signal(setup.stop.clone()));
    let report = Box::pin(run::work(request, &setup)).await;
    listener.abort();
    setup.ledger.close().await;
    Ok(report?)
}

/// What the engine works with.
async fn setup(session: &Session, config: &Config) -> Result<Setup, Failure> {
    if let Some(death) = config.die_at {
        rehearsal::arm(death);
    }
    let keyring = load_keyring(&config.keyring)?;
    let ledger = migrated_ledger(config).await?;
    let quiet = session.quiet || session.output.format == Format::Json;
    Ok(Setup {
        config: Arc::new(config.clone()),
        keyring: Arc::new(keyring),
        ledger,
        store: Store::at(&config.store)?,
        stop: CancellationToken::new(),
        progress: Arc::new(if quiet { Progress::quiet() } else { Progress::on_stderr() }),
    })
}

/// What `--expect-…` asks of a snapshot that is sealed already: a guard that was asked for must not be skipped.
fn expected_of_sealed(store: &Store, request: &RunRequest) -> Result<(), Failure> {
    let Some(SnapshotSource::Sealed(id)) = &request.snapshot else { return Ok(()) };
    if request.expect_sha256.is_some() {
        return Err(Failure::refused_because("--expect-sha256 is about an export's file, not about a sealed snapshot")
            .with_hint(
                "leave it out: a sealed snapshot's id is the hash of its rows, and they are checked against it",
            ));
    }
    let Some(expected) = request.expect_rows else { return Ok(()) };
    let manifests = store.list()?;
    let manifest = by_prefix(&manifests, id)?;
    let found = manifest.rows + manifest.repeated + manifest.rejected;
    if found == expected {
        return Ok(());
    }
    let short = manifest.id.get(..12).unwrap_or(&manifest.id);
    Err(Failure::refused_because(format!(
        "the export of snapshot {short} had {found} rows, but {expected} were expected: it is another one"
    )))
}

/// Checks an export and seals it.
pub(super) async fn seal(config: &Config, request: &SealRequest) -> Result<Sealed, Failure> {
    let digest = run::digest_config(config, &request.digest_type)?;
    let bundle = run::bundle(config, &request.digest_type, &digest.content_version)?;
    let store = Store::at(&config.store)?;
    let options = SealOptions {
        on_bad_row: request.on_bad_row,
        rejects: request.rejects.clone(),
        expect_rows: request.expect_rows,
        expect_sha256: request.expect_sha256.map(|digest| digest.0),
        sealed_at: Timestamp::now(),
    };
    let destinations: BTreeSet<String> = config.destinations.keys().cloned().collect();
    let file = request.file.clone();
    let sealing = tokio::task::spawn_blocking(move || {
        seal_export(&file, &store, &RowChecks::new(&destinations, &bundle), &options, &|_| {})
    });
    let sealed = sealing.await.map_err(Failure::could_not_run)?;
    sealed.map_err(|error| run::seal_error(error).into())
}

/// Every sealed snapshot.
pub(super) fn manifests(config: &Config) -> Result<Vec<Manifest>, Failure> {
    if config.store.directory().is_some_and(|directory| !directory.exists()) {
        return Ok(Vec::new());
    }
    Ok(Store::at(&config.store)?.list()?)
}

/// Renders the message of one customer, as a first attempt made now would send it.
pub(super) fn preview(config: &Config, request: &PreviewRequest) -> Result<Preview, Failure> {
    let digest = run::digest_config(config, &request.digest_type)?;
    let content_version = request.content_version.clone().unwrap_or_else(|| digest.content_version.clone());
    let bundle = run::bundle(config, &request.digest_type, &content_version)?;
    let row = match &request.snapshot {
        SnapshotSource::File(path) => row_of_export(config, &bundle, path, request)?,
        SnapshotSource::Sealed(id) => row_of_snapshot(config, id, request)?,
    };
    let keyring = load_keyring(&config.keyring)?;
    let now = Timestamp::now().checked_add(config.clock_offset).map_err(Failure::refused)?;
    let iso_week = request.week.resolve(now, &config.time_zone).map_err(Failure::refused)?;
    let message = rendered(&bundle, &row, &keyring, iso_week, (&request.digest_type, &content_version), now)?;
    Ok(Preview { mime: message.to_mime(), message })
}

fn rendered(
    bundle: &Bundle,
    row: &Row,
    keyring: &crate::identity::keyring::Keyring,
    iso_week: IsoWeek,
    (digest_type, content_version): (&DigestType, &ContentVersion),
    now: Timestamp,
) -> Result<Message, Failure> {
    let identity = Identity { customer_id: &row.customer_id, iso_week, digest_type, content_version };
    let key = keyring.for_week(iso_week)?.receipt_key(&identity);
    let facts = ReceiptFacts { key, first_claimed_at: now };
    bundle.render(row, &facts, digest_type, keyring.stable()).map_err(Failure::refused)
}

/// The customer's row of an export; only that row is checked.
fn row_of_export(config: &Config, bundle: &Bundle, path: &Path, request: &PreviewRequest) -> Result<Row, Failure> {
    let destinations: BTreeSet<String> = config.destinations.keys().cloned().collect();
    let checks = RowChecks::new(&destinations, bundle);
    let found = crate::snapshot::find_row(path, &checks, &request.customer).map_err(Failure::refused)?;
    found.ok_or_else(|| no_such_customer(&path.display().to_string()))
}

fn row_of_snapshot(config: &Config, id: &str, request: &PreviewRequest) -> Result<Row, Failure> {
    let store = Store::at(&config.store)?;
    let manifests = store.list()?;
    let manifest = by_prefix(&manifests, id)?;
    for part in (0_u32..).take(manifest.part_rows.len()) {
        for line in lines(&store.part_of(manifest, part)?) {
            let row = Row::from_sealed(line)
                .map_err(|fault| Failure::refused_because(format!("{}: {}", fault.field, fault.reason)))?;
            if row.customer_id == request.customer {
                return Ok(row);
            }
        }
    }
    Err(no_such_customer(id))
}

fn no_such_customer(place: &str) -> Failure {
    Failure::refused_because(format!("{place} has no row of this customer"))
        .with_hint("ids are compared exactly, in Unicode NFC")
}

/// Loads every configured template bundle and compares it with what the ledger has pinned.
pub(super) async fn check_templates(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (digest_type, digest) in &config.digests {
        let subject = format!("template {digest_type} {}", digest.content_version);
        match run::bundle(config, digest_type, &digest.content_version) {
            Err(error) => findings.push(Finding::fail(subject, error)),
            Ok(bundle) => match pinned_content(config, digest_type, &digest.content_version).await {
                Some(pinned) if pinned != bundle.content_hash() => findings.push(Finding::fail(
                    subject,
                    "changed since it was first used; undo the change, or give the new content a version of its own",
                )),
                Some(_) => findings.push(Finding::ok(subject, "compiles, and is what the ledger has pinned")),
                None => findings.push(Finding::ok(subject, "compiles; the first enforced run will pin it")),
            },
        }
    }
    findings
}

/// What is pinned of a content, where the ledger can be asked; that it cannot is a finding of its own.
async fn pinned_content(config: &Config, digest_type: &DigestType, version: &ContentVersion) -> Option<[u8; 32]> {
    let ledger = existing_ledger(config).await.ok()?;
    let week = IsoWeek::of(jiff::civil::date(2000, 1, 3)).ok()?;
    ledger.pins(week, digest_type, version).await.ok()?.content_hash
}
