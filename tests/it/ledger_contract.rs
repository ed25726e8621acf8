//! What every ledger promises, run on SQLite and on PostgreSQL alike.
//!
//! Time moves by opening another handle whose clock is ahead, never by waiting.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say where"
)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small test numbers")]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use counterfoil::identity::{ContentVersion, DigestType, Fingerprint, IsoWeek, ReceiptKey};
use counterfoil::ledger::{
    ClaimAnswer, ClaimBatch, ClaimRequest, ConflictRecord, DatabaseMark, DestinationNumber, ForeignCounts, Grant,
    KeyPin, Ledger, LedgerError, Mode, NewRun, Pace, PartEnd, PartGrant, PartTrust, Pins, Purpose, Rate, ReceiptFilter,
    Run, SettleAnswer, SettleRequest,
};
use counterfoil::receipt::breaker::PROBE_INTERVAL;
use counterfoil::receipt::{EventKind, Reason, Settlement, State, Verdict};
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;

use crate::databases::{Backend, Cut, Fresh, Proxy, each_ledger};

const LEASE: SignedDuration = SignedDuration::from_mins(5);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const WORKER: i64 = 7_001;

fn week() -> IsoWeek {
    "2026-W32".parse().unwrap()
}

fn digest_type() -> DigestType {
    DigestType::new("weekly_activity").unwrap()
}

fn version() -> ContentVersion {
    ContentVersion::new("v1").unwrap()
}

/// Bytes that look like a hash and differ for every number.
fn spread(number: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (word, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17 * word as u32 + 5);
        chunk.copy_from_slice(&mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes());
    }
    bytes
}

fn key(number: u64) -> ReceiptKey {
    ReceiptKey::from_bytes(spread(number))
}

/// The content that belongs to `key(number)`.
fn content(number: u64) -> Fingerprint {
    Fingerprint::from_bytes(spread(number + 1_000_000_000))
}

/// Another content under the same key.
fn other_content(number: u64) -> Fingerprint {
    Fingerprint::from_bytes(spread(number + 2_000_000_000))
}

fn requests(numbers: impl IntoIterator<Item = u64>) -> Vec<ClaimRequest> {
    numbers.into_iter().map(|n| ClaimRequest { key: key(n), fingerprint: content(n), part: 0 }).collect()
}

fn new_run(snapshot: &str) -> NewRun {
    NewRun {
        run_id: format!("2026-W32-weekly_activity-v1-{snapshot}"),
        iso_week: week(),
        digest_type: digest_type(),
        content_version: version(),
        mode: Mode::Enforce,
        snapshot_id: snapshot.to_owned(),
        rows: 3_000,
        part_rows: vec![1_000, 1_000, 1_000],
        repeated: 2,
        rejected: 1,
        key_id: "k1".to_owned(),
        content_hash: [7; 32],
        deadline_at: "2026-08-13T00:00:00Z".parse().unwrap(),
        correction: false,
        only_unsent: false,
    }
}

/// A ledger with one open run and one destination.
struct World<'a> {
    fresh: &'a Fresh,
    ledger: Arc<dyn Ledger>,
    run: Run,
    destination: DestinationNumber,
}

impl<'a> World<'a> {
    async fn on(fresh: &'a Fresh) -> Self {
        let ledger = fresh.open().await;
        let run = ledger.open_run(&new_run("first")).await.unwrap().run().unwrap();
        let destination = ledger.destination("retail", &[1; 32]).await.unwrap();
        Self { fresh, ledger, run, destination }
    }

    /// The same with the clock ahead.
    async fn later(&self, offset: SignedDuration) -> Self {
        let ledger = self.fresh.open_later(offset).await;
        Self { fresh: self.fresh, ledger, run: self.run.clone(), destination: self.destination }
    }

    fn batch<'b>(&self, requests: &'b [ClaimRequest], purpose: Purpose) -> ClaimBatch<'b> {
        ClaimBatch {
            run_number: self.run.run_number,
            iso_week: week(),
            worker: WORKER,
            destination: self.destination,
            lease: LEASE,
            purpose,
            requests,
        }
    }

    async fn claim_all(&self, requests: &[ClaimRequest], purpose: Purpose) -> Vec<ClaimAnswer> {
        self.ledger.claim(&self.batch(requests, purpose)).await.unwrap()
    }

    async fn ask(&self, number: u64, fingerprint: Fingerprint) -> ClaimAnswer {
        let request = [ClaimRequest { key: key(number), fingerprint, part: 0 }];
        self.claim_all(&request, Purpose::Send).await.remove(0)
    }

    async fn claim(&self, number: u64) -> ClaimAnswer {
        self.ask(number, content(number)).await
    }

    async fn granted(&self, number: u64) -> Grant {
        granted(self.claim(number).await)
    }

    async fn reconcile(&self, number: u64) -> ClaimAnswer {
        self.claim_all(&requests([number]), Purpose::Reconcile).await.remove(0)
    }

    fn end(&self, number: u64, grant: &Grant, settlement: Settlement) -> SettleRequest {
        SettleRequest {
            key: key(number),
            fingerprint: content(number),
            part: 0,
            grant_number: grant.grant_number,
            claimed_at: grant.claimed_at,
            first_claimed_at: grant.first_claimed_at,
            first_attempt_at: grant.first_attempt_at.or((settlement.attempts > 0).then_some(grant.claimed_at)),
            destination: self.destination,
            settlement,
        }
    }

    async fn settle(&self, number: u64, grant: &Grant, settlement: Settlement) -> SettleAnswer {
        let request = [self.end(number, grant, settlement)];
        self.ledger.settle(self.run.run_number, week(), &request).await.unwrap().remove(0)
    }

    /// Brings a fresh receipt into a state.
    async fn bring(&self, number: u64, settlement: Settlement) {
        let grant = self.granted(number).await;
        let state = settlement.state;
        assert_eq!(self.settle(number, &grant, settlement).await, SettleAnswer::Recorded(state));
    }

    async fn conflict(&self, number: u64) {
        let record = [ConflictRecord { key: key(number), presented: other_content(number), part: 0 }];
        self.ledger.record_conflicts(self.run.run_number, week(), &record).await.unwrap();
    }

    async fn state(&self, number: u64) -> State {
        self.ledger.look(week(), &[key(number)]).await.unwrap()[0].as_ref().unwrap().standing.state
    }

    async fn kinds(&self, number: u64) -> Vec<EventKind> {
        self.ledger.events(week(), &key(number)).await.unwrap().iter().map(|event| event.kind).collect()
    }
}

fn granted(answer: ClaimAnswer) -> Grant {
    match answer {
        ClaimAnswer::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn settled(state: State, reason: Option<Reason>) -> Settlement {
    Settlement {
        event: EventKind::Settle,
        state,
        reason,
        next_attempt_at: None,
        ambiguous_since: None,
        attempts: 1,
        provider_reference: None,
        provider_code: Some("250".to_owned()),
        reconciled: false,
    }
}

fn sent(reference: &str) -> Settlement {
    Settlement { provider_reference: Some(reference.to_owned()), ..settled(State::Sent, None) }
}

fn retry(at: Timestamp) -> Settlement {
    Settlement { next_attempt_at: Some(at), ..settled(State::Retryable, Some(Reason::Unavailable)) }
}

fn in_doubt(at: Timestamp, since: Timestamp) -> Settlement {
    Settlement {
        next_attempt_at: Some(at),
        ambiguous_since: Some(since),
        ..settled(State::Retryable, Some(Reason::Ambiguous))
    }
}

fn lease_end(at: Timestamp, since: Timestamp) -> Settlement {
    Settlement {
        event: EventKind::LeaseEnd,
        provider_code: None,
        reason: Some(Reason::LeaseEnded),
        ..in_doubt(at, since)
    }
}

fn given_back(at: Timestamp) -> Settlement {
    Settlement {
        event: EventKind::GiveBack,
        attempts: 0,
        provider_code: None,
        next_attempt_at: Some(at),
        ..settled(State::Retryable, Some(Reason::GivenBack))
    }
}

fn held(since: Timestamp) -> Settlement {
    Settlement { ambiguous_since: Some(since), ..settled(State::Held, Some(Reason::Undecidable)) }
}

fn failed() -> Settlement {
    settled(State::Failed, Some(Reason::Rejected))
}

fn suppressed() -> Settlement {
    settled(State::Suppressed, Some(Reason::OnProviderList))
}

/// A receipt in every state: the number of its key, and the state.
async fn one_in_every_state(world: &World<'_>) -> Vec<(u64, State)> {
    let now = world.ledger.now().await.unwrap();
    world.granted(1).await;
    world.bring(2, sent("r-2")).await;
    world.bring(3, retry(now)).await;
    world.bring(4, held(now)).await;
    world.bring(5, failed()).await;
    world.bring(6, retry(now)).await;
    world.conflict(6).await;
    world.bring(7, suppressed()).await;
    let states = [
        (1, State::Claimed),
        (2, State::Sent),
        (3, State::Retryable),
        (4, State::Held),
        (5, State::Failed),
        (6, State::Quarantined),
        (7, State::Suppressed),
    ];
    for (number, state) in states {
        assert_eq!(world.state(number).await, state);
    }
    states.to_vec()
}

// --- Schema ---------------------------------------------------------------------------------------------------

#[tokio::test]
async fn an_empty_database_asks_for_a_migration_and_is_content_after_it() {
    each_ledger(async |fresh| {
        let ledger = fresh.open_bare().await;
        assert!(matches!(ledger.check_schema().await, Err(LedgerError::Schema { found: 0, .. })));
        ledger.migrate().await.unwrap();
        ledger.check_schema().await.unwrap();
        ledger.migrate().await.unwrap();
        ledger.check_schema().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn eight_migrate_at_once_and_all_find_it_done() {
    each_ledger(async |fresh| {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let url = fresh.url.clone();
            tasks.spawn(async move {
                let ledger = counterfoil::ledger::open(&url, SignedDuration::ZERO).await.unwrap();
                ledger.migrate().await.unwrap();
                ledger.check_schema().await.unwrap();
            });
        }
        tasks.join_all().await;
    })
    .await;
}

#[tokio::test]
async fn a_ledger_that_is_newer_than_the_program_is_refused() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let checksum = if fresh.backend == Backend::Sqlite { "x'00'" } else { "'\\x00'" };
        fresh
            .execute(&format!(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9000, 'from the future', true, {checksum}, 0)"
            ))
            .await
            .unwrap();
        assert!(matches!(ledger.check_schema().await, Err(LedgerError::Schema { found: 9000, .. })));
        assert!(matches!(ledger.migrate().await, Err(LedgerError::Schema { found: 9000, .. })));
    })
    .await;
}

