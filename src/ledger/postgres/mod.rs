//! The ledger on PostgreSQL 15 and newer, and on databases that speak as it does.
//!
//! Every statement runs inside an explicit transaction and is unnamed, so that it works behind a pooler that
//! lends a server connection for one transaction only: nothing outlives the transaction, neither a prepared
//! statement nor a setting nor a lock. Unnamed statements are also planned with the batch at hand, so that no
//! plan made for an empty table survives into a full one.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions};
use sqlx::query::{Query, QueryAs};
use sqlx::{ConnectOptions as _, Connection as _, FromRow, PgConnection, PgPool, Postgres, Transaction};

use super::failure::{Tries, Try, tried};
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

/// Connections of one process: claims, settles and looks of a few parts at a time.
const CONNECTIONS: u32 = 8;

/// How long a first connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long to wait for a free connection, or for the database to come back.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(30);

/// Begins every writing transaction. What it commits is on disk before the answer, and a row that another
/// transaction has changed is looked at again, whatever the server's defaults.
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on";

/// Begins every reading transaction.
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";

/// The database's clock with the test clock's offset.
const NOW: &str = "SELECT now() + $1 * interval '1 microsecond' AS now";

/// A ledger on PostgreSQL.
#[derive(Debug)]
pub(super) struct PostgresLedger {
    pool: PgPool,
    /// Microseconds that every statement adds to the database's clock.
    offset: i64,
}

impl PostgresLedger {
    /// Connects once, so that a wrong URL or a dead server is known at once.
    pub(super) async fn open(url: &str, clock_offset: SignedDuration) -> Result<Self> {
        let options: PgConnectOptions = url.parse().map_err(|_| LedgerError::Url)?;
        // A pooler refuses the start-up parameter for float digits, and no column is a float.
        let options =
            options.application_name("counterfoil").statement_cache_capacity(0).extra_float_digits(None::<i8>);
        let options = options.disable_statement_logging();
        let first = tokio::time::timeout(CONNECT_LIMIT, PgConnection::connect_with(&options));
        let first = first.await.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())));
        // Best effort: the connection has shown what it was made for.
        drop(first.map_err(LedgerError::Unreachable)?.close().await);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_LIMIT)
            .acquire_slow_threshold(ACQUIRE_LIMIT)
            // A stale connection shows in the first statement, which is tried again; asking before every
            // transaction would be a round trip each.
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Ok(Self { pool, offset: micros(clock_offset) })
    }

    async fn write(&self) -> Try<Transaction<'static, Postgres>> {
        Ok(self.pool.begin_with(BEGIN_WRITE).await?)
    }

    async fn read(&self) -> Try<Transaction<'static, Postgres>> {
        Ok(self.pool.begin_with(BEGIN_READ).await?)
    }

    async fn clock(&self, connection: &mut PgConnection) -> Try<Moment> {
        let (now,): (Moment,) = rows(NOW).bind(self.offset).fetch_one(connection).await?;
        Ok(now)
    }
}

/// A statement without rows.
fn statement<'q>(sql: &'static str) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql).persistent(false)
}

/// A statement whose rows are read as `Row`.
fn rows<'q, Row>(sql: &'static str) -> QueryAs<'q, Postgres, Row, PgArguments>
where
    Row: for<'r> FromRow<'r, sqlx::postgres::PgRow>,
{
    sqlx::query_as(sql).persistent(false)
}

/// A span as statements take it.
fn micros(span: SignedDuration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(if span.is_negative() { i64::MIN } else { i64::MAX })
}

#[async_trait]
impl Ledger for PostgresLedger {
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
        self.pool.close().await;
    }
}
