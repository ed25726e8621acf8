//! What people decide: about single receipts and about whole runs, on SQLite and on PostgreSQL alike, and as the
//! program is used from the command line.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use counterfoil::identity::{ContentVersion, DigestType, Fingerprint, IsoWeek, ReceiptKey};
use counterfoil::ledger::{
    ClaimAnswer, ClaimBatch, ClaimRequest, ConflictRecord, DestinationNumber, Grant, Ledger, Mode, NewRun, PartEnd,
    PartGrant, Purpose, ReceiptFilter, Review, ReviewAnswer, Run, SettleAnswer, SettleRequest,
};
use counterfoil::receipt::{CONFIRMED, Decision, EventKind, Reason, ReviewRefusal, Settlement, State, Verdict};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::databases::{Cut, Fresh, Proxy, each_ledger};

mod versions;

const LEASE: SignedDuration = SignedDuration::from_mins(5);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn week() -> IsoWeek {
    "2026-W32".parse().unwrap()
}

fn key(number: u8) -> ReceiptKey {
    ReceiptKey::from_bytes([number; 32])
}

fn content(number: u8) -> Fingerprint {
    Fingerprint::from_bytes([number.wrapping_add(100); 32])
}

fn other_content(number: u8) -> Fingerprint {
    Fingerprint::from_bytes([number.wrapping_add(200); 32])
}

fn new_run(snapshot: &str, version: &str, correction: bool) -> NewRun {
    NewRun {
        run_id: format!("2026-W32-{version}-{snapshot}"),
        iso_week: week(),
        digest_type: DigestType::new("weekly_activity").unwrap(),
        content_version: ContentVersion::new(version).unwrap(),
        mode: Mode::Enforce,
        snapshot_id: snapshot.to_owned(),
        rows: 10,
        part_rows: vec![5, 5],
        repeated: 0,
        rejected: 0,
        key_id: "k1".to_owned(),
        content_hash: [7; 32],
        deadline_at: "2099-01-01T00:00:00Z".parse().unwrap(),
        correction,
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
        Self::on_run(fresh, &new_run("first", "v1", false)).await
    }

    async fn on_run(fresh: &'a Fresh, run: &NewRun) -> Self {
        let ledger = fresh.open().await;
        let run = ledger.open_run(run).await.unwrap().run().unwrap();
        let destination = ledger.destination("retail", &[1; 32]).await.unwrap();
        Self { fresh, ledger, run, destination }
    }

    async fn ask_in(&self, run: &Run, number: u8, fingerprint: Fingerprint) -> ClaimAnswer {
        let requests = [ClaimRequest { key: key(number), fingerprint, part: 0 }];
        let batch = ClaimBatch {
            run_number: run.run_number,
            iso_week: self.run.new.iso_week,
            worker: 7,
            destination: self.destination,
            lease: LEASE,
            purpose: Purpose::Send,
            requests: &requests,
        };
        self.ledger.claim(&batch).await.unwrap().remove(0)
    }

    async fn claim(&self, number: u8) -> Grant {
        granted(self.ask_in(&self.run, number, content(number)).await)
    }

    async fn settle(&self, number: u8, grant: &Grant, settlement: Settlement) -> SettleAnswer {
        let request = SettleRequest {
            key: key(number),
            fingerprint: content(number),
            part: 0,
            grant_number: grant.grant_number,
            claimed_at: grant.claimed_at,
            first_claimed_at: grant.first_claimed_at,
            first_attempt_at: grant.first_attempt_at.or(Some(grant.claimed_at)),
            destination: self.destination,
            settlement,
        };
        self.ledger.settle(self.run.run_number, self.run.new.iso_week, &[request]).await.unwrap().remove(0)
    }

    async fn bring(&self, number: u8, settlement: Settlement) {
        let grant = self.claim(number).await;
        let state = settlement.state;
        assert_eq!(self.settle(number, &grant, settlement).await, SettleAnswer::Recorded(state));
    }

    async fn conflict_in(&self, run: &Run, number: u8, presented: Fingerprint) {
        let record = [ConflictRecord { key: key(number), presented, part: 1 }];
        self.ledger.record_conflicts(run.run_number, week(), &record).await.unwrap();
    }

    async fn state(&self, number: u8) -> (State, Option<Reason>) {
        let record = self.ledger.receipt(&key(number)).await.unwrap().unwrap();
        (record.standing.state, record.reason)
    }

    /// Decides as somebody who has just looked.
    async fn decide(&self, number: u8, decision: Decision) -> ReviewAnswer {
        let record = self.ledger.receipt(&key(number)).await.unwrap().unwrap();
        let review = Review {
            key: key(number),
            iso_week: self.run.new.iso_week,
            seen_state: record.standing.state,
            seen_grant: record.grant_number,
            decision,
            actor: "on call".to_owned(),
            note: "looked at the log".to_owned(),
            dry_run: false,
        };
        self.ledger.review(&review).await.unwrap()
    }

    async fn close(&self) -> counterfoil::ledger::RunClosing {
        self.ledger.close_run(&self.run, "on call", "wrong export").await.unwrap()
    }

    /// Works every part off, as a run that finds nothing to do.
    async fn finish(&self, run: &Run) {
        while let PartGrant::Taken { part } = self.ledger.take_part(run.run_number, 7, HOUR).await.unwrap() {
            let counts = counterfoil::ledger::ForeignCounts::default();
            self.ledger.end_part(run.run_number, part, 7, PartEnd::Done, &counts).await.unwrap();
        }
        assert!(self.ledger.close_finished_run(run).await.unwrap());
    }

    async fn is_open(&self, run: &Run) -> bool {
        self.ledger.run(&run.new.run_id).await.unwrap().unwrap().closed_at.is_none()
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
        provider_code: None,
        reconciled: false,
    }
}

