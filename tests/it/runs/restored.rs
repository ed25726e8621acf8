//! A ledger that is set back to an older copy, or lost: what was sent after the copy was made is not sent again.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use secrecy::ExposeSecret as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::place::{Ended, MAILDIR, Place, assert_one_each, smtp};
use crate::databases::Backend;
use crate::smtp::server::{Act, Seen, Server};

const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];

/// A copy of a ledger that nobody has open.
struct Copy {
    directory: tempfile::TempDir,
}

impl Copy {
    async fn of(place: &Place) -> Self {
        let copy = Self { directory: tempfile::tempdir().unwrap() };
        match place.ledger.backend {
            Backend::Sqlite => copy_files(&place.ledger.path(), copy.directory.path()),
            Backend::Postgres => copy_database(place, "", "_saved").await,
        }
        copy
    }

    async fn restore(&self, place: &Place) {
        match place.ledger.backend {
            Backend::Sqlite => {
                let ledger = place.ledger.path();
                for end in ["", "-wal", "-shm"] {
                    let _ = fs::remove_file(format!("{}{end}", ledger.display()));
                }
                copy_files(&self.directory.path().join(ledger.file_name().unwrap()), ledger.parent().unwrap());
            }
            Backend::Postgres => copy_database(place, "_saved", "").await,
        }
    }
}

/// Copies a SQLite file with its log into a directory.
fn copy_files(ledger: &Path, to: &Path) {
    for end in ["", "-wal"] {
        let file = format!("{}{end}", ledger.display());
        if Path::new(&file).exists() {
            fs::copy(&file, to.join(Path::new(&file).file_name().unwrap())).unwrap();
        }
    }
}

