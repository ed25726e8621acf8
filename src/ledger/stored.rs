//! Rows as both databases store them, and what they mean. Statements name their columns alike, so that one
//! struct reads either; what no version of this program writes is reported as corrupt.

use jiff::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};

use super::{
    DestinationNumber, EndedLease, EventRecord, ForeignCounts, Found, Grant, IdentityPin, KeyPin, LedgerError, Mode,
    NewRun, ReceiptRecord, Result, Run, RunCounts, StandingPins,
};
use crate::identity::{ContentVersion, DigestType, Fingerprint, IsoWeek, ReceiptKey};
use crate::receipt::{EventKind, Reason, Standing, State};

/// An instant as both databases store it: whole microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(i64);

/// 2000-01-01T00:00:00Z, from which PostgreSQL counts, in microseconds since 1970.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;

impl Moment {
    pub(super) const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub(super) const fn micros(self) -> i64 {
        self.0
    }

    pub(super) fn timestamp(self) -> Result<Timestamp> {
        Timestamp::from_microsecond(self.0).map_err(|_| LedgerError::Corrupt { what: "time" })
    }
}

impl From<Timestamp> for Moment {
    fn from(timestamp: Timestamp) -> Self {
        Self(timestamp.as_microsecond())
    }
}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1185))
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> std::result::Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(self.0 - POSTGRES_EPOCH, buffer)
    }
}

impl Decode<'_, Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> std::result::Result<Self, BoxDynError> {
        let micros: i64 = Decode::<Postgres>::decode(value)?;
        Ok(Self(micros.saturating_add(POSTGRES_EPOCH)))
    }
}

impl Type<Sqlite> for Moment {
    fn type_info() -> SqliteTypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(found: &SqliteTypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(found)
    }
}

impl Encode<'_, Sqlite> for Moment {
    fn encode_by_ref(&self, buffer: &mut SqliteArgumentsBuffer) -> std::result::Result<IsNull, BoxDynError> {
        Encode::<Sqlite>::encode(self.0, buffer)
    }
}

impl Decode<'_, Sqlite> for Moment {
    fn decode(value: SqliteValueRef<'_>) -> std::result::Result<Self, BoxDynError> {
        Ok(Self(Decode::<Sqlite>::decode(value)?))
    }
}

/// A count as it is bound; both databases' integers are signed.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(stored: i64, what: &'static str) -> Result<u64> {
    u64::try_from(stored).map_err(|_| LedgerError::Corrupt { what })
}

fn small(stored: i32, what: &'static str) -> Result<u32> {
    u32::try_from(stored).map_err(|_| LedgerError::Corrupt { what })
}

pub(super) fn bytes<const N: usize>(stored: &[u8], what: &'static str) -> Result<[u8; N]> {
    stored.try_into().map_err(|_| LedgerError::Corrupt { what })
}

pub(super) fn key(stored: &[u8]) -> Result<ReceiptKey> {
    bytes(stored, "receipt key").map(ReceiptKey::from_bytes)
}

pub(super) fn fingerprint(stored: &[u8]) -> Result<Fingerprint> {
    bytes(stored, "fingerprint").map(Fingerprint::from_bytes)
}

pub(super) fn week(stored: i32) -> Result<IsoWeek> {
    IsoWeek::from_number(stored).ok_or(LedgerError::Corrupt { what: "week" })
}

pub(super) fn state(stored: &str) -> Result<State> {
    State::from_word(stored).ok_or(LedgerError::Corrupt { what: "state" })
}

fn reason(stored: Option<&str>) -> Result<Option<Reason>> {
    stored.map(|word| Reason::from_word(word).ok_or(LedgerError::Corrupt { what: "reason" })).transpose()
}

pub(super) fn time(stored: Option<Moment>) -> Result<Option<Timestamp>> {
    stored.map(Moment::timestamp).transpose()
}

fn digest_type(stored: &str) -> Result<DigestType> {
    DigestType::new(stored).map_err(|_| LedgerError::Corrupt { what: "digest type" })
}

fn content_version(stored: &str) -> Result<ContentVersion> {
    ContentVersion::new(stored).map_err(|_| LedgerError::Corrupt { what: "content version" })
}

/// A granted claim.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct GrantRow {
    pub(super) receipt_key: Vec<u8>,
    grant_number: i64,
    attempts: i32,
    claimed_at: Moment,
    first_claimed_at: Moment,
    first_attempt_at: Option<Moment>,
    ambiguous_since: Option<Moment>,
    destination_number: i32,
}

impl GrantRow {
    pub(super) fn grant(&self) -> Result<Grant> {
        Ok(Grant {
            grant_number: self.grant_number,
            attempts: small(self.attempts, "attempt count")?,
            claimed_at: self.claimed_at.timestamp()?,
            first_claimed_at: self.first_claimed_at.timestamp()?,
            first_attempt_at: time(self.first_attempt_at)?,
            ambiguous_since: time(self.ambiguous_since)?,
            destination: DestinationNumber(self.destination_number),
        })
    }
}