fn sent(reference: &str) -> Settlement {
    Settlement { provider_reference: Some(reference.to_owned()), ..settled(State::Sent, None) }
}

fn retry(at: Timestamp) -> Settlement {
    Settlement { next_attempt_at: Some(at), ..settled(State::Retryable, Some(Reason::Unavailable)) }
}

fn held(since: Timestamp) -> Settlement {
    Settlement { ambiguous_since: Some(since), ..settled(State::Held, Some(Reason::Undecidable)) }
}

fn failed() -> Settlement {
    settled(State::Failed, Some(Reason::Rejected))
}

fn confirm() -> Decision {
    Decision::ConfirmSent { reference: None }
}

fn resend() -> Decision {
    Decision::Resend { content: None, accept_duplicate: false, send_until: None }
}

fn resend_in_doubt() -> Decision {
    Decision::Resend { content: None, accept_duplicate: true, send_until: None }
}

fn choose(content: Fingerprint) -> Decision {
    Decision::Resend { content: Some(content), accept_duplicate: false, send_until: None }
}

#[tokio::test]
async fn a_held_receipt_is_confirmed_with_who_and_why() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, held(world.ledger.now().await.unwrap())).await;
        assert_eq!(world.decide(1, confirm()).await, ReviewAnswer::Recorded(State::Sent));
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(record.provider_reference.as_deref(), Some(CONFIRMED));
        assert!(record.sent_at.is_some() && record.standing.ambiguous_since.is_none());
        let events = world.ledger.events(week(), &key(1)).await.unwrap();
        let last = events.last().unwrap();
        assert_eq!((last.kind, last.state), (EventKind::Review, State::Sent));
        assert_eq!((last.actor.as_deref(), last.note.as_deref()), (Some("on call"), Some("looked at the log")));
        assert_eq!(world.decide(1, confirm()).await, ReviewAnswer::Refused(ReviewRefusal::Sent));
    })
    .await;
}