#[tokio::test]
async fn a_url_of_another_kind_or_a_dead_server_is_said_so_without_the_password() {
    for url in ["mysql://u:secret@host/db", "counterfoil.db", "sqlite://", "sqlite:///tmp/x.db?mode=rwc"] {
        let refused = counterfoil::ledger::open(&url.into(), SignedDuration::ZERO).await.err().unwrap();
        assert!(matches!(refused, LedgerError::Url), "{url}");
    }
    let dead = "postgres://someone:secret@127.0.0.1:9/nowhere";
    let refused = counterfoil::ledger::open(&dead.into(), SignedDuration::ZERO).await.err().unwrap();
    assert!(matches!(refused, LedgerError::Unreachable(_)));
    assert!(!format!("{refused} {refused:?}").contains("secret"));
}

#[tokio::test]
#[cfg(unix)]
async fn a_new_sqlite_file_is_readable_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let fresh = Fresh::sqlite();
    let world = World::on(&fresh).await;
    world.granted(1).await;
    for suffix in ["", "-wal", "-shm"] {
        let mut path = fresh.path().into_os_string();
        path.push(suffix);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

// --- Pins -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_pin_never_changes() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let nothing = ledger.pins(week(), &digest_type(), &version()).await.unwrap();
        assert_eq!(nothing, Default::default());
        let pins = Pins {
            environment: "production".to_owned(),
            stable: [1; 8],
            iso_week: week(),
            week_key: KeyPin { key_id: "k1".to_owned(), check: [2; 8] },
            digest_type: digest_type(),
            content_version: version(),
            content_hash: [3; 32],
        };
        let first = ledger.pin(&pins).await.unwrap();
        assert_eq!(first.environment.as_deref(), Some("production"));
        assert_eq!(first.stable, Some([1; 8]));
        assert_eq!(first.week_key, Some(pins.week_key.clone()));
        assert_eq!(first.content_hash, Some([3; 32]));
        let changed = Pins {
            environment: "staging".to_owned(),
            stable: [9; 8],
            week_key: KeyPin { key_id: "k9".to_owned(), check: [9; 8] },
            content_hash: [9; 32],
            ..pins.clone()
        };
        assert_eq!(ledger.pin(&changed).await.unwrap(), first);
        assert_eq!(ledger.pins(week(), &digest_type(), &version()).await.unwrap(), first);
        let next = Pins { iso_week: week().next().unwrap(), ..changed.clone() };
        assert_eq!(ledger.pin(&next).await.unwrap().week_key, Some(changed.week_key.clone()));
        let keys = ledger.key_pins().await.unwrap();
        assert_eq!(keys, [(week().next().unwrap(), changed.week_key), (week(), pins.week_key)]);
    })
    .await;
}

// --- Runs and parts ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_run_that_is_started_again_is_joined_and_counted() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let first = ledger.open_run(&new_run("first")).await.unwrap().run().unwrap();
        assert_eq!(first.new, NewRun { part_rows: Vec::new(), ..new_run("first") });
        ledger.set_brake(first.run_number, Some("too many conflicts")).await.unwrap();
        assert_eq!(ledger.run(&first.new.run_id).await.unwrap().unwrap().brake.as_deref(), Some("too many conflicts"));
        let again = fresh.open_later(HOUR).await.open_run(&new_run("first")).await.unwrap().run().unwrap();
        assert_eq!(again, first, "joining clears the brake and changes nothing else");
        assert_eq!(fresh.value("SELECT trigger_count FROM runs").await, "2");
        assert_eq!(fresh.value("SELECT count(*) FROM run_parts").await, "3");
        assert_eq!(ledger.run("nobody").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn runs_are_found_by_week_type_and_snapshot_and_observing_is_a_pass_of_its_own() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let first = ledger.open_run(&new_run("first")).await.unwrap().run().unwrap();
        let second = ledger.open_run(&new_run("second")).await.unwrap().run().unwrap();
        let advisory = NewRun { run_id: "advisory".to_owned(), mode: Mode::Advisory, ..new_run("first") };
        let advisory = ledger.open_run(&advisory).await.unwrap().run().unwrap();
        for pass in ["pass-1", "pass-2"] {
            let observe = NewRun { run_id: pass.to_owned(), mode: Mode::Observe, ..new_run("first") };
            ledger.open_run(&observe).await.unwrap().run().unwrap();
        }
        let twin = NewRun { run_id: "twin".to_owned(), ..new_run("first") };
        assert!(matches!(ledger.open_run(&twin).await, Err(LedgerError::Refused { .. })));
        let claiming = [first.clone(), second.clone(), advisory.clone()];
        assert_eq!(ledger.open_runs().await.unwrap(), claiming);
        assert_eq!(ledger.runs_of_week(week(), &digest_type()).await.unwrap(), claiming);
        assert_eq!(ledger.runs_of_week(week().next().unwrap(), &digest_type()).await.unwrap(), []);
        assert_eq!(ledger.last_enforced_run(&digest_type()).await.unwrap(), Some(second));
        assert_eq!(ledger.runs_of_snapshot("first").await.unwrap(), [first]);
    })
    .await;
}

#[tokio::test]
async fn every_part_is_held_by_one_worker_and_comes_back_when_its_lease_ends_or_it_is_due() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let (ledger, run) = (&world.ledger, world.run.run_number);
        for expected in 0..3 {
            let grant = ledger.take_part(run, WORKER + i64::from(expected), LEASE).await.unwrap();
            assert_eq!(grant, PartGrant::Taken { part: expected });
        }
        let PartGrant::None { next_due_at: Some(lease_ends) } = ledger.take_part(run, 1, LEASE).await.unwrap() else {
            panic!("all parts are held");
        };
        assert!(lease_ends > ledger.now().await.unwrap());
        let counts = ForeignCounts { duplicate: 5, held: 1, ..Default::default() };
        let due = ledger.now().await.unwrap() + HOUR;
        ledger.end_part(run, 0, WORKER, PartEnd::Done, &counts).await.unwrap();
        ledger.end_part(run, 1, WORKER, PartEnd::Done, &counts).await.unwrap();
        ledger.end_part(run, 1, WORKER + 1, PartEnd::Waiting { until: due }, &counts).await.unwrap();
        assert!(ledger.renew_part(run, 2, WORKER + 2, LEASE).await.unwrap());
        assert!(!ledger.renew_part(run, 2, WORKER, LEASE).await.unwrap(), "somebody else's");
        assert!(!ledger.renew_part(run, 0, WORKER, LEASE).await.unwrap(), "let go");
        let late = world.later(LEASE + SignedDuration::from_mins(1)).await.ledger;
        assert_eq!(late.take_part(run, 1, LEASE).await.unwrap(), PartGrant::Taken { part: 2 }, "its lease ended");
        late.end_part(run, 2, WORKER + 2, PartEnd::Done, &counts).await.unwrap();
        assert!(!late.renew_part(run, 2, WORKER + 2, LEASE).await.unwrap(), "no longer theirs");
        late.end_part(run, 2, 1, PartEnd::Done, &counts).await.unwrap();
        let waiting = late.take_part(run, 1, LEASE).await.unwrap();
        let micros = |at: Timestamp| at.as_microsecond();
        let PartGrant::None { next_due_at: Some(at) } = waiting else { panic!("part 1 is due in an hour") };
        assert_eq!(micros(at), micros(due));
        assert_eq!(late.next_due_at(run, &[]).await.unwrap().map(micros), Some(micros(due)));
        let due = world.later(HOUR + LEASE).await.ledger;
        assert_eq!(due.take_part(run, 1, LEASE).await.unwrap(), PartGrant::Taken { part: 1 });
        due.end_part(run, 1, 1, PartEnd::Open, &ForeignCounts::default()).await.unwrap();
        assert_eq!(due.take_part(run, 1, LEASE).await.unwrap(), PartGrant::Taken { part: 1 });
        let foreign = due.run_counts(&world.run, Timestamp::UNIX_EPOCH).await.unwrap().foreign;
        assert_eq!(foreign, ForeignCounts { duplicate: 10, held: 2, ..Default::default() });
    })
    .await;
}

#[tokio::test]
async fn marks_visits_and_doubts_of_a_run_are_remembered_and_an_accepted_loss_ends_the_doubts() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let (ledger, run) = (&world.ledger, world.run.run_number);
        let micros = |at: Timestamp| at.as_microsecond();
        let parts = async |part| {
            let trust = ledger.trust(run, part).await.unwrap();
            let part = |part: &PartTrust| (part.part, part.marked, part.done, part.doubted_since.map(micros));
            trust.parts.iter().map(part).collect::<Vec<_>>()
        };
        assert_eq!(parts(None).await, [0, 1, 2].map(|part| (part, false, false, None)));
        ledger.mark_part(run, 1).await.unwrap();
        ledger.mark_part(run, 1).await.unwrap();
        assert_eq!(parts(Some(1)).await, [(1, true, false, None)]);
        assert_eq!((ledger.visit(run).await.unwrap(), ledger.visit(run).await.unwrap()), (1, 2));

        assert_eq!(ledger.take_part(run, WORKER, LEASE).await.unwrap(), PartGrant::Taken { part: 0 });
        ledger.end_part(run, 0, WORKER, PartEnd::Done, &ForeignCounts::default()).await.unwrap();
        let (early, late) = (world.run.opened_at, world.run.opened_at + HOUR);
        let doubted = ledger.doubt_parts(run, &[(0, early), (1, late), (2, late)], 7).await.unwrap();
        assert_eq!(doubted, 2, "what is done is trusted");
        ledger.doubt_parts(run, &[(1, early)], 3).await.unwrap();
        ledger.doubt_parts(run, &[(1, late)], 3).await.unwrap();
        let [early, late] = [early, late].map(|at| Some(micros(at)));
        assert_eq!(parts(None).await, [(0, false, true, None), (1, true, false, early), (2, true, false, late)]);
        ledger.doubt_entered(run, 2).await.unwrap();
        assert_eq!(parts(Some(2)).await, [(2, true, false, None)]);
        let trust = ledger.trust(run, Some(0)).await.unwrap();
        assert_eq!((trust.visits, trust.loss_accepted_at, trust.takes_new), (7, None, true));

        ledger.accept_loss(run, &[0], 9).await.unwrap();
        assert_eq!(parts(None).await, [(0, true, true, None), (1, true, false, None), (2, true, false, None)]);
        let trust = ledger.trust(run, None).await.unwrap();
        assert_eq!((trust.visits, trust.loss_accepted_at.is_some()), (9, true));
        ledger.close_run(&world.run, "ops", "wrong export").await.unwrap();
        assert!(!ledger.trust(run, None).await.unwrap().takes_new);
    })
    .await;
}

