//! Runs that go well, run twice, race and die.

use super::place::{MAILDIR, Place, assert_one_each, ended, terminate, until};
use crate::databases::Backend;

const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];

#[tokio::test(flavor = "multi_thread")]
async fn the_first_run_sends_to_all_and_the_second_finds_duplicates() {
    for backend in BACKENDS {
        let place = Place::new(backend, MAILDIR).await;
        place.export("week.jsonl", 0..2_100, |number| number);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 2_100)]);
        assert_one_each(&place.delivered(), 2_100);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("duplicate", 2_100)]);
        assert_one_each(&place.delivered(), 2_100);
        assert_eq!(place.run(&[]).await.code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_at_once_share_the_work_and_send_once() {
    for backend in BACKENDS {
        let place = Place::new(backend, MAILDIR).await;
        place.export("week.jsonl", 0..3_000, |number| number);
        let children = [place.start(&["--snapshot", "week.jsonl"]), place.start(&["--snapshot", "week.jsonl"])];
        for child in children {
            let ended = ended(child).await;
            assert_eq!(ended.code, 0, "{ended:?}");
            assert_eq!(ended.count("sent") + ended.count("duplicate"), 3_000);
        }
        assert_one_each(&place.delivered(), 3_000);
        assert_eq!(place.receipts().await, ["sent 3000"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_every_customer_gets_one() {
    for backend in BACKENDS {
        let place = Place::new(backend, &format!("{MAILDIR}concurrency = 2\n")).await;
        place.export("week.jsonl", 0..900, |number| number);
        for goal in [1, 200, 500] {
            let mut child = place.start_unheard(&["--snapshot", "week.jsonl"]);
            until("some are delivered", || place.delivered().len() >= goal).await;
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let last = place.run(&["--snapshot", "week.jsonl"]).await;
        assert_eq!(last.code, 0, "{last:?}");
        assert_eq!(last.count("sent") + last.count("reconciled") + last.count("duplicate"), 900, "{last:?}");
        assert_one_each(&place.delivered(), 900);
        assert_eq!(place.receipts().await, ["sent 900"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_gives_claims_back_unspent() {
    for backend in BACKENDS {
        let place = Place::new(backend, &format!("{MAILDIR}concurrency = 1\n")).await;
        place.export("week.jsonl", 0..1_500, |number| number);
        let child = place.start(&["--snapshot", "week.jsonl"]);
        until("some are delivered", || place.delivered().len() >= 5).await;
        terminate(&child);
        let stopped = ended(child).await;
        assert_eq!(stopped.code, 4, "{stopped:?}");
        let sent = stopped.count("sent");
        assert!((5..1_500).contains(&sent), "{stopped:?}");
        assert_eq!(stopped.count("sent") + stopped.count("retryable") + stopped.count("never_claimed"), 1_500);
        let spent = "SELECT count(*) FROM receipts WHERE state <> 'sent' AND (attempts <> 0 OR state <> 'retryable' \
                     OR reason <> 'given_back' OR ambiguous_since IS NOT NULL)";
        assert_eq!(place.ledger.value(spent).await, "0");
        place.run(&[]).await.assert(0, &[("sent", 1_500 - sent), ("duplicate", sent)]);
        assert_one_each(&place.delivered(), 1_500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn observing_claims_nothing_and_changes_no_table() {
    for backend in BACKENDS {
        let place = Place::new(backend, MAILDIR).await;
        place.export("week.jsonl", 0..20, |number| number);
        assert!(place.command(&["migrate"]).output().unwrap().status.success());
        let tables = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM receipts), (SELECT count(*) FROM \
                      receipt_events), (SELECT count(*) FROM ledger_identity), (SELECT count(*) FROM key_pins), \
                      (SELECT count(*) FROM content_pins), (SELECT count(*) FROM destinations), (SELECT count(*) FROM \
                      run_parts)";
        for _ in 0..2 {
            place.run(&["--snapshot", "week.jsonl", "--mode", "observe"]).await.assert(0, &[("observed", 20)]);
        }
        let empty = place.ledger.query(tables).await;
        assert!(empty[0].iter().all(|count| count.as_deref() == Some("0")), "{empty:?}");
        assert!(place.delivered().is_empty());
    }
}