#[tokio::test]
async fn a_receipt_that_changed_since_it_was_looked_at_is_left_alone() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, failed()).await;
        let review = Review {
            key: key(1),
            iso_week: week(),
            seen_state: State::Held,
            seen_grant: 1,
            decision: Decision::Discard,
            actor: "on call".to_owned(),
            note: "old page".to_owned(),
            dry_run: false,
        };
        assert_eq!(world.ledger.review(&review).await.unwrap(), ReviewAnswer::Changed(State::Failed));
        let absent = Review { key: key(9), ..review };
        assert_eq!(world.ledger.review(&absent).await.unwrap(), ReviewAnswer::Absent);
        assert_eq!(world.ledger.events(week(), &key(1)).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_to_be_sent_again_opens_its_run_and_part_and_can_be_claimed() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, held(world.ledger.now().await.unwrap())).await;
        world.finish(&world.run).await;
        assert!(matches!(world.decide(1, resend()).await, ReviewAnswer::Refused(ReviewRefusal::InDoubt { .. })));
        assert!(!world.is_open(&world.run).await);
        assert_eq!(world.decide(1, resend_in_doubt()).await, ReviewAnswer::Recorded(State::Retryable));
        assert_eq!(world.state(1).await, (State::Retryable, Some(Reason::Requested)));
        assert!(world.is_open(&world.run).await);
        assert_eq!(world.ledger.take_part(world.run.run_number, 7, HOUR).await.unwrap(), PartGrant::Taken { part: 0 });
        let grant = world.claim(1).await;
        assert_eq!((grant.grant_number, grant.attempts, grant.ambiguous_since), (2, 1, None));
        assert_eq!(world.settle(1, &grant, sent("r-1")).await, SettleAnswer::Recorded(State::Sent));
    })
    .await;
}

#[tokio::test]
async fn a_late_acceptance_after_a_confirmation_brings_the_reference_and_no_alarm() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let grant = world.claim(1).await;
        let later = World {
            ledger: fresh.open_later(HOUR).await,
            run: world.run.clone(),
            fresh: world.fresh,
            destination: world.destination,
        };
        assert!(matches!(world.decide(1, confirm()).await, ReviewAnswer::Refused(ReviewRefusal::Live { .. })));
        assert_eq!(later.decide(1, confirm()).await, ReviewAnswer::Recorded(State::Sent));
        assert_eq!(later.settle(1, &grant, sent("r-1")).await, SettleAnswer::Recorded(State::Sent));
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!((record.provider_reference.as_deref(), record.attempts), (Some("r-1"), 1));
        let kinds: Vec<EventKind> =
            world.ledger.events(week(), &key(1)).await.unwrap().iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Review, EventKind::LateSettle]);
    })
    .await;
}

#[tokio::test]
async fn discarding_closes_a_conflict_and_a_sent_receipt_stays_sent() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let other = world.ledger.open_run(&new_run("second", "v1", false)).await.unwrap().run().unwrap();
        world.bring(1, sent("r-1")).await;
        world.bring(2, failed()).await;
        for number in [1, 2] {
            world.conflict_in(&other, number, other_content(number)).await;
        }
        let now = world.ledger.now().await.unwrap();
        assert_eq!(world.ledger.run_counts(&other, now).await.unwrap().conflicts, 2);
        assert_eq!(world.decide(1, Decision::Discard).await, ReviewAnswer::Recorded(State::Sent));
        assert_eq!(world.decide(2, Decision::Discard).await, ReviewAnswer::Recorded(State::Failed));
        assert_eq!(world.state(2).await, (State::Failed, Some(Reason::Discarded)));
        let counts = world.ledger.run_counts(&other, now).await.unwrap();
        assert_eq!((counts.conflicts, counts.foreign.duplicate, counts.failed_rejected), (0, 1, 1));
        let waits = ReceiptFilter { waits_for_person: true, limit: 10, ..ReceiptFilter::default() };
        assert!(world.ledger.receipts(&waits).await.unwrap().is_empty());
        // The same conflict seen again is not a new one.
        world.conflict_in(&other, 1, other_content(1)).await;
        assert!(!world.ledger.receipt(&key(1)).await.unwrap().unwrap().in_conflict);
    })
    .await;
}