#[tokio::test]
async fn a_run_knows_the_database_that_it_was_opened_in_and_a_copy_of_it_is_another_one() {
    let fresh = Fresh::sqlite();
    let trust = World::on(&fresh).await.ledger.trust(1, None).await.unwrap();
    assert_eq!(trust.answering, DatabaseMark::default(), "a copied file says nothing else");

    let fresh = Fresh::postgres().await;
    let world = World::on(&fresh).await;
    let run = world.run.run_number;
    let trust = world.ledger.trust(run, None).await.unwrap();
    assert!(trust.known.identity.is_some() && trust.known.timeline.as_deref() == Some("00000001"), "{trust:?}");
    assert!(!trust.answering.differs_from(&trust.known));
    for column in ["database_identity", "database_timeline"] {
        fresh.execute(&format!("UPDATE runs SET {column} = 'another'")).await.unwrap();
        let trust = world.ledger.trust(run, None).await.unwrap();
        assert!(trust.answering.differs_from(&trust.known), "{column}");
        world.ledger.doubt_parts(run, &[], 0).await.unwrap();
        let trust = world.ledger.trust(run, None).await.unwrap();
        assert!(!trust.answering.differs_from(&trust.known), "acted upon");
        fresh.execute(&format!("UPDATE runs SET {column} = NULL")).await.unwrap();
        let trust = world.ledger.trust(run, None).await.unwrap();
        assert!(!trust.answering.differs_from(&trust.known), "what does not tell differs from nothing");
    }
}

#[tokio::test]
async fn a_postgresql_that_refuses_to_tell_what_it_is_serves_all_the_same() {
    let fresh = Fresh::postgres().await;
    drop(fresh.open().await);
    let role = format!("limited_{}", std::process::id());
    fresh
        .execute(&format!(
            "DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; \
             GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}; \
             REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public; \
             REVOKE EXECUTE ON FUNCTION pg_current_wal_insert_lsn() FROM public"
        ))
        .await
        .unwrap();
    let url = fresh.url.expose_secret().replace("counterfoil@", &format!("{role}@"));
    let ledger = counterfoil::ledger::open(&url.into(), SignedDuration::ZERO).await.unwrap();
    let run = ledger.open_run(&new_run("first")).await.unwrap().run().unwrap();
    let trust = ledger.trust(run.run_number, None).await.unwrap();
    assert_eq!((trust.known, trust.answering), (DatabaseMark::default(), DatabaseMark::default()));
    ledger.close().await;
    fresh.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn workers_that_ask_at_once_get_different_parts() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let wide = NewRun { part_rows: vec![1_000; 40], ..new_run("wide") };
        let run = world.ledger.open_run(&wide).await.unwrap().run().unwrap().run_number;
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..40 {
            let ledger = world.ledger.clone();
            tasks.spawn(async move { ledger.take_part(run, worker, LEASE).await.unwrap() });
        }
        let taken: HashSet<u32> = tasks
            .join_all()
            .await
            .into_iter()
            .filter_map(|grant| match grant {
                PartGrant::Taken { part } => Some(part),
                PartGrant::None { .. } => None,
            })
            .collect();
        // Who finds every row locked by others is told to come back at once.
        let mut rest = 40 - taken.len();
        while let PartGrant::Taken { .. } = world.ledger.take_part(run, 99, LEASE).await.unwrap() {
            rest -= 1;
        }
        assert_eq!(rest, 0);
    })
    .await;
}

#[tokio::test]
async fn a_run_closes_when_every_part_is_done_and_no_receipt_waits() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let (ledger, run) = (&world.ledger, &world.run);
        let now = ledger.now().await.unwrap();
        world.bring(1, sent("r")).await;
        world.bring(2, held(now)).await;
        world.bring(3, retry(now)).await;
        for _ in 0..3 {
            assert!(!ledger.close_finished_run(run).await.unwrap(), "parts are open");
            let PartGrant::Taken { part } = ledger.take_part(run.run_number, WORKER, LEASE).await.unwrap() else {
                panic!("three parts");
            };
            let end = PartEnd::Done;
            ledger.end_part(run.run_number, part, WORKER, end, &ForeignCounts::default()).await.unwrap();
        }
        assert!(!ledger.close_finished_run(run).await.unwrap(), "a receipt waits");
        let again = ledger.take_part(run.run_number, WORKER, LEASE).await.unwrap();
        assert_eq!(again, PartGrant::Taken { part: 0 }, "its part is open again");
        world.bring(3, sent("r-3")).await;
        ledger.end_part(run.run_number, 0, WORKER, PartEnd::Done, &ForeignCounts::default()).await.unwrap();
        assert!(ledger.close_finished_run(run).await.unwrap());
        assert!(ledger.close_finished_run(run).await.unwrap(), "closed already");
        assert!(ledger.run(&run.new.run_id).await.unwrap().unwrap().closed_at.is_some());
        assert_eq!(ledger.open_runs().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_closed_run_grants_nothing() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        world.bring(1, retry(now)).await;
        fresh.execute("UPDATE runs SET closed_at = opened_at").await.unwrap();
        for number in [1, 2] {
            assert_eq!(world.claim(number).await, ClaimAnswer::RunClosed);
        }
        assert_eq!(world.reconcile(1).await, ClaimAnswer::RunClosed);
        assert_eq!(world.state(1).await, State::Retryable);
        assert_eq!(world.ledger.look(week(), &[key(2)]).await.unwrap(), [None]);
        let run = world.run.run_number;
        let none = PartGrant::None { next_due_at: None };
        assert_eq!(world.ledger.take_part(run, WORKER, LEASE).await.unwrap(), none);
    })
    .await;
}

// --- Claims ---------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_first_claim_is_granted_and_says_when() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let before = world.ledger.now().await.unwrap();
        let grant = world.granted(1).await;
        let after = world.ledger.now().await.unwrap();
        assert!(before <= grant.claimed_at && grant.claimed_at <= after);
        let expected = Grant {
            grant_number: 1,
            attempts: 0,
            claimed_at: grant.claimed_at,
            first_claimed_at: grant.claimed_at,
            first_attempt_at: None,
            ambiguous_since: None,
            destination: world.destination,
        };
        assert_eq!(grant, expected);
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(record.standing.lease_ends_at, Some(grant.claimed_at + LEASE));
        assert_eq!(world.kinds(1).await, [], "the event that ends a claim carries it");
    })
    .await;
}

#[tokio::test]
async fn every_state_gives_its_own_answer() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        one_in_every_state(&world).await;
        world.bring(8, retry(now + HOUR)).await;
        world.bring(9, in_doubt(now, now)).await;
        let refused = async |number| match world.claim(number).await {
            ClaimAnswer::Refused(verdict) => verdict,
            other => panic!("{number}: {other:?}"),
        };
        assert!(matches!(refused(1).await, Verdict::InProgress { .. }));
        assert_eq!(refused(2).await, Verdict::Duplicate);
        assert_eq!(refused(4).await, Verdict::Settled(State::Held));
        assert_eq!(refused(5).await, Verdict::Settled(State::Failed));
        assert_eq!(refused(6).await, Verdict::Settled(State::Quarantined));
        assert_eq!(refused(7).await, Verdict::Settled(State::Suppressed));
        assert!(matches!(refused(8).await, Verdict::NotDue { .. }));
        assert_eq!(refused(9).await, Verdict::Ambiguous);
        assert_eq!(granted(world.claim(3).await).grant_number, 2);
        let later = world.later(HOUR + LEASE).await;
        assert_eq!(later.claim(1).await, ClaimAnswer::Refused(Verdict::LeaseEnded));
        assert_eq!(granted(later.claim(8).await).attempts, 1);
    })
    .await;
}

#[tokio::test]
async fn the_fingerprint_is_compared_first_in_every_state() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let states = one_in_every_state(&world).await;
        let later = world.later(HOUR).await;
        for (number, state) in states {
            for asker in [&world, &later] {
                let answer = asker.ask(number, other_content(number)).await;
                assert_eq!(answer, ClaimAnswer::Refused(Verdict::Conflict), "{state}");
            }
            assert_eq!(world.state(number).await, state, "asking changes nothing");
        }
    })
    .await;
}

#[tokio::test]
async fn a_reconciliation_is_granted_only_where_something_is_in_doubt() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let not_now = |answer| matches!(answer, ClaimAnswer::Refused(Verdict::NotDue { .. }));
        assert!(not_now(world.reconcile(1).await), "never inserts");
        assert_eq!(world.ledger.look(week(), &[key(1)]).await.unwrap(), [None]);
        world.bring(2, retry(now)).await;
        assert!(not_now(world.reconcile(2).await), "nothing in doubt");
        world.bring(3, in_doubt(now, now)).await;
        let grant = granted(world.reconcile(3).await);
        assert_eq!((grant.grant_number, grant.attempts), (2, 1));
        assert!(grant.ambiguous_since.is_some() && grant.first_attempt_at.is_some());
    })
    .await;
}

#[tokio::test]
async fn while_an_attempt_is_in_doubt_its_destination_is_remembered() {
    each_ledger(async |fresh| {
        let mut world = World::on(fresh).await;
        let first = world.destination;
        let now = world.ledger.now().await.unwrap();
        world.bring(1, in_doubt(now, now)).await;
        world.bring(2, retry(now)).await;
        world.destination = world.ledger.destination("retail", &[2; 32]).await.unwrap();
        assert_ne!(world.destination, first);
        assert_eq!(granted(world.reconcile(1).await).destination, first);
        assert_eq!(granted(world.claim(2).await).destination, world.destination);
    })
    .await;
}

