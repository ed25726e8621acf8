//! Every row falls into exactly one outcome, whichever run its receipt belongs to.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::place::{MAILDIR, Place, row, smtp};
use crate::databases::Backend;
use crate::smtp::server::{Act, Point, Server};

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_row_under_a_sent_receipt_is_a_conflict_and_is_not_sent() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let place = Place::new(backend, MAILDIR).await;
        place.export("week.jsonl", 0..30, |number| number);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 30)]);
        // One changed, one gone, one new.
        place.export("again.jsonl", 1..31, |number| if number == 7 { 1_000_000 } else { number });
        let again = place.run(&["--snapshot", "again.jsonl"]).await;
        again.assert(3, &[("sent", 1), ("duplicate", 28), ("quarantined", 1)]);
        assert_eq!(place.delivered().len(), 31);
        assert_eq!(place.receipts().await, ["sent 31"]);
        let fingerprints = "SELECT count(*) FROM receipt_conflicts c JOIN receipts r ON r.receipt_key = c.receipt_key \
                            WHERE c.recorded = r.fingerprint AND c.presented <> c.recorded";
        assert_eq!(place.ledger.value(fingerprints).await, "1");
        place.run(&["--snapshot", "again.jsonl"]).await.assert(3, &[("duplicate", 29), ("quarantined", 1)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_conflicts_stop_the_run_and_none_of_them_is_lost_from_the_counts() {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    place.export("week.jsonl", 0..100, |number| number);
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 100)]);
    place.export("again.jsonl", 0..100, |number| if number < 30 { 1_000_000 } else { number });
    for _ in 0..2 {
        let braked = place.run(&["--snapshot", "again.jsonl"]).await;
        braked.assert(3, &[("duplicate", 70), ("quarantined", 21), ("never_claimed", 9)]);
        assert_eq!(place.ledger.value("SELECT count(*) FROM runs WHERE closed_at IS NULL").await, "1");
    }
    place.configure(MAILDIR, "max_conflicts = \"50%\"");
    let meant = place.run(&["--snapshot", "again.jsonl"]).await;
    meant.assert(3, &[("duplicate", 70), ("quarantined", 30)]);
    assert_eq!(place.delivered().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_of_a_part_that_is_taken_again_are_counted_once_for_the_brake() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(&["8BITMIME"], move |moment| match moment.point {
        // The new customer, who comes after the thirty of the first run, is put off ten times.
        Point::Rcpt if (30..40).contains(&asked.fetch_add(1, Ordering::SeqCst)) => Act::Say("451 4.7.1 later\r\n"),
        _ => Act::Go,
    })
    .await;
    let place = Place::new(Backend::Sqlite, &smtp(server.port)).await;
    place.export("week.jsonl", 0..30, |number| number);
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 30)]);
    place.export("again.jsonl", 0..31, |number| if number < 5 { 1_000_000 } else { number });
    let again = place.run(&["--snapshot", "again.jsonl"]).await;
    again.assert(3, &[("sent", 1), ("duplicate", 25), ("quarantined", 5)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_rejections_stop_the_run() {
    let server = Server::start(&["8BITMIME"], |moment| match moment.point {
        Point::Rcpt => Act::Say("550 5.1.1 no such user\r\n"),
        _ => Act::Go,
    })
    .await;
    let place = Place::new(Backend::Sqlite, &smtp(server.port)).await;
    place.export("week.jsonl", 0..500, |number| number);
    let braked = place.run(&["--snapshot", "week.jsonl"]).await;
    assert_eq!(braked.code, 3, "{braked:?}");
    let failed = braked.count("failed");
    assert!((51..=60).contains(&failed), "{braked:?}");
    braked.assert(
        3,
        &[
            ("failed", failed),
            ("retryable", braked.count("retryable")),
            ("never_claimed", braked.count("never_claimed")),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_wait_in_another_run_are_looked_at_again_until_that_run_is_done() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let asked = AtomicUsize::new(0);
        let server = Server::start(&["8BITMIME"], move |moment| match moment.point {
            // The first run's three are put off, the second run's own one is not.
            Point::Rcpt if asked.fetch_add(1, Ordering::SeqCst) < 3 => Act::Say("451 4.7.1 later\r\n"),
            _ => Act::Go,
        })
        .await;
        let slow = smtp(server.port).replace("base = \"100ms\", cap = \"1s\"", "base = \"20m\", cap = \"20m\"");
        let place = Place::new(backend, &slow).await;
        place.export("first.jsonl", 0..3, |number| number);
        place.export("second.jsonl", 0..4, |number| number);
        place.run(&["--snapshot", "first.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 3)]);
        let second = place.run(&["--snapshot", "second.jsonl", "--wait", "0s"]).await;
        second.assert(4, &[("sent", 1), ("retryable", 3)]);
        place.run_at(3_600, &["--snapshot", "second.jsonl"]).await.assert(0, &[("duplicate", 4)]);
        assert_eq!(place.receipts().await, ["sent 4"]);
        assert_eq!(place.ledger.value("SELECT count(*) FROM runs WHERE closed_at IS NULL").await, "0");
        place.run_at(3_600, &["--snapshot", "second.jsonl"]).await.assert(0, &[("duplicate", 4)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_run_that_cannot_be_finished_is_named_and_keeps_nobody_from_their_digest() {
    let place = Place::new(Backend::Sqlite, &smtp(1)).await;
    place.export("first.jsonl", 0..3, |number| number);
    place.run(&["--snapshot", "first.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 3)]);
    fs::remove_dir_all(place.path("snapshots")).unwrap();
    place.configure(MAILDIR, "");
    place.export("second.jsonl", 10..14, |number| number);
    let second = place.run(&["--snapshot", "second.jsonl"]).await;
    second.assert(3, &[("sent", 4)]);
    assert_eq!(second.summary["blocked_runs"].as_array().map(Vec::len), Some(1), "{second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_gone_stops_only_the_run_that_needs_it() {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    let retail = format!("[destination.retail]\n{MAILDIR}");
    place.configure_all(&format!("{retail}[destination.old]\n{}", smtp(1)), "");
    place.export_rows("first.jsonl", [row(1, 1, None), row(2, 2, Some("old"))]);
    let first = place.run(&["--snapshot", "first.jsonl", "--wait", "0s"]).await;
    first.assert(4, &[("sent", 1), ("retryable", 1)]);
    place.configure_all(&retail, "");
    place.export("second.jsonl", 10..13, |number| number);
    let second = place.run_at(60, &["--snapshot", "second.jsonl"]).await;
    second.assert(3, &[("sent", 3)]);
    let blocked = second.summary["blocked_runs"][0]["reason"].as_str().unwrap().to_owned();
    assert!(blocked.contains("destination.old"), "{blocked}");
    place.configure_all(&format!("{retail}[destination.old]\n{}", MAILDIR.replace("outbox", "old")), "");
    place.run_at(60, &["--snapshot", "first.jsonl"]).await.assert(0, &[("sent", 1), ("duplicate", 1)]);
}