#[tokio::test]
async fn choosing_the_presented_content_moves_the_receipt_to_the_run_that_holds_it() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, retry(world.ledger.now().await.unwrap())).await;
        let other = world.ledger.open_run(&new_run("second", "v1", false)).await.unwrap().run().unwrap();
        world.conflict_in(&other, 1, other_content(1)).await;
        assert_eq!(world.state(1).await.0, State::Quarantined);
        world.finish(&world.run).await;
        world.finish(&other).await;
        assert!(matches!(world.decide(1, resend()).await, ReviewAnswer::Refused(ReviewRefusal::WhichContent { .. })));
        assert_eq!(world.decide(1, choose(other_content(1))).await, ReviewAnswer::Recorded(State::Retryable));
        assert!(world.is_open(&other).await && !world.is_open(&world.run).await);
        let record = world.ledger.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!((record.run_id.as_str(), record.part), (other.new.run_id.as_str(), 1));
        assert_eq!(world.ledger.take_part(other.run_number, 7, HOUR).await.unwrap(), PartGrant::Taken { part: 1 });
        // Its former run presents the former content again: known and decided.
        world.conflict_in(&world.run, 1, content(1)).await;
        assert_eq!(world.state(1).await.0, State::Retryable);
        let now = world.ledger.now().await.unwrap();
        let counts = world.ledger.run_counts(&world.run, now).await.unwrap();
        assert_eq!((counts.conflicts, counts.foreign.retryable), (0, 1));
        let grant = granted(world.ask_in(&other, 1, other_content(1)).await);
        assert_eq!(grant.grant_number, 2);
    })
    .await;
}

#[tokio::test]
async fn another_version_that_is_open_or_has_sent_keeps_a_receipt_from_being_sent_again() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, failed()).await;
        world.finish(&world.run).await;
        let second = world.ledger.open_run(&new_run("second", "v2", true)).await.unwrap().run().unwrap();
        let refused = async || {
            matches!(world.decide(1, resend()).await, ReviewAnswer::Refused(ReviewRefusal::OtherVersion { .. }))
        };
        assert!(refused().await, "open");
        let grant = granted(world.ask_in(&second, 2, content(2)).await);
        assert_eq!(world.settle(2, &grant, sent("r-2")).await, SettleAnswer::Recorded(State::Sent));
        let grant = granted(world.ask_in(&second, 3, content(3)).await);
        assert_eq!(world.settle(3, &grant, failed()).await, SettleAnswer::Recorded(State::Failed));
        world.finish(&second).await;
        assert!(refused().await, "sent");
        assert_eq!(world.decide(1, Decision::Discard).await, ReviewAnswer::Recorded(State::Failed));
        // The correction itself goes on.
        assert_eq!(world.decide(3, resend()).await, ReviewAnswer::Recorded(State::Retryable));
    })
    .await;
}

#[tokio::test]
async fn closing_a_run_ends_what_waits_and_leaves_a_live_claim_to_its_worker() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        let live = world.claim(1).await;
        world.bring(2, retry(now)).await;
        world.bring(3, Settlement { ambiguous_since: Some(now), ..retry(now) }).await;
        world.bring(4, sent("r-4")).await;
        let closing = world.close().await;
        assert_eq!((closing.was_open, closing.discarded, closing.held, closing.live), (true, 1, 1, 1));
        assert_eq!(world.state(2).await, (State::Failed, Some(Reason::Discarded)));
        assert_eq!(world.state(3).await, (State::Held, Some(Reason::OutOfTries)));
        assert_eq!(
            world.ledger.events(week(), &key(3)).await.unwrap().last().unwrap().note.as_deref(),
            Some("wrong export")
        );
        assert_eq!(world.ask_in(&world.run, 5, content(5)).await, ClaimAnswer::RunClosed);
        assert_eq!(world.settle(1, &live, sent("r-1")).await, SettleAnswer::Recorded(State::Sent));
        let run = world.ledger.run(&world.run.new.run_id).await.unwrap().unwrap();
        assert_eq!(run.closed_by.as_deref(), Some("on call"));
        assert!(world.ledger.open_runs().await.unwrap().is_empty());
        let again = world.close().await;
        assert_eq!((again.was_open, again.discarded, again.held, again.live), (false, 0, 0, 0));
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_ends_in_a_closed_run_is_held_when_the_run_is_closed_again() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.claim(1).await;
        world.close().await;
        let later = fresh.open_later(HOUR).await;
        let waits = ReceiptFilter { waits_for_person: true, limit: 10, ..ReceiptFilter::default() };
        assert_eq!(later.receipts(&waits).await.unwrap().len(), 1, "nobody takes it up any more");
        let closing = later.close_run(&world.run, "on call", "sweep").await.unwrap();
        assert_eq!((closing.held, closing.live), (1, 0));
        assert_eq!(world.state(1).await, (State::Held, Some(Reason::OutOfTries)));
    })
    .await;
}

