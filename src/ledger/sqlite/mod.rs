//! The ledger on SQLite: one file, one writer at a time, any number of processes.
//!
//! Every writing transaction begins with the write lock, because one that reads first and writes later fails at
//! once where another process has written in between. The database's clock is the host's.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use sqlx::query::{Query, QueryAs};
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, FromRow, Sqlite, SqlitePool, Transaction};

use super::failure::{Tries, Try, passes, tried};
use super::stored::Moment;
use super::{
    AddressHash, ClaimAnswer, ClaimBatch, ConflictRecord, DestinationNumber, EndedLease, EventRecord, ForeignCounts,
    Found, IdentityPin, KeyPin, Ledger, LedgerError, NewRun, Opening, Pace, PartEnd, PartGrant, Pins, Rate,
    ReceiptFilter, ReceiptRecord, Reservation, Result, Review, ReviewAnswer, Run, RunClosing, RunCounts, RunTrust,
    SettleAnswer, SettleRequest, StandingPins, StandingSuppression, Suppression,
};
use crate::identity::{ContentVersion, DigestType, IsoWeek, ReceiptKey};
use crate::receipt::Looks;

mod claims;
mod conflicts;
mod looks;
mod openings;
mod pace;
mod parts;
mod pins;
mod records;
mod reviews;
mod runs;
mod schema;
mod settles;
mod suppressions;
mod trust;
mod versions;

/// Connections that only read; readers do not wait for the writer.
const READERS: u32 = 4;

/// How long a statement waits for another process's transaction.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// How long a task waits for this process's one writing connection.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(90);

/// Begins every writing transaction.
const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";

/// Begins every reading transaction.
const BEGIN_READ: &str = "BEGIN DEFERRED";

/// A ledger in a file.
#[derive(Debug)]
pub(super) struct SqliteLedger {
    writer: SqlitePool,
    readers: SqlitePool,
    /// Microseconds that are added to the host's clock.
    offset: i64,
}

impl SqliteLedger {
    /// Opens the file, and makes it where it does not exist: what stands in it is nobody else's business.
    pub(super) async fn open(path: &Path, clock_offset: SignedDuration) -> Result<Self> {
        create(path).map_err(|error| LedgerError::Unreachable(sqlx::Error::Io(error)))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_LIMIT)
            .disable_statement_logging();
        let pool = || {
            SqlitePoolOptions::new()
                .acquire_timeout(ACQUIRE_LIMIT)
                .acquire_slow_threshold(ACQUIRE_LIMIT)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
        };
        let writer = pool().max_connections(1).connect_lazy_with(options.clone());
        let readers = pool().max_connections(READERS).connect_lazy_with(options.pragma("query_only", "on"));
        first_connection(&writer).await?;
        Ok(Self { writer, readers, offset: micros(clock_offset) })
    }

    async fn write(&self) -> Try<Transaction<'static, Sqlite>> {
        Ok(self.writer.begin_with(BEGIN_WRITE).await?)
    }

    async fn read(&self) -> Try<Transaction<'static, Sqlite>> {
        Ok(self.readers.begin_with(BEGIN_READ).await?)
    }

    /// Asked for inside a transaction, after any wait for the lock, so that leases count from their grant.
    fn clock(&self) -> Moment {
        Moment::from_micros(Timestamp::now().as_microsecond().saturating_add(self.offset))
    }
}

/// Makes an empty file, readable for its owner only; the files that SQLite puts beside it are like it.
fn create(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// The first connection puts the file into WAL mode, which does not wait for others who do so at the same time.
async fn first_connection(writer: &SqlitePool) -> Result<()> {
    let began = Instant::now();
    loop {
        match writer.acquire().await {
            Ok(_) => return Ok(()),
            Err(error) if passes(&error) && began.elapsed() < BUSY_LIMIT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(LedgerError::Unreachable(error)),
        }
    }
}

/// A statement without rows.
fn statement<'q>(sql: &'static str) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql)
}

/// A statement whose rows are read as `Row`.
fn rows<'q, Row>(sql: &'static str) -> QueryAs<'q, Sqlite, Row, SqliteArguments>
where
    Row: for<'r> FromRow<'r, SqliteRow>,
{
    sqlx::query_as(sql)
}