/// Copies a database over another one; both names are the ledger's with an ending.
async fn copy_database(place: &Place, from: &str, to: &str) {
    let (server, name) = place.ledger.url.expose_secret().rsplit_once('/').unwrap();
    let mut connection = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    for sql in [
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}{from}'"),
        format!("DROP DATABASE IF EXISTS {name}{to} WITH (FORCE)"),
        format!("CREATE DATABASE {name}{to} TEMPLATE {name}{from}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }
}

/// Runs until the process dies at a step.
fn die(place: &Place, at: &str, arguments: &[&str]) {
    let all: Vec<&str> = ["run", "--mode", "enforce"].iter().chain(arguments).copied().collect();
    let mut command = place.command(&all);
    command.env("COUNTERFOIL_TEST_DIE_AT", at).stdout(Stdio::null()).stderr(Stdio::null());
    assert_eq!(command.status().unwrap().code(), None, "it did not die");
}

fn messages(server: &mut Server) -> usize {
    server.so_far().iter().filter(|seen| matches!(seen, Seen::Message(_))).count()
}

async fn listening() -> Server {
    Server::start(&["8BITMIME"], |_| Act::Go).await
}

#[track_caller]
fn says_restored(ended: &Ended) {
    assert!(ended.stderr.contains("restored from an older copy"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_to_the_middle_of_a_run_nothing_is_sent_twice_and_nobody_is_left_out() {
    for backend in BACKENDS {
        let place = Place::new(backend, MAILDIR).await;
        place.export("week.jsonl", 0..5_200, |number| number);
        die(&place, "after_settle:1", &["--snapshot", "week.jsonl"]);
        let copy = Copy::of(&place).await;
        assert_eq!(place.run_at(60, &["--snapshot", "week.jsonl"]).await.code, 0);
        assert_one_each(&place.delivered(), 5_200);
        copy.restore(&place).await;
        let again = place.run_at(120, &["--snapshot", "week.jsonl"]).await;
        says_restored(&again);
        assert_eq!(again.code, 0, "{again:?}");
        assert!(again.count("reconciled") > 0, "{again:?}");
        assert_one_each(&place.delivered(), 5_200);
        assert_eq!(place.receipts().await, ["sent 5200"]);
        let quiet = place.run_at(180, &["--snapshot", "week.jsonl"]).await;
        quiet.assert(0, &[("duplicate", 5_200)]);
        assert!(!quiet.stderr.contains("restored"), "{}", quiet.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_to_before_the_run_all_are_held_where_nobody_can_tell_until_the_loss_is_accepted() {
    for backend in BACKENDS {
        let mut server = listening().await;
        let place = Place::new(backend, &smtp(server.port)).await;
        place.export("week.jsonl", 0..7, |number| number);
        assert!(place.command(&["migrate"]).output().unwrap().status.success());
        let copy = Copy::of(&place).await;
        place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 7)]);
        assert_eq!(messages(&mut server), 7);
        copy.restore(&place).await;
        let again = place.run(&["--snapshot", "week.jsonl"]).await;
        says_restored(&again);
        again.assert(3, &[("held", 7)]);
        assert_eq!(place.receipts().await, ["held ledger_restored 7"]);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(3, &[("held", 7)]);
        assert_eq!(messages(&mut server), 0);
        place.run(&["--accept-ledger-loss", "--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 7)]);
        assert_eq!(messages(&mut server), 7);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("duplicate", 7)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_export_or_another_version_does_not_get_around_a_lost_run() {
    let mut server = listening().await;
    let place = Place::new(Backend::Sqlite, &smtp(server.port)).await;
    place.export("week.jsonl", 0..7, |number| number);
    place.export("fresh.jsonl", 0..8, |number| number);
    assert!(place.command(&["migrate"]).output().unwrap().status.success());
    let copy = Copy::of(&place).await;
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 7)]);
    copy.restore(&place).await;
    let version = place.path("templates/weekly_activity");
    fs::create_dir(version.join("v2")).unwrap();
    for file in fs::read_dir(version.join("v1")).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
        fs::copy(file.path(), version.join("v2").join(file.file_name())).unwrap();
    }
    let other = place.run(&["--content-version", "v2", "--snapshot", "fresh.jsonl"]).await;
    other.assert_refused(&["version v1", "does not know", "--accept-ledger-loss"]);
    // One of them is new; nothing tells which.
    place.run(&["--snapshot", "fresh.jsonl"]).await.assert(3, &[("held", 8)]);
    assert_eq!(messages(&mut server), 7);
}

/// An installation whose run of twelve died after its first settle, and how many were sent.
async fn begun(backend: Backend, server: &mut Server) -> (Place, u64) {
    let place = Place::new(backend, &smtp(server.port)).await;
    place.export("week.jsonl", 0..12, |number| number);
    die(&place, "after_settle:1", &["--snapshot", "week.jsonl"]);
    let sent = messages(server) as u64;
    assert!((1..12).contains(&sent), "{sent}");
    (place, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn set_back_to_the_middle_of_a_part_the_finished_run_is_remembered() {
    for backend in BACKENDS {
        let mut server = listening().await;
        let (place, sent) = begun(backend, &mut server).await;
        let copy = Copy::of(&place).await;
        place.run_at(60, &["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 12 - sent), ("duplicate", sent)]);
        assert_eq!(messages(&mut server) as u64, 12 - sent);
        copy.restore(&place).await;
        let again = place.run_at(120, &[]).await;
        says_restored(&again);
        assert_eq!(again.code, 3);
        let then = place.run_at(120, &["--snapshot", "week.jsonl"]).await;
        then.assert(3, &[("held", 12 - sent), ("duplicate", sent)]);
        assert!(!then.stderr.contains("restored from"), "{}", then.stderr);
        assert_eq!(messages(&mut server), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_left_no_trace_is_said_by_its_owner() {
    for backend in BACKENDS {
        let mut server = listening().await;
        let (place, sent) = begun(backend, &mut server).await;
        let copy = Copy::of(&place).await;
        place.run_at(60, &["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 12 - sent), ("duplicate", sent)]);
        assert_eq!(messages(&mut server) as u64, 12 - sent);
        copy.restore(&place).await;
        // The whole machine was set back, the snapshot store with it.
        fs::remove_dir_all(place.path("snapshots/markers")).unwrap();
        let distrusted = place.run_at(120, &["--distrust-ledger", "--snapshot", "week.jsonl"]).await;
        distrusted.assert(3, &[("held", 12 - sent), ("duplicate", sent)]);
        assert_eq!(messages(&mut server), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_what_the_new_server_does_not_know_is_in_doubt_until_the_loss_is_accepted() {
    let mut server = listening().await;
    let (place, sent) = begun(Backend::Postgres, &mut server).await;
    // The run knows another timeline than the one that is written to now.
    place.ledger.execute("UPDATE runs SET database_timeline = '00000000'").await.unwrap();
    let doubted = place.run_at(60, &["--snapshot", "week.jsonl"]).await;
    says_restored(&doubted);
    doubted.assert(3, &[("held", 12 - sent), ("duplicate", sent)]);
    assert_eq!(messages(&mut server), 0);
    let accepted = place.run_at(60, &["--accept-ledger-loss", "--snapshot", "week.jsonl"]).await;
    accepted.assert(0, &[("sent", 12 - sent), ("duplicate", sent)]);
    assert_eq!(messages(&mut server) as u64, 12 - sent);
}