#[tokio::test]
async fn a_closed_run_that_is_opened_for_one_receipt_claims_nothing_new() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        world.bring(1, failed()).await;
        world.close().await;
        assert_eq!(world.decide(1, resend()).await, ReviewAnswer::Recorded(State::Retryable));
        assert!(world.is_open(&world.run).await);
        let refused = ClaimAnswer::Refused(Verdict::Settled(State::Failed));
        assert_eq!(world.ask_in(&world.run, 2, content(2)).await, refused);
        let grant = world.claim(1).await;
        assert_eq!(world.settle(1, &grant, sent("r-1")).await, SettleAnswer::Recorded(State::Sent));
        world.finish(&world.run).await;
        assert_eq!(fresh.value("SELECT withdrawn_by FROM runs").await, "on call");
    })
    .await;
}

#[tokio::test]
async fn a_decision_whose_commit_was_not_acknowledged_is_recorded_once() {
    let fresh = Fresh::postgres().await;
    let world = World::on(&fresh).await;
    for (number, cut) in [(1, Cut::BeforeCommit), (2, Cut::AfterCommit)] {
        world.bring(number, failed()).await;
        let proxy = Proxy::before(&fresh).await;
        let ledger = counterfoil::ledger::open(&proxy.url, SignedDuration::ZERO).await.unwrap();
        let review = Review {
            key: key(number),
            iso_week: week(),
            seen_state: State::Failed,
            seen_grant: 1,
            decision: Decision::Discard,
            actor: "on call".to_owned(),
            note: "gone".to_owned(),
            dry_run: false,
        };
        proxy.arm(cut);
        assert_eq!(ledger.review(&review).await.unwrap(), ReviewAnswer::Recorded(State::Failed));
        assert!(proxy.was_cut());
        assert_eq!(world.ledger.events(week(), &key(number)).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_receipt_is_its_last_event_also_after_reviews() {
    each_ledger(async |fresh| {
        let world = World::on(fresh).await;
        let now = world.ledger.now().await.unwrap();
        world.bring(1, held(now)).await;
        world.decide(1, confirm()).await;
        world.bring(2, failed()).await;
        world.decide(2, resend()).await;
        world.bring(3, retry(now)).await;
        world.close().await;
        let columns = "receipt_key, run_number, part, state, reason, attempts, fingerprint, first_claimed_at, \
                       first_attempt_at, next_attempt_at, ambiguous_since, in_conflict, reconciled, destination_number";
        let receipts = fresh.query(&format!("SELECT {columns} FROM receipts ORDER BY receipt_key")).await;
        let events = fresh
            .query(&format!(
                "SELECT {columns} FROM receipt_events e WHERE event_id = (SELECT max(event_id) FROM receipt_events n \
                 WHERE n.receipt_key = e.receipt_key) ORDER BY receipt_key"
            ))
            .await;
        assert_eq!(receipts, events);
    })
    .await;
}

// --- The program ----------------------------------------------------------------------------------------------

/// A mail server that loses every connection after the final dot until it is told to accept.
struct MailServer {
    port: u16,
    accepts: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
}

impl MailServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, accepts: Arc::default(), accepted: Arc::default() };
        let (accepts, accepted) = (Arc::clone(&server.accepts), Arc::clone(&server.accepted));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (accepts, accepted) = (Arc::clone(&accepts), Arc::clone(&accepted));
                std::thread::spawn(move || converse(&connection, &accepts, &accepted));
            }
        });
        server
    }
}