/// A span as statements take it.
fn micros(span: SignedDuration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(if span.is_negative() { i64::MIN } else { i64::MAX })
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn migrate(&self) -> Result<()> {
        // Without a limit of time: a migration may rewrite a large table.
        let mut tries = Tries::of("migrate");
        while let Err(failure) = schema::migrate(self).await {
            tries.again_after(failure).await?;
        }
        Ok(())
    }

    async fn check_schema(&self) -> Result<()> {
        tried!("check_schema", schema::check(self))
    }

    async fn now(&self) -> Result<Timestamp> {
        tried!("now", pins::now(self))
    }

    async fn pins(&self, week: IsoWeek, digest: &DigestType, version: &ContentVersion) -> Result<StandingPins> {
        tried!("pins", pins::pins(self, week, digest, version))
    }

    async fn pin(&self, pins: &Pins) -> Result<StandingPins> {
        tried!("pin", pins::pin(self, pins))
    }

    async fn key_pins(&self) -> Result<Vec<(IsoWeek, KeyPin)>> {
        tried!("key_pins", pins::key_pins(self))
    }

    async fn pinned_identity(&self) -> Result<Option<IdentityPin>> {
        tried!("pinned_identity", suppressions::pinned_identity(self))
    }

    async fn pin_identity(&self, pin: &IdentityPin) -> Result<IdentityPin> {
        tried!("pin_identity", suppressions::pin_identity(self, pin))
    }

    async fn suppress(&self, entries: &[Suppression]) -> Result<u64> {
        tried!("suppress", suppressions::suppress(self, entries))
    }

    async fn unsuppress(&self, hashes: &[AddressHash], digest_type: Option<&DigestType>) -> Result<u64> {
        tried!("unsuppress", suppressions::unsuppress(self, hashes, digest_type))
    }

    async fn suppressed(&self, hashes: &[AddressHash], digest_type: &DigestType) -> Result<Vec<bool>> {
        tried!("suppressed", suppressions::suppressed(self, hashes, digest_type))
    }

    async fn suppressions(&self, hash: &AddressHash) -> Result<Vec<StandingSuppression>> {
        tried!("suppressions", suppressions::suppressions(self, hash))
    }

    async fn open_run(&self, run: &NewRun) -> Result<Opening> {
        tried!("open_run", |tries| openings::open_run(self, run, tries.in_doubt()))
    }

    async fn run(&self, run_id: &str) -> Result<Option<Run>> {
        tried!("run", runs::run(self, run_id))
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        tried!("open_runs", runs::open_runs(self))
    }

    async fn runs_of_week(&self, week: IsoWeek, digest_type: &DigestType) -> Result<Vec<Run>> {
        tried!("runs_of_week", runs::runs_of_week(self, week, digest_type))
    }

    async fn last_enforced_run(&self, digest_type: &DigestType) -> Result<Option<Run>> {
        tried!("last_enforced_run", runs::last_enforced_run(self, digest_type))
    }

    async fn runs_of_snapshot(&self, snapshot_id: &str) -> Result<Vec<Run>> {
        tried!("runs_of_snapshot", runs::runs_of_snapshot(self, snapshot_id))
    }

    async fn set_brake(&self, run_number: i64, brake: Option<&str>) -> Result<()> {
        tried!("set_brake", runs::set_brake(self, run_number, brake))
    }

    async fn close_finished_run(&self, run: &Run) -> Result<bool> {
        tried!("close_finished_run", runs::close_finished_run(self, run))
    }

    async fn take_part(&self, run_number: i64, worker: i64, lease: SignedDuration) -> Result<PartGrant> {
        tried!("take_part", parts::take_part(self, run_number, worker, lease))
    }

    async fn renew_part(&self, run_number: i64, part: u32, worker: i64, lease: SignedDuration) -> Result<bool> {
        tried!("renew_part", parts::renew_part(self, run_number, part, worker, lease))
    }

    async fn end_part(
        &self,
        run_number: i64,
        part: u32,
        worker: i64,
        end: PartEnd,
        counts: &ForeignCounts,
    ) -> Result<()> {
        tried!("end_part", parts::end_part(self, run_number, part, worker, end, counts))
    }

    async fn trust(&self, run_number: i64, part: Option<u32>) -> Result<RunTrust> {
        tried!("trust", trust::trust(self, run_number, part))
    }

    async fn visit(&self, run_number: i64) -> Result<u32> {
        tried!("visit", trust::visit(self, run_number))
    }

    async fn mark_part(&self, run_number: i64, part: u32) -> Result<()> {
        tried!("mark_part", trust::mark_part(self, run_number, part))
    }

    async fn doubt_parts(&self, run_number: i64, doubts: &[(u32, Timestamp)], visits: u32) -> Result<u64> {
        tried!("doubt_parts", trust::doubt_parts(self, run_number, doubts, visits))
    }

    async fn doubt_entered(&self, run_number: i64, part: u32) -> Result<()> {
        tried!("doubt_entered", trust::doubt_entered(self, run_number, part))
    }

    async fn accept_loss(&self, run_number: i64, begun: &[u32], visits: u32) -> Result<()> {
        tried!("accept_loss", trust::accept_loss(self, run_number, begun, visits))
    }

    async fn destination(&self, name: &str, identity: &[u8; 32]) -> Result<DestinationNumber> {
        tried!("destination", pace::destination(self, name, identity))
    }

    async fn look(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<Option<Found>>> {
        tried!("look", claims::look(self, week, keys))
    }

    async fn looks(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<Looks>> {
        tried!("looks", looks::looks(self, week, keys))
    }

    async fn claim(&self, batch: &ClaimBatch<'_>) -> Result<Vec<ClaimAnswer>> {
        let asked = Instant::now();
        tried!("claim", |tries| claims::claim(self, batch, tries.in_doubt().then_some(asked)))
    }

    async fn settle(&self, run_number: i64, week: IsoWeek, requests: &[SettleRequest]) -> Result<Vec<SettleAnswer>> {
        tried!("settle", settles::settle(self, run_number, week, requests))
    }

    async fn ended_leases(&self, week: IsoWeek, keys: &[ReceiptKey]) -> Result<Vec<EndedLease>> {
        tried!("ended_leases", settles::ended_leases(self, week, keys))
    }

    async fn end_leases(&self, run_number: i64, week: IsoWeek, requests: &[SettleRequest]) -> Result<u64> {
        tried!("end_leases", settles::end_leases(self, run_number, week, requests))
    }

    async fn record_conflicts(&self, run_number: i64, week: IsoWeek, conflicts: &[ConflictRecord]) -> Result<()> {
        tried!("record_conflicts", conflicts::record_conflicts(self, run_number, week, conflicts))
    }

    async fn supersede(&self, run: &Run, keys: &[ReceiptKey]) -> Result<Vec<bool>> {
        tried!("supersede", versions::supersede(self, run, keys))
    }

    async fn review(&self, review: &Review) -> Result<ReviewAnswer> {
        tried!("review", |tries| reviews::review(self, review, tries.in_doubt()))
    }

    async fn close_run(&self, run: &Run, actor: &str, note: &str) -> Result<RunClosing> {
        tried!("close_run", reviews::close_run(self, run, actor, note))
    }

    async fn run_counts(&self, run: &Run, since: Timestamp) -> Result<RunCounts> {
        tried!("run_counts", runs::run_counts(self, run, since))
    }

    async fn next_due_at(&self, run_number: i64, besides: &[u32]) -> Result<Option<Timestamp>> {
        tried!("next_due_at", parts::next_due_at(self, run_number, besides))
    }

    async fn receipt(&self, key: &ReceiptKey) -> Result<Option<ReceiptRecord>> {
        tried!("receipt", records::receipt(self, key))
    }

    async fn events(&self, week: IsoWeek, key: &ReceiptKey) -> Result<Vec<EventRecord>> {
        tried!("events", records::events(self, week, key))
    }

    async fn receipts(&self, filter: &ReceiptFilter) -> Result<Vec<ReceiptRecord>> {
        tried!("receipts", records::receipts(self, filter))
    }

    async fn reserve(&self, destination: &str, count: u32, rate: Rate) -> Result<Reservation> {
        tried!("reserve", pace::reserve(self, destination, count, rate))
    }

    async fn pause(&self, destination: &str, until: Timestamp) -> Result<()> {
        tried!("pause", pace::pause(self, destination, until))
    }

    async fn pace(&self, destination: &str) -> Result<Pace> {
        tried!("pace", pace::pace(self, destination))
    }

    async fn open_breaker(&self, destination: &str) -> Result<bool> {
        tried!("open_breaker", pace::open_breaker(self, destination))
    }

    async fn take_probe(&self, destination: &str) -> Result<bool> {
        tried!("take_probe", pace::take_probe(self, destination))
    }

    async fn probe_answered(&self, destination: &str, opened_at: Timestamp, accepted: bool) -> Result<bool> {
        tried!("probe_answered", pace::probe_answered(self, destination, opened_at, accepted))
    }

    async fn close(&self) {
        // The last connection to go is the one that may write: it is the one that empties the log.
        self.readers.close().await;
        self.writer.close().await;
    }
}