#[tokio::test]
async fn answers_come_in_the_order_of_the_requests() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(3, sent("r")).await;
        let answers = world.claim_all(&requests([9, 3, 1, 7]), Purpose::Send).await;
        let is_granted: Vec<bool> = answers.iter().map(|a| matches!(a, ClaimAnswer::Granted(_))).collect();
        assert_eq!(is_granted, [true, false, true, true]);
        assert_eq!(answers[1], ClaimAnswer::Refused(Verdict::Duplicate));
        let found = world.ledger.look(week(), &[key(3), key(8), key(9), key(3)]).await.unwrap();
        let states: Vec<_> = found.iter().map(|found| found.as_ref().map(|found| found.standing.state)).collect();
        assert_eq!(states, [Some(State::Sent), None, Some(State::Claimed), Some(State::Sent)]);
        assert!(found.iter().flatten().all(|found| found.run_number == world.run.run_number));
        assert_eq!(world.claim_all(&[], Purpose::Send).await, []);
        assert_eq!(world.ledger.look(week(), &[]).await.unwrap(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_claimers_of_a_thousand_keys_get_a_thousand_grants() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let mut handles = vec![world.ledger.clone()];
        for _ in 1..4 {
            handles.push(fresh.open().await);
        }
        let (run, destination) = (world.run.run_number, world.destination);
        let mut tasks = tokio::task::JoinSet::new();
        for claimer in 0..64_u64 {
            let ledger = handles[claimer as usize % handles.len()].clone();
            tasks.spawn(async move {
                let mut numbers: Vec<u64> = (0..1_000).collect();
                numbers.rotate_left(claimer as usize * 15);
                let mut grants = Vec::new();
                for chunk in numbers.chunks(250) {
                    let requests = requests(chunk.iter().copied());
                    let batch = ClaimBatch {
                        run_number: run,
                        iso_week: week(),
                        worker: claimer as i64,
                        destination,
                        lease: LEASE,
                        purpose: Purpose::Send,
                        requests: &requests,
                    };
                    let answers = ledger.claim(&batch).await.unwrap();
                    for (number, answer) in chunk.iter().zip(answers) {
                        match answer {
                            ClaimAnswer::Granted(_) => grants.push(*number),
                            ClaimAnswer::Refused(Verdict::InProgress { .. }) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
                grants
            });
        }
        let mut grants: Vec<u64> = tasks.join_all().await.into_iter().flatten().collect();
        grants.sort_unstable();
        assert_eq!(grants, (0..1_000).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_the_same_keys_in_opposite_order_never_deadlock() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let others = World { ledger: fresh.open().await, run: world.run.clone(), ..World::on(fresh).await };
        for round in 0..25 {
            let forth = requests(round * 200..(round + 1) * 200);
            let back: Vec<_> = forth.iter().rev().cloned().collect();
            let (one, two) =
                tokio::join!(world.claim_all(&forth, Purpose::Send), others.claim_all(&back, Purpose::Send));
            let count = |answers: &[ClaimAnswer]| {
                answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count()
            };
            assert_eq!(count(&one) + count(&two), 200);
        }
        if fresh.backend == Backend::Postgres {
            let deadlocks = fresh.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
            assert_eq!(deadlocks.await, "0");
        }
    })
    .await;
}

#[tokio::test]
async fn of_two_first_requests_with_different_contents_one_wins_and_the_other_is_a_conflict() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let second = world.later(SignedDuration::ZERO).await;
        for number in 0..20 {
            let (one, two) =
                tokio::join!(world.ask(number, content(number)), second.ask(number, other_content(number)));
            let mut answers = [one, two];
            answers.sort_by_key(|answer| matches!(answer, ClaimAnswer::Refused(_)));
            assert!(matches!(answers[0], ClaimAnswer::Granted(_)));
            assert_eq!(answers[1], ClaimAnswer::Refused(Verdict::Conflict));
        }
    })
    .await;
}

/// Run by itself it claims in a file of its own; run by the next test it is one of eight processes.
#[tokio::test]
async fn a_process_claims_its_share_of_a_shared_file() {
    let own = Fresh::sqlite();
    let url = std::env::var("COUNTERFOIL_TEST_SHARED_FILE").map_or(own.url.clone(), Into::into);
    let ledger = counterfoil::ledger::open(&url, SignedDuration::ZERO).await.unwrap();
    ledger.migrate().await.unwrap();
    let run = ledger.open_run(&new_run("first")).await.unwrap().run().unwrap();
    let destination = ledger.destination("retail", &[1; 32]).await.unwrap();
    let mut grants = 0;
    for chunk in 0..20 {
        let requests = requests(chunk * 50..(chunk + 1) * 50);
        let batch = ClaimBatch {
            run_number: run.run_number,
            iso_week: week(),
            worker: i64::from(std::process::id()),
            destination,
            lease: LEASE,
            purpose: Purpose::Send,
            requests: &requests,
        };
        let mut ends = Vec::new();
        for (request, answer) in requests.iter().zip(ledger.claim(&batch).await.unwrap()) {
            let ClaimAnswer::Granted(grant) = answer else { continue };
            ends.push(SettleRequest {
                key: request.key,
                fingerprint: request.fingerprint,
                part: 0,
                grant_number: grant.grant_number,
                claimed_at: grant.claimed_at,
                first_claimed_at: grant.first_claimed_at,
                first_attempt_at: Some(grant.claimed_at),
                destination,
                settlement: sent("r"),
            });
        }
        grants += ends.len();
        ledger.settle(run.run_number, week(), &ends).await.unwrap();
    }
    println!("grants: {grants}");
}

#[tokio::test]
async fn eight_processes_on_one_file_lose_nothing() {
    let fresh = Fresh::sqlite();
    let child = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ledger_contract::a_process_claims_its_share_of_a_shared_file", "--nocapture"])
            .env("COUNTERFOIL_TEST_SHARED_FILE", secrecy::ExposeSecret::expose_secret(&fresh.url))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(|_| child()).collect();
    let mut grants = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let count = text.split("grants: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        grants += count.parse::<usize>().unwrap();
    }
    assert_eq!(grants, 1_000);
    assert_eq!(fresh.value("SELECT count(*) FROM receipts WHERE state = 'sent'").await, "1000");
    assert_eq!(fresh.value("SELECT count(*) FROM receipt_events WHERE kind = 'settle'").await, "1000");
    assert_eq!(fresh.value("PRAGMA integrity_check").await, "ok");
}

// --- Settles and fences ---------------------------------------------------------------------------------------

#[tokio::test]
async fn a_settle_is_recorded_with_its_event_and_repeating_it_is_a_success() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let cases = [
            (1, sent("r-1")),
            (2, retry(now + HOUR)),
            (3, held(now)),
            (4, failed()),
            (5, suppressed()),
            (6, given_back(now)),
            (7, in_doubt(now, now)),
        ];
        for (number, settlement) in cases {
            let grant = world.granted(number).await;
            let answer = SettleAnswer::Recorded(settlement.state);
            for _ in 0..3 {
                assert_eq!(world.settle(number, &grant, settlement.clone()).await, answer);
            }
            let events = world.ledger.events(week(), &key(number)).await.unwrap();
            assert_eq!(events.len(), 1, "repeating adds nothing");
            let event = &events[0];
            assert_eq!((event.kind, event.state), (settlement.event, settlement.state));
            assert_eq!((event.grant_number, event.claimed_at), (1, Some(grant.claimed_at)));
            assert_eq!((event.reason, event.attempts), (settlement.reason, settlement.attempts));
            assert_eq!(event.provider_reference, settlement.provider_reference);
            assert_eq!(event.provider_code, settlement.provider_code);
            let record = world.ledger.receipt(&key(number)).await.unwrap().unwrap();
            assert_eq!((record.standing.state, record.reason), (settlement.state, settlement.reason));
            assert_eq!(record.attempts, settlement.attempts);
            assert_eq!(record.sent_at.is_some(), settlement.state == State::Sent);
        }
    })
    .await;
}

#[tokio::test]
async fn a_batch_of_different_ends_is_answered_in_order() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let mut ends = Vec::new();
        for (number, settlement) in [(4, sent("r-4")), (2, given_back(now)), (9, failed()), (1, given_back(now))] {
            ends.push(world.end(number, &world.granted(number).await, settlement));
        }
        let answers = world.ledger.settle(world.run.run_number, week(), &ends).await.unwrap();
        let states = [State::Sent, State::Retryable, State::Failed, State::Retryable];
        assert_eq!(answers, states.map(SettleAnswer::Recorded));
        assert_eq!(world.kinds(2).await, [EventKind::GiveBack]);
        assert_eq!(world.kinds(9).await, [EventKind::Settle]);
    })
    .await;
}

#[tokio::test]
async fn a_claim_given_back_spends_nothing_and_the_next_grant_has_a_higher_number() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let first = world.granted(1).await;
        world.settle(1, &first, given_back(first.claimed_at)).await;
        let second = world.granted(1).await;
        assert_eq!((second.grant_number, second.attempts, second.first_attempt_at), (2, 0, None));
        assert_eq!(second.first_claimed_at, first.first_claimed_at);
    })
    .await;
}

#[tokio::test]
async fn a_settle_under_an_older_grant_changes_nothing_but_the_events() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let first = world.granted(1).await;
        world.settle(1, &first, given_back(now)).await;
        let second = world.granted(1).await;
        for _ in 0..2 {
            assert_eq!(world.settle(1, &first, failed()).await, SettleAnswer::TooLate);
        }
        assert_eq!(world.kinds(1).await, [EventKind::GiveBack, EventKind::LateSettle]);
        let event = world.ledger.events(week(), &key(1)).await.unwrap().pop().unwrap();
        assert_eq!((event.state, event.grant_number), (State::Claimed, 1));
        assert_eq!(event.note.as_deref(), Some("reported failed: rejected"));
        assert_eq!(world.settle(1, &second, sent("r")).await, SettleAnswer::Recorded(State::Sent));
    })
    .await;
}

