//! What people decide: about single receipts and about whole runs, on SQLite and on PostgreSQL alike, and as the
//! program is used from the command line.

use std::sync::Arc;

use counterfoil::identity::{ContentVersion, DigestType, Fingerprint, IsoWeek, ReceiptKey};
use counterfoil::ledger::{
    ClaimAnswer, ClaimBatch, ClaimRequest, ConflictRecord, DestinationNumber, Grant, Ledger, Mode, NewRun, PartEnd,
    PartGrant, Purpose, ReceiptFilter, Review, ReviewAnswer, Run, SettleAnswer, SettleRequest,
};
use counterfoil::receipt::{CONFIRMED, Decision, EventKind, Reason, ReviewRefusal, Settlement, State, Verdict};
use jiff::{SignedDuration, Timestamp};

use crate::databases::{Fresh, each_ledger};

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
        let run = ledger.open_run(&new_run("first", "v1", false)).await.unwrap();
        let destination = ledger.destination("retail", &[1; 32]).await.unwrap();
        Self { fresh, ledger, run, destination }
    }

    async fn ask_in(&self, run: &Run, number: u8, fingerprint: Fingerprint) -> ClaimAnswer {
        let requests = [ClaimRequest { key: key(number), fingerprint, part: 0 }];
        let batch = ClaimBatch {
            run_number: run.run_number,
            iso_week: week(),
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
        self.ledger.settle(self.run.run_number, week(), &[request]).await.unwrap().remove(0)
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
            iso_week: week(),
            seen_state: record.standing.state,
            seen_grant: record.grant_number,
            decision,
            actor: "on call".to_owned(),
            note: "looked at the log".to_owned(),
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
        let other = world.ledger.open_run(&new_run("second", "v1", false)).await.unwrap();
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
        let other = world.ledger.open_run(&new_run("second", "v1", false)).await.unwrap();
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
        let second = world.ledger.open_run(&new_run("second", "v2", true)).await.unwrap();
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