/// One dialogue; ends without a reply where a message is not to be accepted.
fn converse(connection: &TcpStream, accepts: &AtomicBool, accepted: &AtomicUsize) -> std::io::Result<()> {
    let mut writer = connection;
    writer.write_all(b"220 here\r\n")?;
    let mut in_message = false;
    for line in BufReader::new(connection).lines() {
        let line = line?;
        let reply = match (in_message, line.as_str()) {
            (true, ".") if !accepts.load(Ordering::SeqCst) => return Ok(()),
            (true, ".") => {
                in_message = false;
                accepted.fetch_add(1, Ordering::SeqCst);
                "250 queued"
            }
            (true, _) => continue,
            (false, "DATA") => {
                in_message = true;
                "354 go"
            }
            (false, command) if command.starts_with("EHLO") => "250-here\r\n250 8BITMIME",
            (false, _) => "250 good",
        };
        writer.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// An installation that sends to a mail server.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn before(server: &MailServer) -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        place.run(&["init"], 0);
        let path = place.directory.path().join("counterfoil.toml");
        let text = fs::read_to_string(&path).unwrap();
        let smtp = format!("\"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n#", server.port);
        let text = text.replacen("\"maildir\"", &smtp, 1).replacen("\npath         = \"outbox\"", "\n#", 1);
        fs::write(path, text.replacen("mode   = \"observe\"", "mode   = \"enforce\"", 1)).unwrap();
        place
    }

    fn run(&self, arguments: &[&str], code: i32) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERFOIL_")) {
            command.env_remove(name);
        }
        let output = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        if code == 2 { said } else { String::from_utf8(output.stdout).unwrap() }
    }

    fn json(&self, arguments: &[&str], code: i32) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--format", "json"]].concat(), code)).unwrap()
    }

    fn send_sample(&self, code: i32) -> Value {
        self.send_sample_as("v1", &[], code)
    }

    fn send_sample_as(&self, version: &str, more: &[&str], code: i32) -> Value {
        let export = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let export = export.into_iter().find(|path| path.extension().is_some_and(|found| found == "jsonl")).unwrap();
        let export = export.to_string_lossy().into_owned();
        let usual = ["run", "--snapshot", &export, "--send-within", "300 days", "--content-version", version];
        let said = self.run(&[&usual[..], more, &["--format", "json"]].concat(), code);
        // A refusal is one line of JSON behind the log.
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }

    /// The waiting receipts' keys.
    fn waiting(&self) -> Vec<String> {
        let page = self.json(&["review", "list"], 0);
        let receipts = page["receipts"].as_array().unwrap().iter();
        receipts.map(|receipt| receipt["receipt_key"].as_str().unwrap().to_owned()).collect()
    }
}

const BY: [&str; 4] = ["--by", "ops", "--note", "read the relay's log"];