/// What a look finds, with what recognises a claim as one's own.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct StandingRow {
    pub(super) run_number: i64,
    fingerprint: Vec<u8>,
    state: String,
    lease_ends_at: Option<Moment>,
    next_attempt_at: Option<Moment>,
    pub(super) worker: Option<i64>,
    #[sqlx(flatten)]
    pub(super) granted: GrantRow,
}

impl StandingRow {
    pub(super) fn found(&self) -> Result<Found> {
        let destination = DestinationNumber(self.granted.destination_number);
        Ok(Found { standing: self.standing()?, run_number: self.run_number, destination })
    }

    pub(super) fn standing(&self) -> Result<Standing> {
        Ok(Standing {
            fingerprint: fingerprint(&self.fingerprint)?,
            state: state(&self.state)?,
            lease_ends_at: time(self.lease_ends_at)?,
            next_attempt_at: time(self.next_attempt_at)?,
            ambiguous_since: time(self.granted.ambiguous_since)?,
        })
    }
}

/// A claim whose lease has ended.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct EndedLeaseRow {
    fingerprint: Vec<u8>,
    part: i32,
    destination_name: String,
    #[sqlx(flatten)]
    granted: GrantRow,
}

impl EndedLeaseRow {
    pub(super) fn ended_lease(&self) -> Result<EndedLease> {
        Ok(EndedLease {
            key: key(&self.granted.receipt_key)?,
            fingerprint: fingerprint(&self.fingerprint)?,
            part: small(self.part, "part")?,
            destination: DestinationNumber(self.granted.destination_number),
            destination_name: self.destination_name.clone(),
            grant: self.granted.grant()?,
        })
    }
}

/// An event as the count of looks needs it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct LookRow {
    pub(super) receipt_key: Vec<u8>,
    kind: String,
    reason: Option<String>,
}

impl LookRow {
    pub(super) fn event(&self) -> Result<(EventKind, Option<Reason>)> {
        let kind = EventKind::from_word(&self.kind).ok_or(LedgerError::Corrupt { what: "kind of event" })?;
        Ok((kind, reason(self.reason.as_deref())?))
    }
}

/// A settled receipt.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct SettledRow {
    pub(super) receipt_key: Vec<u8>,
    pub(super) state: String,
}

/// A run.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct RunRow {
    pub(super) run_number: i64,
    run_id: String,
    iso_week: i32,
    digest_type: String,
    content_version: String,
    mode: String,
    snapshot_id: String,
    rows: i64,
    repeated: i64,
    rejected: i64,
    key_id: String,
    content_hash: Vec<u8>,
    deadline_at: Moment,
    correction: bool,
    only_unsent: bool,
    brake: Option<String>,
    opened_at: Moment,
    closed_at: Option<Moment>,
    closed_by: Option<String>,
    last_triggered_at: Moment,
}

impl RunRow {
    pub(super) fn last_triggered_at(&self) -> Result<Timestamp> {
        self.last_triggered_at.timestamp()
    }

    pub(super) fn run(self) -> Result<Run> {
        Ok(Run {
            run_number: self.run_number,
            new: NewRun {
                run_id: self.run_id,
                iso_week: week(self.iso_week)?,
                digest_type: digest_type(&self.digest_type)?,
                content_version: content_version(&self.content_version)?,
                mode: Mode::from_word(&self.mode).ok_or(LedgerError::Corrupt { what: "mode" })?,
                snapshot_id: self.snapshot_id,
                rows: count(self.rows, "row count")?,
                part_rows: Vec::new(),
                repeated: count(self.repeated, "row count")?,
                rejected: count(self.rejected, "row count")?,
                key_id: self.key_id,
                content_hash: bytes(&self.content_hash, "content hash")?,
                deadline_at: self.deadline_at.timestamp()?,
                correction: self.correction,
                only_unsent: self.only_unsent,
            },
            opened_at: self.opened_at.timestamp()?,
            closed_at: time(self.closed_at)?,
            closed_by: self.closed_by,
            brake: self.brake,
        })
    }
}

/// Everything that is pinned of one environment, week, type and version.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct PinsRow {
    environment: Option<String>,
    stable_check: Option<Vec<u8>>,
    key_id: Option<String>,
    key_check: Option<Vec<u8>>,
    content_hash: Option<Vec<u8>>,
}

impl PinsRow {
    pub(super) fn pins(self) -> Result<StandingPins> {
        let week_key = match (self.key_id, self.key_check) {
            (Some(key_id), Some(check)) => Some(KeyPin { key_id, check: bytes(&check, "check value")? }),
            _ => None,
        };
        Ok(StandingPins {
            environment: self.environment,
            stable: self.stable_check.map(|check| bytes(&check, "check value")).transpose()?,
            week_key,
            content_hash: self.content_hash.map(|hash| bytes(&hash, "content hash")).transpose()?,
        })
    }
}

/// A week's pinned key.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct KeyPinRow {
    iso_week: i32,
    key_id: String,
    key_check: Vec<u8>,
}

