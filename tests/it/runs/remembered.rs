//! What may have been accepted is never forgotten: not by a second answer, not by time, not by a worker that was
//! thought dead and wakes up.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::place::{Place, ended, http, until};
use crate::databases::Backend;
use crate::http::server::{Act, Request, Server};

const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];
const HOUR: i64 = 3_600;
const NO_WAIT: [&str; 2] = ["--wait", "0s"];

/// A gateway that loses its first answer after it has accepted, and gives this one to whoever comes again.
async fn loses_its_first_answer(second: Act) -> Server {
    Server::start(move |request| match request.number {
        0 => Act::Drop,
        _ => second.clone(),
    })
    .await
}

/// Whole hours since the week ended that a run is about by default, in UTC.
fn hours_since_the_week() -> i64 {
    // 5 January 1970 was a Monday.
    let first_monday = 4 * 24 * HOUR;
    (jiff::Timestamp::now().as_second() - first_monday) % (7 * 24 * HOUR) / HOUR
}

/// Nothing is due again within a moment.
fn slow(destination: &str) -> String {
    destination.replace("base = \"100ms\", cap = \"1s\"", "base = \"10m\", cap = \"10m\"")
}

/// One customer whose first attempt is in doubt, and who was tried again an hour later.
async fn tried_again(backend: Backend, server: &Server, more: &str, digest: &str) -> Place {
    let window = if more.contains("replay_window") { "" } else { "replay_window = \"24h\"\n" };
    let destination = slow(&http(server.port, &format!("{window}{more}")));
    let place = Place::new(backend, &destination).await;
    place.configure(&destination, digest);
    place.export("week.jsonl", 0..1, |number| number);
    let first = place.run(&[&["--snapshot", "week.jsonl"], NO_WAIT.as_slice()].concat()).await;
    assert_eq!((first.code, first.count("in_progress")), (4, 1), "{first:?}");
    assert_eq!(server.requests().len(), 1);
    place.run_at(HOUR, &NO_WAIT).await;
    place
}