#[test]
fn what_a_mail_server_left_in_doubt_is_decided_by_a_person_and_recorded() {
    let server = MailServer::start();
    let place = Place::before(&server);
    let summary = place.send_sample(3);
    let run = summary["run_id"].as_str().unwrap().to_owned();
    let waiting = place.waiting();
    assert_eq!(summary["outcomes"]["held"], waiting.len());
    assert!(waiting.len() >= 3, "{waiting:?}");

    let (found, lost) = (&waiting[0][..12], &waiting[1]);
    place.run(&[&["review", "confirm-sent", found, "--reference", "4bX9"], &BY[..]].concat(), 0);
    let shown = place.run(&["receipts", "show", "--key", found], 0);
    assert!(shown.contains("reference       4bX9"), "{shown}");
    assert!(shown.contains("by ops, note read the relay's log"), "{shown}");
    let refused = place.run(&[&["review", "confirm-sent", found], &BY[..]].concat(), 2);
    assert!(refused.contains("it is sent, which is final"), "{refused}");

    let refused = place.run(&[&["review", "resend", lost], &BY[..]].concat(), 2);
    assert!(refused.contains("--accept-duplicate"), "{refused}");
    let resent = place.run(&[&["review", "resend", lost, "--accept-duplicate"], &BY[..]].concat(), 0);
    assert_eq!(resent, "1 receipt to be sent again\n\n-> counterfoil run\n");
    server.accepts.store(true, Ordering::SeqCst);
    let summary = place.json(&["run"], 3);
    assert_eq!(summary["outcomes"]["sent"], 1);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 1);

    let rest = waiting.len() - 2;
    let many = ["--run", &run[..12], "--reason", "undecidable"];
    let dry = place.json(&[&["review", "discard", "--dry-run"], &many[..], &BY[..]].concat(), 0);
    assert_eq!((&dry["decided"], &dry["dry_run"]), (&rest.into(), &true.into()));
    assert_eq!(place.waiting().len(), rest);
    let one = place.json(&[&["review", "discard", "--limit", "1"], &many[..], &BY[..]].concat(), 0);
    assert_eq!(one["decided"], 1);
    place.run(&[&["review", "discard"], &many[..], &BY[..]].concat(), 0);
    assert!(place.waiting().is_empty());
    assert_eq!(place.send_sample(0)["outcomes"]["failed"], rest);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_run_that_is_closed_sends_nothing_more_and_lets_a_correction_through() {
    let server = MailServer::start();
    let place = Place::before(&server);
    let unreachable = ["run", "close", "ffffffffffff"];
    place.run(&[&unreachable[..], &BY[..]].concat(), 2);
    let summary = place.send_sample(3);
    let run = summary["run_id"].as_str().unwrap().to_owned();
    let closed = place.json(&[&["run", "close", &run[..12]], &BY[..]].concat(), 3);
    assert_eq!((&closed["closed_now"], &closed["held"]), (&false.into(), &summary["outcomes"]["held"]));
    let lost = &place.waiting()[0];
    place.run(&[&["review", "resend", lost, "--accept-duplicate"], &BY[..]].concat(), 0);
    let closed = place.json(&[&["run", "close", &run], &BY[..]].concat(), 3);
    assert_eq!((&closed["closed_now"], &closed["discarded_now"]), (&true.into(), &1.into()));
    server.accepts.store(true, Ordering::SeqCst);
    place.run(&["run"], 0);
    assert_eq!(place.send_sample(3)["outcomes"]["failed"], 1);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 0);

    let templates = place.directory.path().join("templates/weekly_activity");
    let copied = Command::new("cp").arg("-r").args([templates.join("v1"), templates.join("v2")]).status();
    assert!(copied.unwrap().success());
    let refused = place.send_sample_as("v2", &[], 2);
    assert!(refused["error"].as_str().unwrap().contains("--correction"), "{refused}");
    let corrected = place.send_sample_as("v2", &["--correction"], 0);
    assert_eq!(corrected["outcomes"]["sent"], corrected["snapshot"]["rows"]);
    let refused = place.run(&[&["review", "resend", &place.waiting()[0], "--accept-duplicate"], &BY[..]].concat(), 2);
    assert!(refused.contains("version v2 of this week's digest"), "{refused}");
}

#[test]
fn a_note_that_would_keep_an_address_is_refused_and_not_repeated() {
    let server = MailServer::start();
    let place = Place::before(&server);
    for note in ["zoe.canary@example.test asked", "", "two\nlines canary"] {
        let refused = place.run(&["review", "discard", "433ae5f22615", "--by", "ops", "--note", note], 2);
        assert!(refused.contains("--note") && !refused.contains("canary"), "{refused}");
    }
    for arguments in [
        &["review", "discard", "--by", "ops", "--note", "x"][..],
        &["review", "discard", "--run", "433ae5f22615", "--by", "o", "--note", "x"],
    ] {
        place.run(arguments, 2);
    }
}