impl KeyPinRow {
    pub(super) fn key_pin(self) -> Result<(IsoWeek, KeyPin)> {
        Ok((week(self.iso_week)?, KeyPin { key_id: self.key_id, check: bytes(&self.key_check, "check value")? }))
    }
}

/// What a ledger is for.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct IdentityPinRow {
    environment: String,
    stable_check: Vec<u8>,
}

impl IdentityPinRow {
    pub(super) fn pin(self) -> Result<IdentityPin> {
        Ok(IdentityPin { environment: self.environment, stable: bytes(&self.stable_check, "check value")? })
    }
}

/// What became of a run's rows.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct CountsRow {
    sent: i64,
    reconciled: i64,
    sent_before: i64,
    in_progress: i64,
    retryable: i64,
    held: i64,
    failed_rejected: i64,
    failed_other: i64,
    quarantined: i64,
    suppressed: i64,
    attempts: i64,
    conflicts: i64,
    foreign_duplicate: i64,
    foreign_in_progress: i64,
    foreign_retryable: i64,
    foreign_held: i64,
    foreign_failed: i64,
    foreign_suppressed: i64,
    foreign_quarantined: i64,
    foreign_other_version: i64,
}

impl CountsRow {
    pub(super) fn counts(&self) -> Result<RunCounts> {
        let of = |stored| count(stored, "count");
        Ok(RunCounts {
            sent: of(self.sent)?,
            reconciled: of(self.reconciled)?,
            sent_before: of(self.sent_before)?,
            in_progress: of(self.in_progress)?,
            retryable: of(self.retryable)?,
            held: of(self.held)?,
            failed_rejected: of(self.failed_rejected)?,
            failed_other: of(self.failed_other)?,
            quarantined: of(self.quarantined)?,
            suppressed: of(self.suppressed)?,
            attempts: of(self.attempts)?,
            conflicts: of(self.conflicts)?,
            foreign: ForeignCounts {
                duplicate: of(self.foreign_duplicate)?,
                in_progress: of(self.foreign_in_progress)?,
                retryable: of(self.foreign_retryable)?,
                held: of(self.foreign_held)?,
                failed: of(self.foreign_failed)?,
                suppressed: of(self.foreign_suppressed)?,
                quarantined: of(self.foreign_quarantined)?,
                other_version: of(self.foreign_other_version)?,
            },
        })
    }
}

/// Where a receipt stands.
pub(super) fn standing(receipt: &super::image::Image) -> Result<Standing> {
    Ok(Standing {
        fingerprint: fingerprint(&receipt.fingerprint)?,
        state: state(&receipt.state)?,
        lease_ends_at: time(receipt.lease_ends_at)?,
        next_attempt_at: time(receipt.next_attempt_at)?,
        ambiguous_since: time(receipt.ambiguous_since)?,
    })
}

/// A receipt as people look at it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct RecordRow {
    iso_week: i32,
    digest_type: String,
    content_version: String,
    destination: String,
    key_id: String,
    run_id: String,
    #[sqlx(flatten)]
    receipt: super::image::Image,
}

impl RecordRow {
    pub(super) fn record(self) -> Result<ReceiptRecord> {
        let receipt = self.receipt;
        Ok(ReceiptRecord {
            key: key(&receipt.receipt_key)?,
            iso_week: week(self.iso_week)?,
            digest_type: digest_type(&self.digest_type)?,
            content_version: content_version(&self.content_version)?,
            standing: standing(&receipt)?,
            reason: reason(receipt.reason.as_deref())?,
            in_conflict: receipt.in_conflict,
            attempts: small(receipt.attempts, "attempt count")?,
            grant_number: receipt.grant_number,
            first_claimed_at: receipt.first_claimed_at.timestamp()?,
            sent_at: time(receipt.sent_at)?,
            destination: self.destination,
            provider_reference: receipt.provider_reference,
            provider_code: receipt.provider_code,
            key_id: self.key_id,
            run_id: self.run_id,
            part: small(receipt.part, "part")?,
            updated_at: receipt.updated_at.timestamp()?,
        })
    }
}

/// An event.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct EventRow {
    event_id: i64,
    kind: String,
    at: Moment,
    grant_number: i64,
    claimed_at: Option<Moment>,
    state: String,
    reason: Option<String>,
    attempts: i32,
    provider_reference: Option<String>,
    provider_code: Option<String>,
    presented: Option<Vec<u8>>,
    actor: Option<String>,
    note: Option<String>,
}

impl EventRow {
    pub(super) fn event(self) -> Result<EventRecord> {
        Ok(EventRecord {
            event_id: self.event_id,
            kind: EventKind::from_word(&self.kind).ok_or(LedgerError::Corrupt { what: "event kind" })?,
            at: self.at.timestamp()?,
            grant_number: self.grant_number,
            claimed_at: time(self.claimed_at)?,
            state: state(&self.state)?,
            reason: reason(self.reason.as_deref())?,
            attempts: small(self.attempts, "attempt count")?,
            provider_reference: self.provider_reference,
            provider_code: self.provider_code,
            presented: self.presented.as_deref().map(fingerprint).transpose()?,
            actor: self.actor,
            note: self.note,
        })
    }
}