#[tokio::test]
async fn an_ended_lease_makes_the_claim_ambiguous_and_a_late_acceptance_makes_it_sent() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let grants = [world.granted(1).await, world.granted(2).await];
        assert_eq!(world.ledger.ended_leases(week(), &[key(1), key(2), key(3)]).await.unwrap(), []);
        let end = |number: u64| {
            let grant = &grants[number as usize - 1];
            world.end(number, grant, lease_end(grant.claimed_at, grant.claimed_at))
        };
        let ends = [end(2), end(1)];
        let run = world.run.run_number;
        assert_eq!(world.ledger.end_leases(run, week(), &ends).await.unwrap(), 0, "the leases are live");
        let later = world.later(LEASE).await;
        let mut ended = later.ledger.ended_leases(week(), &[key(1), key(2), key(3)]).await.unwrap();
        ended.sort_by_key(|ended| ended.grant.claimed_at);
        assert_eq!(ended.len(), 2);
        assert_eq!(ended[0].key, key(1));
        assert_eq!((&ended[0].grant, ended[0].fingerprint), (&grants[0], content(1)));
        assert_eq!((ended[0].destination, ended[0].destination_name.as_str()), (world.destination, "retail"));
        assert_eq!(later.ledger.end_leases(run, week(), &ends).await.unwrap(), 2);
        assert_eq!(later.ledger.end_leases(run, week(), &ends).await.unwrap(), 0, "once");
        assert_eq!(later.claim(1).await, ClaimAnswer::Refused(Verdict::Ambiguous));
        assert_eq!(later.settle(1, &grants[0], failed()).await, SettleAnswer::TooLate);
        assert_eq!(later.state(1).await, State::Retryable);
        assert_eq!(later.settle(1, &grants[0], sent("late")).await, SettleAnswer::Recorded(State::Sent));
        assert_eq!(later.settle(1, &grants[0], sent("late")).await, SettleAnswer::Recorded(State::Sent));
        let record = later.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(record.standing.ambiguous_since, None);
        assert_eq!(record.provider_reference.as_deref(), Some("late"));
        let kinds = [EventKind::LeaseEnd, EventKind::LateSettle, EventKind::LateSettle];
        assert_eq!(later.kinds(1).await, kinds);
        let counts = later.ledger.run_counts(&world.run, Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!((counts.reconciled, counts.in_progress), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_turns_every_settled_state_into_sent() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        for (number, settlement) in
            [(1, retry(now + HOUR)), (2, held(now)), (3, failed()), (4, suppressed()), (5, in_doubt(now, now))]
        {
            let grant = world.granted(number).await;
            world.settle(number, &grant, settlement).await;
            let accepted = Settlement { provider_code: Some("late 250".to_owned()), ..sent("late") };
            let answer = world.settle(number, &grant, accepted).await;
            assert_eq!(answer, SettleAnswer::Recorded(State::Sent));
            assert_eq!(world.state(number).await, State::Sent);
            assert_eq!(world.kinds(number).await, [EventKind::Settle, EventKind::LateSettle]);
        }
    })
    .await;
}

/// Grant 1 ends with its lease and grant 2 is live: a late acceptance of grant 1 arrives.
async fn with_an_older_acceptance<'a>(fresh: &'a Fresh) -> (World<'a>, Grant, Grant) {
    let world = World::on(fresh).await;
    let first = world.granted(1).await;
    let world = world.later(LEASE).await;
    let end = [world.end(1, &first, lease_end(first.claimed_at, first.claimed_at))];
    assert_eq!(world.ledger.end_leases(world.run.run_number, week(), &end).await.unwrap(), 1);
    let second = granted(world.reconcile(1).await);
    assert_eq!(second.grant_number, 2);
    assert_eq!(world.settle(1, &first, sent("first")).await, SettleAnswer::TooLate);
    assert_eq!(world.state(1).await, State::Claimed, "the newer grant is not taken away");
    (world, first, second)
}

#[tokio::test]
async fn an_older_acceptance_makes_the_receipt_sent_when_the_newer_grant_ends_otherwise() {
    each_ledger(async |fresh| {
        let (world, _, second) = with_an_older_acceptance(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let settlement = Settlement { attempts: 2, ..in_doubt(now + HOUR, now) };
        assert_eq!(world.settle(1, &second, settlement).await, SettleAnswer::Recorded(State::Sent));
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(record.provider_reference.as_deref(), Some("first"));
        assert_eq!((record.standing.ambiguous_since, record.attempts), (None, 2));
        assert!(!world.kinds(1).await.contains(&EventKind::DoubleAccept));
    })
    .await;
    each_ledger(async |fresh| {
        let (world, _, second) = with_an_older_acceptance(fresh).await;
        let later = world.later(LEASE + LEASE + LEASE).await;
        let end = [world.end(1, &second, lease_end(second.claimed_at, second.claimed_at))];
        assert_eq!(later.ledger.end_leases(world.run.run_number, week(), &end).await.unwrap(), 1);
        assert_eq!(later.state(1).await, State::Sent);
    })
    .await;
}

#[tokio::test]
async fn two_accepted_grants_are_reported_unless_the_provider_replayed_its_answer() {
    each_ledger(async |fresh| {
        let (world, first, second) = with_an_older_acceptance(fresh).await;
        let answer = world.settle(1, &second, Settlement { attempts: 2, ..sent("second") }).await;
        assert_eq!(answer, SettleAnswer::Recorded(State::Sent));
        let last = world.ledger.events(week(), &key(1)).await.unwrap().pop().unwrap();
        assert_eq!((last.kind, last.note.as_deref()), (EventKind::DoubleAccept, Some("also accepted as first")));
        assert_eq!(world.settle(1, &first, sent("first")).await, SettleAnswer::TooLate);
        let twice = world.kinds(1).await.iter().filter(|kind| **kind == EventKind::DoubleAccept).count();
        assert_eq!(twice, 1);
    })
    .await;
    each_ledger(async |fresh| {
        let (world, _, second) = with_an_older_acceptance(fresh).await;
        world.settle(1, &second, Settlement { attempts: 2, ..sent("first") }).await;
        assert!(!world.kinds(1).await.contains(&EventKind::DoubleAccept));
    })
    .await;
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let first = world.granted(1).await;
        world.settle(1, &first, given_back(first.claimed_at)).await;
        let second = world.granted(1).await;
        world.settle(1, &second, sent("second")).await;
        assert_eq!(world.settle(1, &first, sent("first")).await, SettleAnswer::TooLate);
        assert_eq!(world.kinds(1).await.last(), Some(&EventKind::DoubleAccept));
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(record.provider_reference.as_deref(), Some("second"));
    })
    .await;
}

#[tokio::test]
async fn a_receipt_that_the_database_lost_is_restored_by_its_settle() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let first = world.granted(1).await;
        fresh.execute("DELETE FROM receipts").await.unwrap();
        assert_eq!(world.settle(1, &first, sent("r")).await, SettleAnswer::Recorded(State::Sent));
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!((record.standing.fingerprint, record.standing.state), (content(1), State::Sent));
        assert_eq!(record.first_claimed_at, first.first_claimed_at);
        // A claim that was lost leaves the row of the grant before it.
        let given = world.granted(2).await;
        world.settle(2, &given, given_back(given.claimed_at)).await;
        let lost = Grant { grant_number: 2, claimed_at: given.claimed_at + LEASE, ..given };
        assert_eq!(world.settle(2, &lost, sent("r")).await, SettleAnswer::Recorded(State::Sent));
        // Another claim with the same number is not ours to end.
        let theirs = world.granted(3).await;
        let ours = Grant { claimed_at: theirs.claimed_at - LEASE, ..theirs.clone() };
        assert_eq!(world.settle(3, &ours, failed()).await, SettleAnswer::TooLate);
        assert_eq!(world.settle(3, &theirs, sent("r")).await, SettleAnswer::Recorded(State::Sent));
    })
    .await;
}

#[tokio::test]
async fn a_providers_text_that_no_database_can_hold_does_not_keep_a_settle_from_being_recorded() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let grant = world.granted(1).await;
        let odd = Settlement { provider_code: Some("2\0 50 \u{1F600} ' \" \\".to_owned()), ..sent("a\0b") };
        for _ in 0..2 {
            assert_eq!(world.settle(1, &grant, odd.clone()).await, SettleAnswer::Recorded(State::Sent));
        }
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(record.provider_reference.as_deref(), Some("ab"));
        assert_eq!(record.provider_code.as_deref(), Some("2 50 \u{1F600} ' \" \\"));
        assert_eq!(world.kinds(1).await, [EventKind::Settle]);
    })
    .await;
}

// --- Conflicts ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_conflict_quarantines_what_is_neither_sent_nor_claimed_nor_in_doubt() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let states = one_in_every_state(&world).await;
        world.bring(9, in_doubt(now, now)).await;
        for (number, before) in states.into_iter().chain([(9, State::Retryable)]) {
            let events = world.kinds(number).await.len();
            for _ in 0..3 {
                world.conflict(number).await;
            }
            let expected = match (number, before) {
                (9, _) | (_, State::Sent | State::Claimed | State::Held) => before,
                _ => State::Quarantined,
            };
            assert_eq!(world.state(number).await, expected, "{before}");
            // Number 6 was brought into its state by a conflict.
            let added = usize::from(number != 6);
            assert_eq!(world.kinds(number).await.len(), events + added, "repeating adds no event");
        }
        let event = world.ledger.events(week(), &key(5)).await.unwrap().pop().unwrap();
        assert_eq!((event.kind, event.presented), (EventKind::Conflict, Some(other_content(5))));
        let both =
            fresh.query("SELECT presented <> recorded, seen_count FROM receipt_conflicts WHERE seen_count = 3").await;
        assert_eq!(both.len(), 7);
        assert_eq!(fresh.value("SELECT max(seen_count) FROM receipt_conflicts").await, "4");
    })
    .await;
}

#[tokio::test]
async fn a_conflict_under_a_live_lease_decides_how_it_ends_unless_it_is_sent_or_in_doubt() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let cases = [
            (1, sent("r"), State::Sent),
            (2, retry(now), State::Quarantined),
            (3, failed(), State::Quarantined),
            (4, given_back(now), State::Quarantined),
            (5, held(now), State::Held),
            (6, in_doubt(now, now), State::Retryable),
            (7, suppressed(), State::Quarantined),
        ];
        for (number, settlement, expected) in cases {
            let grant = world.granted(number).await;
            world.conflict(number).await;
            for _ in 0..2 {
                let answer = world.settle(number, &grant, settlement.clone()).await;
                assert_eq!(answer, SettleAnswer::Recorded(expected), "{number}");
            }
            let record = world.ledger.receipt(&key(number)).await.unwrap().unwrap();
            assert_eq!(record.standing.fingerprint, content(number), "the first content stands");
            assert_eq!(record.reason == Some(Reason::Conflict), expected == State::Quarantined);
        }
    })
    .await;
}

#[tokio::test]
async fn what_stands_recorded_is_no_conflict() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, sent("r")).await;
        let same = [
            ConflictRecord { key: key(1), presented: content(1), part: 0 },
            ConflictRecord { key: key(2), presented: content(2), part: 0 },
        ];
        world.ledger.record_conflicts(world.run.run_number, week(), &same).await.unwrap();
        assert_eq!(fresh.value("SELECT count(*) FROM receipt_conflicts").await, "0");
    })
    .await;
}