/// Nothing was sent a third time, and a person is asked.
async fn assert_held(place: &Place, server: &Server, attempts: usize, reason: &str) {
    place.run_at(25 * HOUR, &NO_WAIT).await;
    place.run_at(48 * HOUR, &NO_WAIT).await;
    assert_eq!(server.requests().len(), attempts, "never granted as new");
    assert_eq!(place.receipts().await, [format!("held {reason} 1")]);
    let since = place.ledger.value("SELECT count(*) FROM receipts WHERE ambiguous_since IS NOT NULL").await;
    assert_eq!(since, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_outlives_whatever_the_second_attempt_is_answered() {
    let answers = [
        (Act::with_headers(429, &[("retry-after", "2")]), "replay_window_over"),
        (Act::answer(400, "{\"error\":\"bad_address\"}"), "replay_refused"),
        (Act::answer(503, ""), "replay_window_over"),
        (Act::answer(409, "{\"error\":\"in_progress\"}"), "replay_window_over"),
        (Act::answer(409, "{\"error\":\"other\"}"), "other_payload"),
    ];
    for backend in BACKENDS {
        for (second, reason) in &answers {
            let server = loses_its_first_answer(second.clone()).await;
            let place = tried_again(backend, &server, "", "").await;
            assert_held(&place, &server, 2, reason).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_outlives_attempts_and_deadline() {
    for backend in BACKENDS {
        let server = loses_its_first_answer(Act::answer(503, "")).await;
        let place = tried_again(backend, &server, "max_attempts = 2\n", "").await;
        assert_held(&place, &server, 2, "out_of_tries").await;

        // The deadline passes after the second attempt; the window alone would have allowed a third.
        let server = loses_its_first_answer(Act::answer(503, "")).await;
        let send_within = format!("send_within = \"{}h\"", hours_since_the_week() + 2);
        let place = tried_again(backend, &server, "replay_window = \"1000h\"", &send_within).await;
        assert_held(&place, &server, 2, "out_of_tries").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_outlives_another_content_under_its_key() {
    for backend in BACKENDS {
        let server = loses_its_first_answer(Act::answer(503, "")).await;
        let place = tried_again(backend, &server, "", "").await;
        place.export("changed.jsonl", 0..1, |_| 99);
        // Two hours later it may be another week already.
        let week = place.ledger.value("SELECT iso_week FROM receipt_overview").await;
        let arguments = ["--snapshot", "changed.jsonl", "--week", &week, "--wait", "0s"];
        let changed = place.run_at(2 * HOUR, &arguments).await;
        assert_eq!(changed.count("quarantined"), 1, "{changed:?}");
        let attempts = server.requests().len();
        assert_held(&place, &server, attempts, "replay_window_over").await;
        let bodies: Vec<Vec<u8>> = server.requests().into_iter().map(|request| request.body).collect();
        assert!(bodies.windows(2).all(|two| two[0] == two[1]), "the other content never left");
    }
}

/// The margin is five minutes at least: an attempt that begins inside the window also ends inside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_repeated_inside_its_window_and_not_after_it() {
    for (later, requests, receipt) in [
        (23 * HOUR + 54 * 60, 2, "sent 1"),
        (23 * HOUR + 56 * 60, 1, "held replay_window_over 1"),
        (24 * HOUR + 60, 1, "held replay_window_over 1"),
    ] {
        let server = loses_its_first_answer(Act::answer(200, "{\"id\":\"m-1\"}")).await;
        let destination = slow(&http(server.port, "replay_window = \"24h\""));
        let place = Place::new(Backend::Sqlite, &destination).await;
        place.export("week.jsonl", 0..1, |number| number);
        place.run(&[&["--snapshot", "week.jsonl"], NO_WAIT.as_slice()].concat()).await;
        place.run_at(later, &NO_WAIT).await;
        assert_eq!((server.requests().len(), place.receipts().await), (requests, vec![receipt.to_owned()]));
        let keys: Vec<_> =
            server.requests().iter().map(|sent| sent.header("idempotency-key").unwrap().to_owned()).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}

/// How often a gateway accepted a message under each key; the first request is accepted and never answered.
#[derive(Clone, Default)]
struct Accepted(Arc<Mutex<BTreeMap<String, u32>>>);

impl Accepted {
    fn answer(&self, request: &Request, replays: bool) -> Act {
        let mut accepted = self.0.lock().unwrap();
        if request.method == "GET" {
            let known = accepted.contains_key(request.target.rsplit('/').next().unwrap());
            return if known {
                Act::answer(200, "{\"status\":\"accepted\",\"id\":\"m\"}")
            } else {
                Act::answer(404, "")
            };
        }
        let times = accepted.entry(request.header("idempotency-key").unwrap().to_owned()).or_default();
        if *times == 0 || !replays {
            *times += 1;
        }
        if request.number == 0 { Act::Silence } else { Act::answer(200, "{\"id\":\"m\"}") }
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_sleeps_through_its_lease_and_wakes_up_sends_nothing_more() {
    for (backend, replays) in BACKENDS.into_iter().flat_map(|backend| [(backend, true), (backend, false)]) {
        let accepted = Accepted::default();
        let script = accepted.clone();
        let server = Server::start(move |request| script.answer(request, replays)).await;
        let more = match replays {
            true => "replay_window = \"24h\"".to_owned(),
            false => {
                format!("lookup_url = \"http://127.0.0.1:{}/sent/{{key}}\"\nlookup_settle = \"1s\"", server.port)
            }
        };
        let destination = http(server.port, &format!("concurrency = 1\n{more}"))
            .replace("send_timeout = \"10s\"\nlease = \"30s\"", "send_timeout = \"2s\"\nlease = \"4s\"");
        let place = Place::new(backend, &destination).await;
        place.export("week.jsonl", 0..8, |number| number);
        let sleeper = place.start(&["--snapshot", "week.jsonl"]);
        until("the first has arrived", || !server.requests().is_empty()).await;
        signal(&sleeper, "-STOP");
        let claimed = place.ledger.value("SELECT count(*) FROM receipts WHERE state = 'claimed'").await;
        assert_eq!(claimed, "8");
        // Its lease is over on every clock.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let taker = ended(place.start(&["--snapshot", "week.jsonl"])).await;
        assert_eq!(taker.code, 0, "{taker:?}");
        assert_eq!(place.receipts().await, ["sent 8"]);
        signal(&sleeper, "-CONT");
        let woken = ended(sleeper).await;
        assert_eq!(woken.code, 0, "{woken:?}");
        let accepted = accepted.0.lock().unwrap().clone();
        assert!(accepted.len() == 8 && accepted.values().all(|times| *times == 1), "{accepted:?}");
        let late = place.ledger.value("SELECT count(*) FROM receipt_events WHERE kind = 'late_settle'").await;
        assert_eq!(late, "8", "what came too late is remembered");
        assert_eq!(place.receipts().await, ["sent 8"]);
    }
}
