//! One digest a week: whichever versions of a week are started, stopped, closed and raced, a customer gets one.

use std::process::Child;
use std::time::Duration;

use super::place::{MAILDIR, Place, assert_one_each, ended, smtp, terminate, until};
use crate::databases::Backend;
use crate::smtp::server::{Act, Point, Server};

const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];
const FIRST: [&str; 2] = ["--snapshot", "week.jsonl"];
const SECOND: [&str; 5] = ["--snapshot", "week.jsonl", "--content-version", "v2", "--only-unsent"];

async fn place(backend: Backend, destination: &str, customers: u32) -> Place {
    let place = Place::new(backend, destination).await;
    place.add_version("v2");
    place.export("week.jsonl", 0..customers, |number| number);
    place
}

/// Version 1, of which this many have been delivered.
async fn begun(place: &Place, delivered: usize) -> Child {
    let child = place.start(&FIRST);
    until("some are delivered", || place.delivered().len() >= delivered).await;
    child
}

fn close(place: &Place, run: &str) {
    let closed = place.command(&["run", "close", run, "--by", "ops", "--note", "version 2 follows"]).output().unwrap();
    assert!(matches!(closed.status.code(), Some(0 | 3)), "{closed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_closed_version_gets_the_next_one() {
    for backend in BACKENDS {
        let place = place(backend, &format!("{MAILDIR}concurrency = 1\n"), 1_500).await;
        let child = begun(&place, 600).await;
        terminate(&child);
        let first = ended(child).await;
        assert_eq!(first.code, 4, "{first:?}");
        let sent = first.count("sent");
        assert!((600..1_500).contains(&sent), "{first:?}");
        close(&place, first.summary["run_id"].as_str().unwrap());
        place.run(&SECOND).await.assert(0, &[("sent", 1_500 - sent), ("other_version", sent)]);
        assert_one_each(&place.recipients(), 1_500);
        place.run(&SECOND).await.assert(0, &[("duplicate", 1_500 - sent), ("other_version", sent)]);
        let superseded = "SELECT count(*) FROM receipt_overview WHERE content_version = 'v1' AND state <> 'sent' AND \
                          coalesce(reason, '') <> 'superseded'";
        assert_eq!(place.ledger.value(superseded).await, "0");
        assert_one_each(&place.recipients(), 1_500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_on_its_way_is_finished_before_the_next_one_begins() {
    for backend in BACKENDS {
        let place = place(backend, &format!("{MAILDIR}concurrency = 1\n"), 1_500).await;
        let child = begun(&place, 600).await;
        let second = place.run(&SECOND).await;
        second.assert(0, &[("other_version", 1_500)]);
        assert_eq!(second.summary["earlier_runs"][0]["content_version"], "v1", "{second:?}");
        assert_eq!(ended(child).await.code, 0);
        assert_eq!(place.receipts_by_version().await, ["v1 sent 1500"]);
        assert_one_each(&place.recipients(), 1_500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_closed_under_its_workers_leaves_the_rest_to_the_next_one() {
    for backend in BACKENDS {
        // The workers live: each claim is settled or given back, however slow the machine is.
        let patient = MAILDIR.replace("\"1s\"\nlease = \"3s\"", "\"20s\"\nlease = \"60s\"");
        let place = place(backend, &format!("{patient}concurrency = 2\n"), 1_500).await;
        let first = begun(&place, 300).await;
        let second = place.start(&SECOND);
        until("more are delivered", || place.delivered().len() >= 600).await;
        let run = place.ledger.value("SELECT run_id FROM runs WHERE content_version = 'v1'").await;
        close(&place, &run);
        let (first, second) = (ended(first).await, ended(second).await);
        assert_eq!(second.code, 0, "{second:?} after {first:?}");
        assert_eq!(second.count("sent") + second.count("other_version"), 1_500, "{second:?} after {first:?}");
        assert!(second.count("sent") > 0, "{second:?}");
        let earlier = &second.summary["earlier_runs"][0]["outcomes"];
        assert_eq!(earlier["in_progress"], 0, "{second:?}");
        assert_one_each(&place.recipients(), 1_500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_that_are_started_at_the_same_instant_do_not_both_send() {
    for backend in BACKENDS {
        for _ in 0..4 {
            let place = place(backend, MAILDIR, 30).await;
            let children =
                ["v1", "v2"].map(|version| place.start(&["--snapshot", "week.jsonl", "--content-version", version]));
            let mut codes = Vec::new();
            for child in children {
                let ended = ended(child).await;
                assert!(ended.code == 0 || ended.stderr.contains("was already sent as version"), "{ended:?}");
                codes.push(ended.code);
            }
            codes.sort_unstable();
            assert_eq!(codes, [0, 2]);
            assert_one_each(&place.recipients(), 30);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_waits_while_another_one_has_receipts_that_wait_and_claims_nothing() {
    for backend in BACKENDS {
        let slow = smtp(1).replace("base = \"100ms\", cap = \"1s\"", "base = \"20m\", cap = \"20m\"");
        let place = place(backend, &slow, 5).await;
        place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 5)]);
        for arguments in [&SECOND[..4], &SECOND[..]] {
            let arguments: Vec<&str> = arguments.iter().copied().chain(["--wait", "0s"]).collect();
            let waits = place.run(&arguments).await;
            assert_eq!((waits.code, &waits.summary["waits_for"]["content_version"]), (4, &"v1".into()), "{waits:?}");
        }
        assert_eq!(place.ledger.value("SELECT count(*) FROM runs").await, "1");
        close(&place, &place.ledger.value("SELECT run_id FROM runs").await);
        place.configure(MAILDIR, "");
        place.run(&SECOND[..4]).await.assert_refused(&["was already sent as version v1", "--only-unsent"]);
        place.run(&SECOND).await.assert(0, &[("sent", 5)]);
        assert_eq!(place.receipts_by_version().await, ["v1 failed superseded 5", "v2 sent 5"]);
        let key = place.ledger.value("SELECT receipt_key FROM receipt_overview WHERE state = 'failed'").await;
        let resend = ["review", "resend", &key, "--by", "ops", "--note", "again"];
        let refused = place.command(&resend).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("another content version took its place"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_version_may_have_sent_is_left_out() {
    let place = place(Backend::Sqlite, MAILDIR, 6).await;
    place.run(&FIRST).await.assert(0, &[("sent", 6)]);
    let keys = place.ledger.query("SELECT lower(hex(receipt_key)) FROM receipts ORDER BY 1").await;
    let now = "(SELECT max(updated_at) FROM receipts)";
    for (key, change) in keys.iter().zip([
        format!("state = 'held', reason = 'undecidable', ambiguous_since = {now}"),
        "state = 'suppressed', reason = 'on_our_list'".to_owned(),
        "state = 'quarantined', reason = 'conflict'".to_owned(),
        format!("state = 'retryable', reason = 'ambiguous', next_attempt_at = {now}, ambiguous_since = {now}"),
        "state = 'failed', reason = 'rejected'".to_owned(),
    ]) {
        let key = key[0].clone().unwrap();
        let sql = format!("UPDATE receipts SET sent_at = NULL, {change} WHERE receipt_key = x'{key}'");
        place.ledger.execute(&sql).await.unwrap();
    }
    place.run(&SECOND).await.assert(0, &[("sent", 1), ("other_version", 5)]);
    place.run(&SECOND).await.assert(0, &[("duplicate", 1), ("other_version", 5)]);
    let joined = ["--snapshot", "week.jsonl", "--content-version", "v2", "--correction"];
    let joined = place.run(&joined).await;
    joined.assert(0, &[("duplicate", 1), ("other_version", 5)]);
    assert!(joined.stderr.contains("was begun with --only-unsent"), "{joined:?}");
    assert_eq!(place.delivered().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_the_next_version_still_sends_to_everyone_once() {
    for (backend, step) in BACKENDS.into_iter().zip(["before_claim:2", "after_claim:2"]) {
        // Put off one by one, which opens no breaker.
        let server = Server::start(&["8BITMIME"], |moment| match moment.point {
            Point::Rcpt => Act::Say("450 4.2.0 later\r\n"),
            _ => Act::Go,
        })
        .await;
        let slow = smtp(server.port).replace("base = \"100ms\", cap = \"1s\"", "base = \"20m\", cap = \"20m\"");
        let place = place(backend, &slow, 40).await;
        place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 40)]);
        close(&place, &place.ledger.value("SELECT run_id FROM runs").await);
        place.configure(&format!("{MAILDIR}concurrency = 2\n"), "");
        place.edit("counterfoil.toml", "[ledger]", "[run]\nmax_in_flight = 8\n[ledger]");
        let mut dying = place.command(&["run", "--mode", "enforce"]);
        let died = dying.args(SECOND).env("COUNTERFOIL_TEST_DIE_AT", step).output().unwrap();
        assert_eq!(died.status.code(), None, "{died:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let last = place.run_at(60, &SECOND).await;
        assert_eq!(last.code, 0, "{last:?}");
        assert_one_each(&place.recipients(), 40);
        assert_eq!(place.receipts_by_version().await, ["v1 failed superseded 40", "v2 sent 40"]);
    }
}