// --- Counting -------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_counts_of_a_run_add_up_to_its_rows() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        one_in_every_state(&world).await;
        world.bring(8, in_doubt(now, now)).await;
        world.bring(9, settled(State::Failed, Some(Reason::DeadlinePassed))).await;
        world.bring(10, Settlement { reconciled: true, ..sent("r-10") }).await;
        let own = world.ledger.run_counts(&world.run, now).await.unwrap();
        let states = [own.sent, own.reconciled, own.in_progress, own.retryable, own.held];
        assert_eq!(states, [1, 1, 2, 1, 1]);
        let rest = [own.failed_rejected, own.failed_other, own.quarantined, own.suppressed, own.conflicts];
        assert_eq!(rest, [1, 1, 1, 1, 0]);
        assert_eq!((own.sent_before, own.attempts), (0, 9));
        let later = world.ledger.run_counts(&world.run, now + HOUR).await.unwrap();
        assert_eq!((later.sent, later.reconciled, later.sent_before), (0, 0, 2));
        // A second run meets the first one's receipts, two of them with another content.
        let second = world
            .ledger
            .open_run(&NewRun { rows: 12, part_rows: vec![12], ..new_run("second") })
            .await
            .unwrap()
            .run()
            .unwrap();
        let other = World { run: second.clone(), ledger: world.ledger.clone(), ..World::on(fresh).await };
        other.conflict(2).await;
        other.conflict(3).await;
        other.bring(20, sent("r-20")).await;
        let other_ledger = &other.ledger;
        other_ledger.take_part(second.run_number, WORKER, LEASE).await.unwrap();
        let foreign = ForeignCounts {
            duplicate: 1,
            in_progress: 2,
            held: 1,
            failed: 2,
            suppressed: 1,
            quarantined: 2,
            other_version: 8,
            retryable: 0,
        };
        other_ledger.end_part(second.run_number, 0, WORKER, PartEnd::Done, &foreign).await.unwrap();
        let counts = other_ledger.run_counts(&second, now).await.unwrap();
        assert_eq!((counts.sent, counts.conflicts, counts.foreign), (1, 2, foreign));
        assert_eq!(counts.attempts, 1);
        let first = world.ledger.run_counts(&world.run, now).await.unwrap();
        assert_eq!((first.sent, first.quarantined, first.conflicts), (1, 2, 0), "number 3 is quarantined now");
    })
    .await;
}

#[tokio::test]
async fn receipts_are_listed_in_key_order_page_by_page_and_by_filter() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        one_in_every_state(&world).await;
        let all = ReceiptFilter { limit: 100, ..Default::default() };
        let everything = world.ledger.receipts(&all).await.unwrap();
        assert_eq!(everything.len(), 7);
        assert!(everything.is_sorted_by_key(|record| record.key));
        let mut paged = Vec::new();
        let mut after = None;
        loop {
            let filter = ReceiptFilter { after, limit: 3, ..all.clone() };
            let page = world.ledger.receipts(&filter).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.iso_week, last.key));
            paged.extend(page);
        }
        assert_eq!(paged, everything);
        let count = async |filter: ReceiptFilter| world.ledger.receipts(&filter).await.unwrap().len();
        assert_eq!(count(ReceiptFilter { state: Some(State::Sent), ..all.clone() }).await, 1);
        assert_eq!(count(ReceiptFilter { reason: Some(Reason::Conflict), ..all.clone() }).await, 1);
        assert_eq!(count(ReceiptFilter { in_conflict: true, ..all.clone() }).await, 1);
        assert_eq!(count(ReceiptFilter { iso_week: Some(week()), ..all.clone() }).await, 7);
        assert_eq!(count(ReceiptFilter { iso_week: week().next().ok(), ..all.clone() }).await, 0);
        assert_eq!(count(ReceiptFilter { iso_week: week().previous().ok(), ..all.clone() }).await, 0);
        assert_eq!(count(ReceiptFilter { run_id: Some(world.run.new.run_id.clone()), ..all.clone() }).await, 7);
        assert_eq!(count(ReceiptFilter { run_id: Some("none".to_owned()), ..all }).await, 0);
        let record = world.ledger.receipt(&key(2)).await.unwrap().unwrap();
        assert_eq!((record.destination.as_str(), record.key_id.as_str()), ("retail", "k1"));
        assert_eq!((&record.run_id, record.iso_week), (&world.run.new.run_id, week()));
        assert_eq!(world.ledger.receipt(&key(99)).await.unwrap(), None);
    })
    .await;
}

// --- Destinations ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_destination_keeps_its_number_for_as_long_as_it_is_the_same_account() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let (one, same) = tokio::join!(ledger.destination("retail", &[1; 32]), ledger.destination("retail", &[1; 32]));
        let (one, same) = (one.unwrap(), same.unwrap());
        assert_eq!(one, same);
        assert_ne!(ledger.destination("retail", &[2; 32]).await.unwrap(), one);
        assert_ne!(ledger.destination("business", &[1; 32]).await.unwrap(), one);
        assert_eq!(ledger.destination("retail", &[1; 32]).await.unwrap(), one);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_of_all_workers_together_never_exceed_the_rate() {
    each_ledger(async |fresh| {
        let rate = Rate { interval: SignedDuration::from_millis(20), burst: 10 };
        let mut handles = Vec::new();
        for _ in 0..4 {
            handles.push(fresh.open().await);
        }
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..40_u32 {
            let ledger = handles[worker as usize % 4].clone();
            tasks.spawn(async move {
                let count = worker % 7 + 1;
                // The earliest that the sends can start: nobody learns of the wait before the ledger answers.
                let before = ledger.now().await.unwrap();
                let reservation = ledger.reserve("retail", count, rate).await.unwrap();
                assert!(!reservation.wait.is_negative());
                let starts = (0..count).map(|n| before + reservation.wait + rate.interval * n as i32);
                (before, ledger.now().await.unwrap(), starts.collect::<Vec<_>>())
            });
        }
        let all = tasks.join_all().await;
        // How far before the ledger's own instant a start may be counted here.
        let slack = all.iter().map(|(before, after, _)| after.duration_since(*before)).max().unwrap();
        let mut starts: Vec<Timestamp> = all.into_iter().flat_map(|(_, _, starts)| starts).collect();
        starts.sort_unstable();
        for (first, begin) in starts.iter().enumerate() {
            for (last, end) in starts.iter().enumerate().skip(first) {
                let span = end.duration_since(*begin) + slack;
                let allowed = i64::from(rate.burst) + (span.as_millis() / rate.interval.as_millis()) as i64 + 1;
                assert!((last - first + 1) as i64 <= allowed, "{} sends in {span:?}", last - first + 1);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_idle_destination_starts_at_once_and_a_drained_one_waits_for_what_was_taken() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let rate = Rate { interval: SignedDuration::from_secs(10), burst: 1 };
        assert_eq!(ledger.reserve("retail", 6, rate).await.unwrap().wait, SignedDuration::ZERO);
        let wait = ledger.reserve("retail", 1, rate).await.unwrap().wait;
        assert!(wait > SignedDuration::from_secs(50) && wait <= SignedDuration::from_secs(60), "{wait:?}");
        assert_eq!(ledger.reserve("business", 1, rate).await.unwrap().wait, SignedDuration::ZERO);
        let later = fresh.open_later(HOUR).await;
        assert_eq!(later.reserve("retail", 1, rate).await.unwrap().wait, SignedDuration::ZERO);
    })
    .await;
}

#[tokio::test]
async fn a_pause_holds_for_everyone_and_is_never_shortened() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        assert_eq!(ledger.pace("retail").await.unwrap(), Pace::default());
        let now = ledger.now().await.unwrap();
        ledger.pause("retail", now + HOUR).await.unwrap();
        ledger.pause("retail", now + LEASE).await.unwrap();
        ledger.reserve("business", 1, Rate { interval: LEASE, burst: 1 }).await.unwrap();
        ledger.pause("business", now + LEASE).await.unwrap();
        let until = fresh.open().await.pace("retail").await.unwrap().paused_until.unwrap();
        assert_eq!(until.as_microsecond(), (now + HOUR).as_microsecond());
        assert!(ledger.pace("business").await.unwrap().paused_until.is_some());
        assert_eq!(fresh.open_later(HOUR + HOUR).await.pace("retail").await.unwrap().paused_until, None, "over");
    })
    .await;
}

#[tokio::test]
async fn what_was_reserved_for_the_time_of_a_pause_is_not_owed_after_it() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        let rate = Rate { interval: SignedDuration::from_secs(10), burst: 1 };
        ledger.reserve("retail", 360, rate).await.unwrap();
        let now = ledger.now().await.unwrap();
        ledger.pause("retail", now + LEASE).await.unwrap();
        let later = fresh.open_later(LEASE + SignedDuration::from_secs(1)).await;
        assert_eq!(later.reserve("retail", 1, rate).await.unwrap().wait, SignedDuration::ZERO);
    })
    .await;
}

#[tokio::test]
async fn an_open_breaker_is_everyones_and_lets_one_probe_through_in_an_interval() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        assert!(!ledger.take_probe("retail").await.unwrap(), "nothing to probe");
        assert!(ledger.open_breaker("retail").await.unwrap());
        assert!(!fresh.open().await.open_breaker("retail").await.unwrap(), "it is open");
        let open = fresh.open().await.pace("retail").await.unwrap().breaker.unwrap();
        assert_eq!(open.probe_at.duration_since(open.opened_at), PROBE_INTERVAL);
        assert_eq!(ledger.pace("business").await.unwrap(), Pace::default());
        assert!(!ledger.take_probe("retail").await.unwrap(), "not due yet");
        let later = Arc::new(fresh.open_later(PROBE_INTERVAL).await);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let later = Arc::clone(&later);
            tasks.spawn(async move { later.take_probe("retail").await.unwrap() });
        }
        let taken = tasks.join_all().await;
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
        let next = ledger.pace("retail").await.unwrap().breaker.unwrap();
        assert_eq!(next.opened_at, open.opened_at);
        assert!(next.probe_at.duration_since(open.probe_at) >= PROBE_INTERVAL);
    })
    .await;
}

#[tokio::test]
async fn three_accepted_probes_in_a_row_close_a_breaker_and_only_the_one_they_probed() {
    each_ledger(async |fresh| {
        let ledger = fresh.open().await;
        ledger.open_breaker("retail").await.unwrap();
        ledger.pause("retail", ledger.now().await.unwrap() + HOUR).await.unwrap();
        let at = ledger.pace("retail").await.unwrap().breaker.unwrap().opened_at;
        let closed = async |accepted| ledger.probe_answered("retail", at, accepted).await.unwrap();
        for accepted in [true, true, false, true, true] {
            assert!(!closed(accepted).await);
        }
        assert!(!ledger.probe_answered("retail", at - HOUR, true).await.unwrap(), "a probe of an earlier outage");
        assert!(closed(true).await);
        let pace = ledger.pace("retail").await.unwrap();
        assert_eq!(pace.breaker, None);
        assert!(pace.paused_until.is_some(), "a pause is another matter");
        assert!(!closed(true).await, "it is closed");
        assert!(ledger.open_breaker("retail").await.unwrap());
        assert!(ledger.pace("retail").await.unwrap().breaker.unwrap().opened_at > at);
    })
    .await;
}

