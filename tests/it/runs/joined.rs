//! Runs that several processes work on, and runs that are finished by a later one.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::place::{MAILDIR, Place, assert_one_each, ended, smtp, terminate, until};
use crate::databases::Backend;
use crate::smtp::server::{Act, Point, Server};

const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];

fn put_off_for_twenty_minutes(port: u16) -> String {
    smtp(port).replace("base = \"100ms\", cap = \"1s\"", "base = \"20m\", cap = \"20m\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_joins_what_another_process_began_and_finishes_it_when_that_one_is_killed() {
    for backend in BACKENDS {
        let place = Place::new(backend, &format!("{MAILDIR}concurrency = 2\n")).await;
        place.export("week.jsonl", 0..3_000, |number| number);
        let mut first = place.start_unheard(&["--snapshot", "week.jsonl"]);
        until("some are delivered", || place.delivered().len() >= 50).await;
        let workers = [place.start_work(&[]), place.start_work(&[])];
        until("more are delivered", || place.delivered().len() >= 500).await;
        first.kill().unwrap();
        first.wait().unwrap();
        for worker in workers {
            let ended = ended(worker).await;
            assert_eq!(ended.code, 0, "{ended:?}");
            assert_eq!(ended.summary["snapshot"]["rows"], 3_000, "{ended:?}");
            let settled = ended.count("sent") + ended.count("reconciled") + ended.count("duplicate");
            assert_eq!(settled, 3_000, "{ended:?}");
        }
        assert_one_each(&place.delivered(), 3_000);
        assert_eq!(place.ledger.value("SELECT count(*) FROM runs WHERE closed_at IS NULL").await, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_begins_nothing_and_works_on_the_run_that_it_is_told() {
    let place = Place::new(Backend::Sqlite, &smtp(1)).await;
    let nothing = place.command(&["work", "--mode", "enforce"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&nothing.stdout), "nothing to do: no run is open\n");
    for (name, first) in [("one.jsonl", 0), ("two.jsonl", 10)] {
        place.export(name, first..first + 5, |number| number);
        place.run(&["--snapshot", name, "--wait", "0s"]).await.assert(4, &[("retryable", 5)]);
    }
    place.configure(MAILDIR, "");
    let unknown = place.command(&["work", "--run", "0123456789ab"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    let run = place.ledger.value("SELECT run_id FROM runs WHERE run_number = 2").await;
    let observing = place.command(&["work"]).output().unwrap();
    assert_eq!(observing.status.code(), Some(0));
    let said = String::from_utf8_lossy(&observing.stdout).into_owned();
    assert!(said.starts_with("nothing done: observing finishes no run") && said.contains(&run[..12]), "{said}");
    for _ in 0..2 {
        let told = ended(place.start_work(&["--run", &run[..12], "--wait", "30s"])).await;
        assert_eq!((told.code, told.summary["run_id"].as_str()), (0, Some(run.as_str())), "{told:?}");
        assert_eq!(told.count("sent") + told.count("duplicate"), 5);
        assert_eq!(place.delivered().len(), 5);
    }
    ended(place.start_work(&[])).await.assert(0, &[("sent", 5)]);
    assert_eq!(place.delivered().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubled_trigger_is_counted_joins_and_says_so() {
    for backend in BACKENDS {
        let place = Place::new(backend, &format!("{MAILDIR}concurrency = 1\n")).await;
        place.export("week.jsonl", 0..1_500, |number| number);
        let first = place.start(&["--snapshot", "week.jsonl"]);
        until("some are delivered", || place.delivered().len() >= 50).await;
        let second = place.run(&["--snapshot", "week.jsonl"]).await;
        assert_eq!((second.code, ended(first).await.code), (0, 0), "{second:?}");
        assert_eq!(second.count("sent") + second.count("duplicate"), 1_500);
        assert!(second.stderr.contains("another trigger of this run came"), "{second:?}");
        assert_eq!(place.ledger.value("SELECT trigger_count FROM runs").await, "2");
        assert_one_each(&place.delivered(), 1_500);
    }
    let place = Place::new(Backend::Sqlite, &put_off_for_twenty_minutes(1)).await;
    place.export("week.jsonl", 0..5, |number| number);
    for (seconds, joins) in [(0, false), (2, true), (400, false)] {
        let ended = place.run_at(seconds, &["--snapshot", "week.jsonl", "--wait", "0s"]).await;
        ended.assert(4, &[("retryable", 5)]);
        assert_eq!(ended.stderr.contains("another trigger of this run came"), joins, "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_on_one_file_lose_nothing_and_report_no_lock() {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    place.export("week.jsonl", 0..4_000, |number| number);
    let children: Vec<_> = (0..8).map(|_| place.start(&["--snapshot", "week.jsonl"])).collect();
    for child in children {
        let ended = ended(child).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(ended.count("sent") + ended.count("duplicate"), 4_000, "{ended:?}");
        for word in ["locked", "busy", "SQLITE", "\"level\":\"ERROR\""] {
            assert!(!ended.stderr.contains(word), "{word} in {}", ended.stderr);
        }
    }
    assert_one_each(&place.delivered(), 4_000);
    assert_eq!(place.receipts().await, ["sent 4000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_week_is_finished_from_its_own_snapshot_although_the_export_has_changed() {
    for backend in BACKENDS {
        let asked = AtomicUsize::new(0);
        let server = Server::start(&["8BITMIME"], move |moment| match moment.point {
            Point::Rcpt if asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(3) => Act::Say("451 4.7.1 later\r\n"),
            _ => Act::Go,
        })
        .await;
        let place = Place::new(backend, &put_off_for_twenty_minutes(server.port)).await;
        place.export("week.jsonl", 0..30, |number| number);
        let first = place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await;
        first.assert(4, &[("sent", 20), ("retryable", 10)]);
        // Every balance changes, the first customer leaves, one joins.
        place.export("week.jsonl", 1..31, |number| number + 1_000);
        place.configure(MAILDIR, "");
        place.run_at(3_600, &[]).await.assert(0, &[("sent", 10), ("duplicate", 20)]);
        assert_eq!(place.receipts().await, ["sent 30"]);
        let next = place.run_at(7 * 86_400, &["--snapshot", "week.jsonl"]).await;
        next.assert(0, &[("sent", 30)]);
        assert_ne!(next.summary["iso_week"], first.summary["iso_week"]);
        assert_eq!(place.receipts().await, ["sent 60"]);
        assert_one_each(&place.delivered(), 40);
        assert_eq!(place.ledger.value("SELECT count(*) FROM receipt_conflicts").await, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_have_receipts_of_each_others_rows_do_not_wait_for_each_other() {
    for backend in BACKENDS {
        let place = Place::new(backend, &put_off_for_twenty_minutes(1)).await;
        place.export("first.jsonl", 0..3, |number| number);
        place.export("second.jsonl", 0..4, |number| number);
        place.run(&["--snapshot", "first.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 3)]);
        place.run(&["--snapshot", "second.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 4)]);
        let give = "UPDATE receipts SET run_number = 2 WHERE receipt_key = (SELECT max(receipt_key) FROM receipts \
                    WHERE run_number = 1)";
        // PostgreSQL has no max of bytes before version 18.
        let give = give.replace(
            "max(receipt_key) FROM receipts WHERE run_number = 1",
            "receipt_key FROM receipts \
                    WHERE run_number = 1 ORDER BY receipt_key DESC LIMIT 1",
        );
        place.ledger.execute(&give).await.unwrap();
        place.configure(MAILDIR, "");
        let both = place.run_at(3_600, &[]).await;
        both.assert(0, &[("sent", 2), ("duplicate", 2)]);
        let first = &both.summary["earlier_runs"][0]["outcomes"];
        assert_eq!((first["sent"].as_u64(), first["duplicate"].as_u64()), (Some(2), Some(1)), "{both:?}");
        assert_eq!(place.ledger.value("SELECT count(*) FROM runs WHERE closed_at IS NULL").await, "0");
        assert_one_each(&place.delivered(), 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_run_that_is_older_than_the_replay_horizon_is_left_to_a_person() {
    let place = Place::new(Backend::Sqlite, &put_off_for_twenty_minutes(1)).await;
    place.export("week.jsonl", 0..3, |number| number);
    place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 3)]);
    let much_later = place.run_at(40 * 7 * 86_400, &[]).await;
    assert_eq!(much_later.code, 3, "{much_later:?}");
    let reason = much_later.summary["blocked_runs"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("older than `retention.replay_horizon`"), "{reason}");
    assert_eq!(place.receipts().await, ["retryable unavailable 3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_means_something_with_a_snapshot_is_refused_without_one() {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    for option in
        [&["--week", "2026-W32"][..], &["--type", "weekly_activity"], &["--content-version", "v1"], &["--only-unsent"]]
    {
        place.run(option).await.assert_refused(&["--snapshot"]);
    }
    let both = ["--snapshot", "week.jsonl", "--only-unsent", "--correction"];
    place.run(&both).await.assert_refused(&["cannot be used with"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_several_types_configured_open_runs_are_finished_without_naming_one() {
    let place = Place::new(Backend::Sqlite, &put_off_for_twenty_minutes(1)).await;
    place.export("week.jsonl", 0..3, |number| number);
    place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 3)]);
    let second = "[digest.monthly_report]\ncontent_version = \"v1\"\ndestination = \"retail\"\n\
                  from = \"Example Bank <digest@example.test>\"\n\
                  unsubscribe = \"https://example.test/u/{customer}/{token}\"\n";
    place.configure_all(&format!("[destination.retail]\n{MAILDIR}{second}"), "");
    place.run_at(3_600, &["--snapshot", "week.jsonl"]).await.assert_refused(&["--type"]);
    place.run_at(3_600, &[]).await.assert(0, &[("sent", 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_asked_to_stop_gives_its_claims_back() {
    let place = Place::new(Backend::Sqlite, &format!("{MAILDIR}concurrency = 1\n")).await;
    place.export("week.jsonl", 0..1_500, |number| number);
    let child = place.start(&["--snapshot", "week.jsonl"]);
    until("some are delivered", || place.delivered().len() >= 5).await;
    terminate(&child);
    assert_eq!(ended(child).await.code, 4);
    let before = place.delivered().len();
    let worker = place.start_work(&[]);
    until("more are delivered", || place.delivered().len() > before).await;
    terminate(&worker);
    let stopped = ended(worker).await;
    assert_eq!(stopped.code, 4, "{stopped:?}");
    let unspent = "SELECT count(*) FROM receipts WHERE state <> 'sent' AND (attempts <> 0 OR reason <> 'given_back')";
    assert_eq!(place.ledger.value(unspent).await, "0");
    let last = place.command(&["run", "--mode", "enforce", "-q"]).stdout(Stdio::null()).status().unwrap();
    assert_eq!(last.code(), Some(0));
    assert_one_each(&place.delivered(), 1_500);
}
