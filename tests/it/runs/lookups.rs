//! Whole runs into a gateway that tells what became of a message, and whose word comes late, not at all, or never.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::TcpListener;

use super::place::{Ended, Place, ended, until};
use crate::databases::Backend;

const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];

/// An hour, past every settle time.
const HOUR: i64 = 3_600;

/// What happens to a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sends {
    #[default]
    Answered,
    /// Accepted, and answered with an error.
    AcceptedUnheard,
    /// Answered with an error, not accepted.
    Lost,
    /// The first one as before, all others are told to come again in an hour.
    LostThenThrottled,
}

/// What a look hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Looks {
    #[default]
    Truth,
    /// Nothing shows yet.
    Nothing,
    Error,
    /// The truth, a while later.
    Slow,
}

#[derive(Debug, Default)]
struct Account {
    sends: Sends,
    looks: Looks,
    /// How often each key was accepted.
    accepted: BTreeMap<String, u32>,
    posts: u32,
    gets: u32,
}

/// A gateway that knows no keys when it is asked to send, and tells what it has accepted when it is asked for that.
#[derive(Clone, Default)]
struct Gateway(Arc<Mutex<Account>>);

impl Gateway {
    async fn open(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router =
            Router::new().route("/send", post(accept)).route("/sent/{key}", get(tell)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        port
    }

    fn set(&self, sends: Sends, looks: Looks) {
        let mut account = self.0.lock().unwrap();
        (account.sends, account.looks) = (sends, looks);
    }

    /// Requests to send and looks since this was asked last.
    fn requests(&self) -> (u32, u32) {
        let mut account = self.0.lock().unwrap();
        (std::mem::take(&mut account.posts), std::mem::take(&mut account.gets))
    }

    /// Keys that were accepted, and the greatest number of times for one.
    fn accepted(&self) -> (usize, u32) {
        let account = self.0.lock().unwrap();
        (account.accepted.len(), account.accepted.values().copied().max().unwrap_or_default())
    }
}

async fn accept(State(gateway): State<Gateway>, headers: HeaderMap, _: Bytes) -> Response {
    let mut account = gateway.0.lock().unwrap();
    account.posts += 1;
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    if matches!(account.sends, Sends::Answered | Sends::AcceptedUnheard) {
        *account.accepted.entry(key.clone()).or_default() += 1;
    }
    match account.sends {
        Sends::Answered => axum::Json(json!({ "id": key.get(..16) })).into_response(),
        Sends::AcceptedUnheard | Sends::Lost => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Sends::LostThenThrottled if account.posts == 1 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Sends::LostThenThrottled => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3600")]).into_response(),
    }
}

async fn tell(State(gateway): State<Gateway>, Path(key): Path<String>) -> Response {
    let looks = {
        let mut account = gateway.0.lock().unwrap();
        account.gets += 1;
        account.looks
    };
    if looks == Looks::Slow {
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let account = gateway.0.lock().unwrap();
    match looks {
        Looks::Error => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Looks::Truth | Looks::Slow if account.accepted.contains_key(&key) => {
            axum::Json(json!({ "status": "accepted", "id": key.get(..16) })).into_response()
        }
        Looks::Truth | Looks::Slow | Looks::Nothing => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Nobody waits for anything: time passes by starting again with clocks that are ahead.
const NO_WAIT: [&str; 2] = ["--wait", "0s"];

async fn place(backend: Backend, gateway: &Gateway, more: &str) -> Place {
    let port = gateway.open().await;
    let place = Place::new(backend, &destination(port, more)).await;
    place.export("week.jsonl", 0..8, |number| number);
    place
}

fn destination(port: u16, more: &str) -> String {
    format!(
        "provider = \"http\"\nurl = \"http://127.0.0.1:{port}/send\"\n\
         lookup_url = \"http://127.0.0.1:{port}/sent/{{key}}\"\nsend_timeout = \"10s\"\nlease = \"30s\"\n\
         backoff = {{ base = \"100ms\", cap = \"1s\" }}\n{more}\n"
    )
}

impl Place {
    async fn begin(&self) -> Ended {
        self.run_at(0, &[&["--snapshot", "week.jsonl"], NO_WAIT.as_slice()].concat()).await
    }

    /// Decides about receipts of the only run; what was said where it could not be carried out.
    async fn review(&self, seconds: i64, decision: &[&str]) -> Result<(), String> {
        let run = self.ledger.value("SELECT run_id FROM runs").await;
        let mut command = self.command(&["review"]);
        command.args(decision).args(["--run", &run, "--by", "ops", "--note", "looked at"]);
        command.env("COUNTERFOIL_TEST_CLOCK_OFFSET", seconds.to_string());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }

    /// Goes on as if `seconds` had passed since the beginning.
    async fn go_on(&self, seconds: i64) -> Ended {
        self.run_at(seconds, &NO_WAIT).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_unheard_is_found_and_never_sent_again() {
    for backend in BACKENDS {
        let gateway = Gateway::default();
        let place = place(backend, &gateway, "").await;
        gateway.set(Sends::AcceptedUnheard, Looks::Truth);
        let begun = place.begin().await;
        assert_eq!((begun.code, begun.count("in_progress")), (4, 8), "waits for a look: {begun:?}");
        assert_eq!(place.receipts().await, ["retryable ambiguous 8"]);
        gateway.requests();
        assert_eq!(place.go_on(100).await.code, 4, "too early");
        assert_eq!(gateway.requests(), (0, 0));
        assert_eq!(place.go_on(150).await.code, 0);
        assert_eq!((gateway.requests(), gateway.accepted()), ((0, 8), (8, 1)));
        assert_eq!(place.receipts().await, ["sent 8"]);
        let told = place.ledger.query("SELECT DISTINCT kind FROM receipt_events WHERE state = 'sent'").await;
        assert_eq!(told, [[Some("lookup".to_owned())]]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_absent_twice_a_settle_time_apart_is_sent_again_under_the_same_key() {
    for backend in BACKENDS {
        let gateway = Gateway::default();
        let place = place(backend, &gateway, "").await;
        gateway.set(Sends::Lost, Looks::Truth);
        place.begin().await;
        gateway.set(Sends::Answered, Looks::Truth);
        gateway.requests();
        place.go_on(150).await;
        assert_eq!(place.receipts().await, ["retryable absent 8"]);
        assert_eq!(place.go_on(200).await.code, 4, "the misses are a settle time apart");
        assert_eq!(gateway.requests(), (0, 8));
        let ended = place.go_on(300).await;
        assert_eq!((ended.code, gateway.requests()), (0, (8, 8)), "{ended:?}");
        assert_eq!(gateway.accepted(), (8, 1));
        assert_eq!(place.receipts().await, ["sent 8"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_that_lags_behind_costs_a_second_look_and_no_second_message() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "").await;
    gateway.set(Sends::AcceptedUnheard, Looks::Nothing);
    place.begin().await;
    place.go_on(150).await;
    assert_eq!(place.receipts().await, ["retryable absent 8"]);
    gateway.set(Sends::Answered, Looks::Truth);
    assert_eq!(place.go_on(300).await.code, 0);
    assert_eq!(gateway.accepted(), (8, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_that_answers_500_five_times_leaves_the_receipt_to_a_person() {
    for more in ["", "replay_window = \"24h\""] {
        let gateway = Gateway::default();
        let place = place(Backend::Sqlite, &gateway, more).await;
        gateway.set(Sends::AcceptedUnheard, Looks::Error);
        place.begin().await;
        gateway.requests();
        for round in 1..=4 {
            place.go_on(round * HOUR).await;
            assert_eq!(place.receipts().await, ["retryable lookup_failed 8"], "round {round}");
        }
        let ended = place.go_on(5 * HOUR).await;
        ended_held(&ended);
        assert_eq!(place.receipts().await, ["held lookup_failed 8"]);
        assert_eq!(gateway.requests(), (0, 40), "no look that fails ends in another message");
        let refused = place.review(5 * HOUR, &["resend", "--reason", "lookup_failed"]).await.unwrap_err();
        assert!(refused.contains("--accept-duplicate"), "{refused}");
    }
}

#[track_caller]
fn ended_held(ended: &Ended) {
    assert_eq!(ended.code, 3, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_gateway_looks_up_and_replays_it_is_asked_first() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "replay_window = \"24h\"").await;
    gateway.set(Sends::AcceptedUnheard, Looks::Truth);
    place.begin().await;
    gateway.requests();
    assert_eq!(place.go_on(150).await.code, 0);
    assert_eq!(gateway.requests(), (0, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_deadline_a_doubt_is_still_looked_up_and_an_absence_ends_there() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "").await;
    gateway.set(Sends::AcceptedUnheard, Looks::Truth);
    place.begin().await;
    {
        // Three of them have got lost after all.
        let mut account = gateway.0.lock().unwrap();
        let lost: Vec<String> = account.accepted.keys().take(3).cloned().collect();
        account.accepted.retain(|key, _| !lost.contains(key));
    }
    gateway.set(Sends::Answered, Looks::Truth);
    gateway.requests();
    let past = 31 * 24 * HOUR;
    place.go_on(past).await;
    assert_eq!(place.receipts().await, ["retryable absent 3", "sent 5"]);
    place.go_on(past + HOUR).await;
    assert_eq!(place.receipts().await, ["failed deadline_passed 3", "sent 5"]);
    assert_eq!(gateway.requests(), (0, 11));
    // Nothing is in doubt any more: a person may have them sent without accepting a second copy.
    place.review(past + HOUR, &["resend", "--reason", "deadline_passed", "--send-within", "60 days"]).await.unwrap();
    assert_eq!(place.go_on(past + HOUR).await.code, 0);
    assert_eq!((gateway.requests(), gateway.accepted()), ((3, 0), (8, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absence_that_the_gateway_no_longer_remembers_proves_nothing() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "lookup_retention = \"2 days\"").await;
    gateway.set(Sends::AcceptedUnheard, Looks::Nothing);
    place.begin().await;
    ended_held(&place.go_on(49 * HOUR).await);
    assert_eq!(place.receipts().await, ["held lookup_retention_over 8"]);
    assert_eq!(gateway.accepted(), (8, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_export_is_quarantined_only_after_the_first_content_was_looked_up() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "").await;
    gateway.set(Sends::Lost, Looks::Truth);
    place.begin().await;
    place.export("changed.jsonl", 0..8, |number| number + 100);
    gateway.set(Sends::Answered, Looks::Truth);
    place.run_at(10, &["--snapshot", "changed.jsonl", "--wait", "0s"]).await;
    assert_eq!(place.receipts().await, ["retryable ambiguous 8"]);
    gateway.requests();
    place.go_on(150).await;
    let ended = place.go_on(300).await;
    assert_eq!((place.receipts().await, gateway.requests()), (vec!["quarantined conflict 8".to_owned()], (0, 16)));
    assert_eq!(ended.code, 3, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_suppressed_meanwhile_is_looked_up_and_never_sent_to() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "").await;
    gateway.set(Sends::Lost, Looks::Truth);
    place.begin().await;
    let listed = place.command(&["suppress", "add", "c3@example.test"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    gateway.set(Sends::Answered, Looks::Truth);
    gateway.requests();
    place.go_on(150).await;
    assert_eq!(place.go_on(300).await.code, 0);
    assert_eq!(
        (place.receipts().await, gateway.requests()),
        (vec!["sent 7".to_owned(), "suppressed on_our_list 1".to_owned()], (7, 16))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_was_changed_meanwhile_is_not_asked() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "").await;
    gateway.set(Sends::AcceptedUnheard, Looks::Truth);
    place.begin().await;
    let other = Gateway::default();
    place.configure(&destination(other.open().await, ""), "");
    ended_held(&place.go_on(150).await);
    assert_eq!(place.receipts().await, ["held destination_changed 8"]);
    assert_eq!((other.requests(), gateway.requests().1), ((0, 0), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_around_a_look_spends_no_attempt_and_the_look_is_made_again() {
    for step in ["before_lookup", "after_lookup"] {
        let gateway = Gateway::default();
        let place = place(Backend::Sqlite, &gateway, "concurrency = 1").await;
        gateway.set(Sends::AcceptedUnheard, Looks::Truth);
        place.begin().await;
        let mut dying = place.command(&["run", "--mode", "enforce"]);
        dying.env("COUNTERFOIL_TEST_CLOCK_OFFSET", "150").env("COUNTERFOIL_TEST_DIE_AT", step);
        let died = tokio::task::spawn_blocking(move || dying.output().unwrap()).await.unwrap();
        assert_eq!(died.status.code(), None, "{died:?}");
        assert_eq!(place.receipts().await, ["claimed 8"]);
        place.go_on(200).await;
        assert_eq!(place.receipts().await, ["retryable lease_ended 8"]);
        assert_eq!(place.go_on(HOUR).await.code, 0);
        let attempts = place.ledger.query("SELECT DISTINCT CAST(attempts AS text) FROM receipts").await;
        assert_eq!((attempts, gateway.accepted()), (vec![vec![Some("1".to_owned())]], (8, 1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_the_destination_holds_looks_too() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "concurrency = 1").await;
    gateway.set(Sends::LostThenThrottled, Looks::Truth);
    place.begin().await;
    assert_eq!(gateway.requests(), (2, 0));
    gateway.set(Sends::Answered, Looks::Truth);
    assert_eq!(place.go_on(HOUR / 2).await.code, 4);
    assert_eq!(gateway.requests(), (0, 0));
    place.go_on(HOUR + 10).await;
    assert_eq!(gateway.requests(), (7, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_looks_that_were_begun_and_gives_the_others_back() {
    let gateway = Gateway::default();
    let place = place(Backend::Sqlite, &gateway, "concurrency = 1").await;
    gateway.set(Sends::AcceptedUnheard, Looks::Slow);
    place.begin().await;
    let child = place.start_at(150, &[]);
    until("a look has begun", || gateway.0.lock().unwrap().gets > 0).await;
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(ended(child).await.code, 4);
    assert_eq!(place.receipts().await, ["retryable given_back 7", "sent 1"]);
    gateway.set(Sends::Answered, Looks::Truth);
    assert_eq!(place.go_on(151).await.code, 0);
    assert_eq!((place.receipts().await, gateway.accepted()), (vec!["sent 8".to_owned()], (8, 1)));
}