// --- The tables as an interface -------------------------------------------------------------------------------

#[tokio::test]
async fn the_database_refuses_to_change_or_remove_events_outside_retention() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, sent("r")).await;
        let mut forbidden = vec!["UPDATE receipt_events SET note = 'x'", "DELETE FROM receipt_events"];
        let allowed = match fresh.backend {
            Backend::Sqlite => {
                forbidden.push("INSERT OR REPLACE INTO receipt_events SELECT * FROM receipt_events");
                "BEGIN IMMEDIATE; INSERT INTO retention_permit VALUES (0); DELETE FROM receipt_events; \
                 DELETE FROM retention_permit; COMMIT"
            }
            Backend::Postgres => {
                forbidden.push("TRUNCATE receipt_events");
                forbidden.push(
                    "BEGIN; SET LOCAL counterfoil.retention = 'on'; UPDATE receipt_events SET note = 'x'; COMMIT",
                );
                "BEGIN; SET LOCAL counterfoil.retention = 'on'; DELETE FROM receipt_events; COMMIT"
            }
        };
        for sql in forbidden {
            let refused = fresh.execute(sql).await.unwrap_err().to_string();
            assert!(refused.contains("append-only"), "{sql}: {refused}");
        }
        assert_eq!(fresh.value("SELECT count(*) FROM receipt_events WHERE note IS NULL").await, "1");
        fresh.execute(allowed).await.unwrap();
        assert_eq!(fresh.value("SELECT count(*) FROM receipt_events").await, "0");
        assert!(fresh.execute("DELETE FROM receipt_events WHERE 1 = 0").await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn the_database_refuses_receipts_that_cannot_be() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        world.granted(1).await;
        world.bring(2, sent("r")).await;
        world.bring(3, retry(now)).await;
        world.bring(4, held(now)).await;
        world.bring(5, failed()).await;
        let impossible = [
            ("claimed", "lease_ends_at = NULL"),
            ("claimed", "worker = NULL"),
            ("claimed", "reason = 'rejected'"),
            ("claimed", "state = 'retryable'"),
            ("claimed", "grant_number = 0"),
            ("claimed", "attempts = -1"),
            ("sent", "provider_reference = NULL"),
            ("sent", "sent_at = NULL"),
            ("sent", "ambiguous_since = updated_at"),
            ("sent", "lease_ends_at = updated_at"),
            ("sent", "state = 'posted'"),
            ("retryable", "next_attempt_at = NULL"),
            ("retryable", "reason = NULL"),
            ("retryable", "sent_at = updated_at"),
            ("held", "ambiguous_since = NULL"),
            ("failed", "reason = NULL"),
            ("failed", "ambiguous_since = updated_at"),
            ("failed", "next_attempt_at = updated_at"),
        ];
        for (state, change) in impossible {
            let sql = format!("UPDATE receipts SET {change} WHERE state = '{state}'");
            assert!(fresh.execute(&sql).await.is_err(), "{sql}");
        }
        let short = if fresh.backend == Backend::Sqlite { "x'00'" } else { "'\\x00'" };
        for column in ["receipt_key", "fingerprint"] {
            let sql = format!("UPDATE receipts SET {column} = {short} WHERE state = 'sent'");
            assert!(fresh.execute(&sql).await.is_err(), "{sql}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_overview_has_the_documented_columns_in_order() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let grant = world.granted(1).await;
        world.settle(1, &grant, sent("r-1")).await;
        let names = match fresh.backend {
            Backend::Sqlite => "SELECT name FROM pragma_table_info('receipt_overview') ORDER BY cid",
            Backend::Postgres => {
                "SELECT column_name FROM information_schema.columns WHERE table_name = 'receipt_overview' \
                 ORDER BY ordinal_position"
            }
        };
        let names: Vec<String> = fresh.query(names).await.into_iter().map(|mut row| row.remove(0).unwrap()).collect();
        let documented = "receipt_key iso_week digest_type content_version state reason attempts first_claimed_at \
            sent_at next_attempt_at ambiguous_since destination provider_reference fingerprint key_id run_id updated_at";
        assert_eq!(names, documented.split_whitespace().collect::<Vec<_>>());
        let row = fresh.query("SELECT * FROM receipt_overview").await.remove(0);
        let shown: BTreeMap<&str, Option<String>> = names.iter().map(String::as_str).zip(row).collect();
        let expect = |name: &str, value: &str| assert_eq!(shown[name].as_deref(), Some(value), "{name}");
        expect("receipt_key", &key(1).to_string());
        expect("iso_week", "2026-W32");
        expect("digest_type", "weekly_activity");
        expect("content_version", "v1");
        expect("state", "sent");
        expect("attempts", "1");
        expect("destination", "retail");
        expect("provider_reference", "r-1");
        expect("fingerprint", &content(1).to_string());
        expect("key_id", "k1");
        expect("run_id", &world.run.new.run_id);
        assert_eq!(shown["ambiguous_since"], None);
        if fresh.backend == Backend::Sqlite {
            let claimed: Timestamp = shown["first_claimed_at"].as_ref().unwrap().parse().unwrap();
            assert_eq!(claimed, grant.first_claimed_at);
        }
    })
    .await;
}

#[tokio::test]
async fn every_table_view_and_column_has_a_comment_in_postgresql() {
    let fresh = Fresh::postgres().await;
    fresh.open().await;
    let bare = "SELECT c.relname || coalesce('.' || a.attname, '') FROM pg_class c \
        LEFT JOIN LATERAL (SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 \
            UNION ALL SELECT NULL, 0) a ON true \
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') \
          AND c.relname <> '_sqlx_migrations' AND coalesce(CASE a.attnum WHEN 0 THEN obj_description(c.oid, 'pg_class') \
            ELSE col_description(c.oid, a.attnum) END, '') = ''";
    assert_eq!(fresh.query(bare).await, Vec::<Vec<Option<String>>>::new());
}

#[tokio::test]
async fn the_newest_event_tells_all_of_a_receipt_that_is_not_claimed() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        one_in_every_state(&world).await;
        let hex = if fresh.backend == Backend::Sqlite { "hex(fingerprint)" } else { "encode(fingerprint, 'hex')" };
        let columns = format!(
            "state, reason, attempts, grant_number, claimed_at, {hex}, first_claimed_at, \
            first_attempt_at, next_attempt_at, ambiguous_since, in_conflict, reconciled, destination_number, \
            provider_reference, run_number, part"
        );
        let folded = fresh
            .query(&format!(
                "SELECT {columns} FROM receipt_events e WHERE event_id = (SELECT max(event_id) FROM receipt_events n \
                 WHERE n.receipt_key = e.receipt_key AND kind <> 'conflict') AND kind <> 'conflict' \
                 AND receipt_key NOT IN (SELECT receipt_key FROM receipt_conflicts) ORDER BY receipt_key"
            ))
            .await;
        let standing = fresh
            .query(&format!(
                "SELECT {columns} FROM receipts WHERE state NOT IN ('claimed', 'quarantined') ORDER BY receipt_key"
            ))
            .await;
        assert_eq!(standing.len(), 5);
        assert_eq!(folded, standing);
    })
    .await;
}

// --- Looks at the provider ------------------------------------------------------------------------------------

/// A look that decides nothing yet, at what is in doubt since `since`.
fn looked(reason: Reason, at: Timestamp, since: Timestamp) -> Settlement {
    let code = (reason == Reason::LookupFailed).then(|| "503".to_owned());
    let settlement = Settlement { event: EventKind::Lookup, provider_code: code, ..in_doubt(at, since) };
    Settlement { reason: Some(reason), ..settlement }
}

fn confirmed_absent(at: Timestamp) -> Settlement {
    let settlement = Settlement { event: EventKind::Lookup, provider_code: None, ..retry(at) };
    Settlement { reason: Some(Reason::ConfirmedAbsent), ..settlement }
}

impl World<'_> {
    /// Leaves a first attempt in doubt, to be reconciled at once; answers since when.
    async fn doubt(&self, number: u64) -> Timestamp {
        let now = self.ledger.now().await.unwrap();
        self.bring(number, in_doubt(now, now)).await;
        now
    }

    async fn look_and_record(&self, number: u64, settlement: Settlement) -> SettleAnswer {
        let grant = granted(self.reconcile(number).await);
        self.settle(number, &grant, settlement).await
    }

    async fn looks(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<(u32, u32)> {
        let keys: Vec<ReceiptKey> = numbers.into_iter().map(key).collect();
        let looks = self.ledger.looks(week(), &keys).await.unwrap();
        looks.iter().map(|looks| (looks.misses, looks.failures)).collect()
    }
}

#[tokio::test]
async fn looks_are_counted_for_each_key_since_its_newest_attempt() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let later = world.later(HOUR).await;
        let since = world.doubt(1).await;
        world.doubt(2).await;
        world.bring(3, sent("r")).await;
        let reasons =
            [Reason::Absent, Reason::LookupFailed, Reason::Absent, Reason::LookupFailed, Reason::LookupFailed];
        for reason in reasons {
            world.look_and_record(1, looked(reason, since, since)).await;
        }
        world.look_and_record(2, looked(Reason::LookupFailed, since, since)).await;
        assert_eq!(world.looks([3, 2, 1, 9]).await, [(0, 0), (0, 1), (2, 2), (0, 0)], "in the order asked for");
        // A look that was given back and another content change nothing; a lease that ends begins anew.
        let grant = granted(world.reconcile(1).await);
        world.settle(1, &grant, Settlement { ambiguous_since: Some(since), attempts: 1, ..given_back(since) }).await;
        world.conflict(1).await;
        assert_eq!(world.looks([1]).await, [(2, 2)]);
        let grant = granted(world.reconcile(1).await);
        let ended = [world.end(1, &grant, lease_end(since, since))];
        assert_eq!(later.ledger.end_leases(world.run.run_number, week(), &ended).await.unwrap(), 1);
        assert_eq!(world.looks([1]).await, [(0, 0)]);
        world.look_and_record(1, looked(Reason::Absent, since, since)).await;
        assert_eq!(world.looks([1]).await, [(1, 0)]);
    })
    .await;
}

