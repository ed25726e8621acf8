//! What a run is refused for, before anything is claimed.

use std::fs;

use super::place::{MAILDIR, Place, smtp};
use crate::databases::Backend;

async fn place() -> Place {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    place.export("week.jsonl", 0..10, |number| number);
    place
}

async fn sent() -> Place {
    let place = place().await;
    place.run(&["--snapshot", "week.jsonl"]).await.assert(0, &[("sent", 10)]);
    place
}

/// The secrets of the keyring, first the week's, then the stable one.
fn secrets(place: &Place) -> Vec<String> {
    let keyring = fs::read_to_string(place.path("keyring.toml")).unwrap();
    keyring.lines().filter(|line| line.starts_with("secret")).map(str::to_owned).collect()
}

const OTHER_SECRET: &str = "secret = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"";

#[tokio::test(flavor = "multi_thread")]
async fn content_that_changed_under_its_version_is_refused() {
    let place = sent().await;
    place.edit("counterfoil.toml", "Example Bank <", "Another Bank <");
    let refused = place.run(&["--snapshot", "week.jsonl"]).await;
    refused.assert_refused(&["weekly_activity v1 has changed since it was first used", "content_version"]);
    assert_eq!(place.receipts().await, ["sent 10"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_secret_environment_or_stable_secret_is_refused() {
    let place = sent().await;
    let keyring = fs::read_to_string(place.path("keyring.toml")).unwrap();
    for (old, words) in secrets(&place).iter().zip([
        ["every digest that was sent would look new", "Restore that key's entry"],
        ["[stable] secret is not the one", "Restore the keyring"],
    ]) {
        place.edit("keyring.toml", old, OTHER_SECRET);
        place.run(&["--snapshot", "week.jsonl"]).await.assert_refused(&words);
        fs::write(place.path("keyring.toml"), &keyring).unwrap();
    }
    place.edit("counterfoil.toml", "environment = \"test\"", "environment = \"staging\"");
    let refused = place.run(&["--snapshot", "week.jsonl"]).await;
    refused.assert_refused(&["belongs to the environment `test`", "a copy of a ledger must not send"]);
    assert_eq!(place.delivered().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_very_different_number_of_rows_is_refused_until_accepted() {
    let place = sent().await;
    place.export("current.jsonl", 0..4, |number| number + 1);
    let refused = place.run(&["--snapshot", "current.jsonl", "--week", "current"]).await;
    refused.assert_refused(&["has 4 rows", "had 10", "--accept-row-count"]);
    let accepted = place.run(&["--snapshot", "current.jsonl", "--week", "current", "--accept-row-count"]).await;
    accepted.assert(0, &[("sent", 4)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn last_weeks_file_is_refused_for_this_week_until_it_is_meant() {
    let place = sent().await;
    let refused = place.run(&["--snapshot", "week.jsonl", "--week", "current"]).await;
    refused.assert_refused(&["was already sent as week", "--reuse-snapshot"]);
    let meant = place.run(&["--snapshot", "week.jsonl", "--week", "current", "--reuse-snapshot"]).await;
    meant.assert(0, &[("sent", 10)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_week_is_refused_unless_it_is_a_correction() {
    let place = sent().await;
    place.add_version("v2");
    let version = ["--snapshot", "week.jsonl", "--content-version", "v2"];
    place.run(&version).await.assert_refused(&["already sent as version v1", "--only-unsent", "--correction"]);
    let arguments: Vec<&str> = version.iter().copied().chain(["--correction"]).collect();
    place.run(&arguments).await.assert(0, &[("sent", 10)]);
    assert_eq!(place.delivered().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_run_after_its_deadline_is_refused_and_a_joined_one_lets_go_of_its_rows() {
    let place = Place::new(Backend::Sqlite, &smtp(1)).await;
    place.export("week.jsonl", 0..5, |number| number);
    let waiting = place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await;
    waiting.assert(4, &[("retryable", 5)]);
    let week = waiting.summary["iso_week"].as_str().unwrap().to_owned();
    let later = 40 * 86_400;
    place.export("new.jsonl", 0..6, |number| number + 1);
    let refused = place.run_at(later, &["--snapshot", "new.jsonl", "--week", &week]).await;
    refused.assert_refused(&["the deadline for week", "--send-within"]);
    assert_eq!(place.receipts().await, ["retryable unavailable 5"], "a refused run finishes nothing");
    let joined = place.run_at(later, &["--snapshot", "week.jsonl", "--week", &week]).await;
    joined.assert(3, &[("failed", 5)]);
    assert_eq!(place.receipts().await, ["failed deadline_passed 5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_export_leaves_earlier_runs_alone() {
    let place = Place::new(Backend::Sqlite, &smtp(1)).await;
    place.export("week.jsonl", 0..5, |number| number);
    place.run(&["--snapshot", "week.jsonl", "--wait", "0s"]).await.assert(4, &[("retryable", 5)]);
    let grants = "SELECT sum(grant_number) FROM receipts";
    let before = place.ledger.value(grants).await;
    fs::write(place.path("bad.jsonl"), "{\"customer_id\":\"x\"}\n").unwrap();
    place.run_at(60, &["--snapshot", "bad.jsonl", "--wait", "0s"]).await.assert_refused(&["bad.jsonl"]);
    assert_eq!(place.ledger.value(grants).await, before, "nothing is claimed by a run that is refused");
}