#[tokio::test]
async fn what_a_look_finds_is_recorded_as_one_and_the_doubt_ends_only_when_it_is_decided() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let since = world.doubt(1).await;
        let elsewhere = world.ledger.destination("other", &[2; 32]).await.unwrap();
        let grant = granted(world.reconcile(1).await);
        let absent =
            SettleRequest { destination: elsewhere, ..world.end(1, &grant, looked(Reason::Absent, since, since)) };
        world.ledger.settle(world.run.run_number, week(), &[absent]).await.unwrap();
        let found = world.ledger.look(week(), &[key(1)]).await.unwrap().remove(0).unwrap();
        assert_eq!((found.standing.ambiguous_since, found.destination), (Some(since), world.destination));
        let grant = granted(world.reconcile(1).await);
        let found = Settlement { event: EventKind::Lookup, reconciled: true, provider_code: None, ..sent("r-1") };
        assert_eq!(world.settle(1, &grant, found.clone()).await, SettleAnswer::Recorded(State::Sent));
        assert_eq!(world.settle(1, &grant, found).await, SettleAnswer::Recorded(State::Sent), "said again");
        assert_eq!(world.kinds(1).await, [EventKind::Settle, EventKind::Lookup, EventKind::Lookup]);
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!((record.attempts, record.provider_reference.as_deref()), (1, Some("r-1")));
        assert_eq!(record.standing.ambiguous_since, None);
    })
    .await;
}

#[tokio::test]
async fn what_is_in_doubt_and_in_conflict_is_looked_up_first_and_quarantined_after() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        for number in [1, 2, 3] {
            let since = world.doubt(number).await;
            world.conflict(number).await;
            assert_eq!(world.state(number).await, State::Retryable, "the doubt goes first");
            let kept = world.look_and_record(number, looked(Reason::Absent, since, since)).await;
            assert_eq!(kept, SettleAnswer::Recorded(State::Retryable));
            assert_eq!(world.looks([number]).await, [(1, 0)], "the conflict hides no look");
        }
        let now = world.ledger.now().await.unwrap();
        let absent = world.look_and_record(1, confirmed_absent(now)).await;
        assert_eq!(absent, SettleAnswer::Recorded(State::Quarantined));
        let found = Settlement { event: EventKind::Lookup, reconciled: true, ..sent("r-2") };
        assert_eq!(world.look_and_record(2, found).await, SettleAnswer::Recorded(State::Sent));
        let held = Settlement { event: EventKind::Lookup, reason: Some(Reason::LookupFailed), ..held(now) };
        assert_eq!(world.look_and_record(3, held).await, SettleAnswer::Recorded(State::Held));
    })
    .await;
}

#[tokio::test]
async fn after_a_confirmed_absence_a_claim_is_an_ordinary_one_under_the_same_key() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let since = world.doubt(1).await;
        let early = ClaimAnswer::Refused(Verdict::Ambiguous);
        assert_eq!(world.claim(1).await, early);
        world.look_and_record(1, confirmed_absent(since)).await;
        let grant = world.granted(1).await;
        assert_eq!((grant.ambiguous_since, grant.attempts, grant.grant_number), (None, 1, 3));
    })
    .await;
}

#[tokio::test]
async fn a_look_whose_grant_was_overtaken_is_only_an_event_unless_it_has_found_the_message() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let later = world.later(HOUR).await;
        for (number, found) in [(1, false), (2, true)] {
            let since = world.doubt(number).await;
            let overtaken = granted(world.reconcile(number).await);
            let ended = [world.end(number, &overtaken, lease_end(since, since))];
            later.ledger.end_leases(world.run.run_number, week(), &ended).await.unwrap();
            let settlement = match found {
                true => Settlement { event: EventKind::Lookup, reconciled: true, ..sent("r") },
                false => confirmed_absent(since),
            };
            let answer = world.settle(number, &overtaken, settlement).await;
            let state = if found { State::Sent } else { State::Retryable };
            assert_eq!(answer == SettleAnswer::Recorded(State::Sent), found, "{answer:?}");
            let standing = world.ledger.look(week(), &[key(number)]).await.unwrap().remove(0).unwrap().standing;
            assert_eq!((standing.state, standing.ambiguous_since.is_some()), (state, !found));
            assert_eq!(world.kinds(number).await.last(), Some(&EventKind::LateSettle));
        }
    })
    .await;
}

// --- PostgreSQL -----------------------------------------------------------------------------------------------

#[tokio::test]
async fn every_commit_of_a_claim_and_a_settle_waits_for_the_disk_whatever_the_servers_default() {
    let fresh = Fresh::postgres().await;
    fresh.open().await;
    // A deferred trigger sees the setting that the commit will see.
    let database = fresh.value("SELECT current_database()").await;
    fresh
        .execute(&format!(
            "ALTER DATABASE {database} SET synchronous_commit = off;
             CREATE TABLE seen (setting text);
             CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON receipts
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_setting();"
        ))
        .await
        .unwrap();
    assert_eq!(fresh.value("SHOW synchronous_commit").await, "off");
    let world = World::on(&fresh).await;
    world.bring(1, sent("r")).await;
    assert_eq!(
        fresh.query("SELECT setting, count(*) FROM seen GROUP BY 1").await,
        [[Some("on".to_owned()), Some("2".to_owned())]]
    );
}

#[tokio::test]
async fn nothing_outlives_a_transaction_on_a_server_connection() {
    let fresh = Fresh::postgres().await;
    let world = World::on(&fresh).await;
    fresh
        .execute(
            "CREATE TABLE left_over (name text);
             CREATE FUNCTION note_names() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO left_over SELECT name FROM pg_prepared_statements WHERE name <> ''; \
                    RETURN NULL; END $$;
             CREATE TRIGGER note AFTER INSERT OR UPDATE ON receipts FOR EACH STATEMENT EXECUTE FUNCTION note_names();",
        )
        .await
        .unwrap();
    for number in 0..20 {
        world.bring(number, sent("r")).await;
    }
    assert_eq!(fresh.value("SELECT count(*) FROM left_over").await, "0");
}

#[tokio::test]
async fn a_batch_probes_the_index_once_a_key_on_a_table_that_was_never_analysed() {
    const ROWS: u64 = 20_000;
    let fresh = Fresh::postgres().await;
    let world = World::on(&fresh).await;
    for chunk in 0..ROWS / 1_000 {
        let requests = requests(chunk * 1_000..(chunk + 1) * 1_000);
        let keys: Vec<ReceiptKey> = requests.iter().map(|request| request.key).collect();
        world.ledger.look(week(), &keys).await.unwrap();
        let answers = world.claim_all(&requests, Purpose::Send).await;
        let ends: Vec<SettleRequest> = (chunk * 1_000..)
            .zip(answers)
            .map(|(number, answer)| world.end(number, &granted(answer), sent("r")))
            .collect();
        world.ledger.settle(world.run.run_number, week(), &ends).await.unwrap();
        world.ledger.looks(week(), &keys).await.unwrap();
    }
    drop(world);
    // A connection reports what it has read when it ends.
    while fresh
        .value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        .await
        != "0"
    {
        tokio::task::yield_now().await;
    }
    for table in ["receipts", "receipt_events"] {
        let scanned =
            fresh.value(&format!("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = '{table}'")).await;
        assert_eq!(scanned, "0", "{table}");
        let entries = format!("SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = '{table}_pkey'");
        let read = fresh.value(&entries).await;
        assert!(read.parse::<u64>().unwrap() < ROWS * 4, "{read} index entries of {table} for {ROWS} rows");
    }
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_again() {
    let fresh = Fresh::postgres().await;
    let direct = World::on(&fresh).await;
    for (round, cut) in [Cut::BeforeCommit, Cut::AfterCommit].into_iter().enumerate() {
        let proxy = Proxy::before(&fresh).await;
        let ledger = counterfoil::ledger::open(&proxy.url, SignedDuration::ZERO).await.unwrap();
        let world = World { ledger, run: direct.run.clone(), ..World::on(&fresh).await };
        let first = round as u64 * 100;
        // One of them is somebody else's, under the same worker number but from before.
        let earlier = direct.granted(first + 5).await;
        let wanted = requests(first..first + 10);
        proxy.arm(cut);
        let answers = world.claim_all(&wanted, Purpose::Send).await;
        assert!(proxy.was_cut(), "the proxy has cut a commit");
        for (number, answer) in (first..).zip(&answers) {
            match answer {
                ClaimAnswer::Granted(grant) => assert_eq!(grant.grant_number, 1),
                other => {
                    assert_eq!(number, first + 5);
                    let until = earlier.claimed_at + LEASE;
                    assert_eq!(*other, ClaimAnswer::Refused(Verdict::InProgress { until }));
                }
            }
        }
        assert_eq!(answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count(), 9);
        let grant = granted(answers[0].clone());
        proxy.arm(cut);
        assert_eq!(world.settle(first, &grant, sent("r")).await, SettleAnswer::Recorded(State::Sent));
        assert!(proxy.was_cut());
        assert_eq!(direct.kinds(first).await, [EventKind::Settle]);
    }
}

#[tokio::test]
async fn serialization_failures_are_tried_again() {
    let fresh = Fresh::postgres().await;
    let world = World::on(&fresh).await;
    // Sequences do not roll back: every second statement fails, the one after it passes.
    fresh
        .execute(
            "CREATE SEQUENCE turn;
             CREATE FUNCTION fail_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('turn') % 2 = 1 THEN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END IF;
                 RETURN NULL; END $$;
             CREATE TRIGGER fail BEFORE INSERT ON receipts FOR EACH STATEMENT EXECUTE FUNCTION fail_in_turn();",
        )
        .await
        .unwrap();
    for number in 0..10 {
        world.bring(number, sent("r")).await;
    }
    assert_eq!(fresh.value("SELECT last_value FROM turn").await, "40");
    fresh
        .execute(
            "CREATE OR REPLACE FUNCTION fail_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM nextval('turn'); RAISE EXCEPTION 'no' USING ERRCODE = '40P01'; END $$;",
        )
        .await
        .unwrap();
    let asked = requests([50]);
    let refused = world.ledger.claim(&world.batch(&asked, Purpose::Send)).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Refused { verb: "claim", .. }));
    assert_eq!(fresh.value("SELECT last_value FROM turn").await, "46", "six tries, not for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_default_isolation_changes_nothing() {
    let fresh = Fresh::postgres().await;
    fresh.open().await;
    let database = fresh.value("SELECT current_database()").await;
    let strict = format!("ALTER DATABASE {database} SET default_transaction_isolation = serializable");
    fresh.execute(&strict).await.unwrap();
    let world = World::on(&fresh).await;
    let now = world.ledger.now().await.unwrap();
    let batch = requests(0..50);
    for number in 0..50 {
        world.bring(number, retry(now)).await;
    }
    let all = futures_util::future::join_all((0..8).map(|_| world.claim_all(&batch, Purpose::Send))).await;
    let grants = all.iter().flatten().filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count();
    assert_eq!(grants, 50);
}
