//! The HTTP provider against a scripted server: which answer means what, which failure is ambiguous and which is not,
//! and that nothing is ever asked twice.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use counterfoil::config::Settings;
use counterfoil::digest::Message;
use counterfoil::identity::ReceiptKey;
use counterfoil::ledger::Lease;
use counterfoil::provider::{Build, Outgoing, Provider, kind};
use counterfoil::receipt::{Lookup, Outcome, Replay, RetryAfter, Sighting};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

mod second_protocol;
pub(crate) mod server;

use server::{Act, Memory, Plan, Request, Server};

use crate::smtp::server::self_signed;

/// The time limit where an answer comes.
const PATIENT: Duration = Duration::from_secs(60);

/// The time limit where none comes.
const IMPATIENT: Duration = Duration::from_millis(500);

fn message(number: u32) -> Message {
    let mut key = [0x5a; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    Message {
        key: ReceiptKey::from_bytes(key),
        message_id: format!("<{number}@example.test>"),
        date: Timestamp::from_second(1_786_000_000).unwrap(),
        from: "Example Bank <digest@bank.test>".parse().unwrap(),
        to: "Zoe <zoe@customer.test>".parse().unwrap(),
        subject: "Your week".to_owned(),
        text: format!("Hello {number}"),
        html: "<p>Hello</p>".to_owned(),
        unsubscribe_url: "https://bank.test/u/1".to_owned(),
        images: [].into(),
    }
}

fn build_in(settings: &str, send_timeout: Duration, directory: &Path) -> Box<dyn Provider> {
    let settings = Settings { section: "destination.retail".to_owned(), table: settings.parse().unwrap() };
    let build = Build {
        destination: "retail",
        settings,
        send_timeout: Some(send_timeout),
        directory,
        environment: "production",
    };
    (kind("http").unwrap().build)(build).unwrap()
}

/// In the clear, which is allowed on loopback; with a lookup.
fn clear(port: u16) -> Box<dyn Provider> {
    clear_within(PATIENT, port)
}

fn clear_within(limit: Duration, port: u16) -> Box<dyn Provider> {
    let settings = format!("url = 'http://127.0.0.1:{port}/send'\nlookup_url = 'http://127.0.0.1:{port}/sent/{{key}}'");
    build_in(&settings, limit, Path::new("."))
}

async fn send(provider: &dyn Provider, message: &Message) -> Outcome {
    send_under(provider, message, Duration::from_secs(3_600)).await
}

async fn send_under(provider: &dyn Provider, message: &Message, lease: Duration) -> Outcome {
    let lease = Lease::counted_from(Instant::now(), SignedDuration::try_from(lease).unwrap());
    provider.send(Outgoing { key: &message.key, message, lease: &lease }).await
}

/// The outcome where the server does this.
async fn outcome_of(act: Act) -> Outcome {
    let limit = if matches!(act, Act::Silence | Act::RawAndSilence(_)) { IMPATIENT } else { PATIENT };
    let server = Server::start(move |_| act.clone()).await;
    let outcome = send(&*clear_within(limit, server.port), &message(1)).await;
    assert_eq!(server.requests().len(), 1, "{outcome:?}");
    outcome
}

fn good(_: &Request) -> Act {
    Act::answer(202, r#"{"id":"m-1"}"#)
}

fn accepted(reference: &str) -> Outcome {
    Outcome::Accepted { reference: reference.to_owned() }
}

fn unavailable(code: &str) -> Outcome {
    Outcome::Unavailable { code: code.to_owned() }
}

fn ambiguous(code: &str) -> Outcome {
    Outcome::Ambiguous { code: code.to_owned() }
}

fn throttled(code: &str, until: RetryAfter) -> Outcome {
    Outcome::Throttled { until, code: code.to_owned() }
}

fn rejected(code: &str) -> Outcome {
    Outcome::Rejected { code: code.to_owned(), text: None }
}

fn within(seconds: i64) -> RetryAfter {
    RetryAfter::In(SignedDuration::from_secs(seconds))
}

fn raw(text: &str) -> Act {
    Act::Raw(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_message_is_posted_with_its_key_and_headers() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("token"), "canary-token\n").unwrap();
    fs::set_permissions(home.path().join("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(good).await;
    let settings = format!(
        "url = 'http://127.0.0.1:{}/v1/send?tenant=a'\ntoken_file = 'token'\nheaders = {{ X-Team = 'digest' }}",
        server.port
    );
    let message = message(1);
    let outcome = send(&*build_in(&settings, PATIENT, home.path()), &message).await;
    assert_eq!(outcome, accepted("m-1"));
    let requests = server.requests();
    let request = &requests[0];
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/send?tenant=a"));
    let key = message.key.to_string();
    for (name, value) in [
        ("idempotency-key", key.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("authorization", "Bearer canary-token"),
        ("x-team", "digest"),
        ("content-length", &request.body.len().to_string()),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let letter = request.json();
    assert_eq!(letter["key"], key);
    assert_eq!(letter["to"], "Zoe <zoe@customer.test>");
    assert_eq!(letter["headers"]["Message-ID"], "<1@example.test>");
}

#[tokio::test]
async fn each_answer_has_its_outcome() {
    let table = [
        (Act::answer(200, r#"{"id":"m-1"}"#), accepted("m-1")),
        (Act::answer(201, r#"{"id":"zoe@customer.test"}"#), accepted("(removed)")),
        (Act::answer(202, "queued"), ambiguous("202_without_id")),
        (Act::answer(204, ""), ambiguous("204_without_id")),
        (Act::answer(200, "x".repeat(70_000)), ambiguous("200_unreadable")),
        (Act::with_headers(302, &[("location", "/elsewhere")]), ambiguous("302")),
        (Act::answer(400, r#"{"error":"invalid_address"}"#), rejected("400 invalid_address")),
        (Act::answer(400, "zoe@customer.test is wrong"), rejected("400")),
        (Act::answer(410, ""), rejected("410")),
        (Act::answer(413, "x".repeat(70_000)), rejected("413")),
        (Act::answer(415, ""), rejected("415")),
        (Act::answer(408, ""), ambiguous("408")),
        (Act::answer(409, r#"{"error":"in_progress"}"#), Outcome::KeyInUse { code: "409 in_progress".to_owned() }),
        (Act::answer(409, "{}"), Outcome::OtherPayload { code: "409".to_owned() }),
        (Act::answer(422, "{}"), Outcome::OtherPayload { code: "422".to_owned() }),
        (Act::answer(425, ""), unavailable("425")),
        (Act::answer(500, ""), ambiguous("500")),
        (Act::answer(502, "<html>"), ambiguous("502")),
        (Act::answer(503, ""), unavailable("503")),
        (Act::answer(504, ""), ambiguous("504")),
    ];
    for (act, expected) in table {
        assert_eq!(outcome_of(act.clone()).await, expected, "{act:?}");
    }
    for status in [401, 403, 404, 405, 307, 308] {
        let outcome = outcome_of(Act::with_headers(status, &[("location", "/elsewhere")])).await;
        assert!(matches!(outcome, Outcome::Misconfigured { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn retry_after_is_read_in_every_form() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let past = RetryAfter::At(Timestamp::from_second(784_111_777).unwrap());
    let table: [(&[&str], RetryAfter); 9] = [
        (&["3"], within(3)),
        (&["0"], within(0)),
        (&["86400000"], within(86_400_000)),
        (&["999999999999999999999999"], within(i64::MAX)),
        (&["soon"], RetryAfter::Unspecified),
        (&["-1"], RetryAfter::Unspecified),
        (&[date], past),
        (&["3", "120"], within(120)),
        (&["1", date], within(1)),
    ];
    for (values, expected) in table {
        let headers: Vec<(&'static str, &str)> = values.iter().map(|value| ("retry-after", *value)).collect();
        for status in [429, 503] {
            let outcome = outcome_of(Act::with_headers(status, &headers)).await;
            assert_eq!(outcome, throttled(&status.to_string(), expected), "{values:?}");
        }
    }
    assert_eq!(outcome_of(Act::answer(429, "")).await, throttled("429", RetryAfter::Unspecified));
    let other = outcome_of(Act::with_headers(429, &[("ratelimit-reset", "60")])).await;
    assert_eq!(other, throttled("429", RetryAfter::Unspecified));
}

#[tokio::test]
async fn no_answer_to_a_whole_request_is_ambiguous() {
    let lost = "no_answer_after_request";
    let table = [
        (Act::Drop, ambiguous(lost)),
        (Act::Silence, ambiguous("timeout_after_request")),
        (raw("what?\r\n\r\n"), ambiguous(lost)),
        (raw("HTTP/1.1 2"), ambiguous(lost)),
        (raw("HTTP/1.1 200 OK\r\ncontent-length: 40\r\n"), ambiguous(lost)),
        (raw("HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"id\":\"m-1\"}"), ambiguous("200_unreadable")),
        (raw("HTTP/1.1 409 No\r\ncontent-length: 40\r\n\r\n{\"error\":"), ambiguous("409_unreadable")),
        (
            Act::RawAndSilence(b"HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"id\":".to_vec()),
            ambiguous("200_unreadable"),
        ),
        (Act::RawAndSilence(b"HTTP/1.1 200 OK\r\n".to_vec()), ambiguous("timeout_after_request")),
    ];
    for (act, expected) in table {
        assert_eq!(outcome_of(act.clone()).await, expected, "{act:?}");
    }
}

#[tokio::test]
async fn an_answer_may_take_its_time_inside_the_limit() {
    let late = Act::Late(Duration::from_millis(300), Box::new(Act::answer(200, r#"{"id":"m-1"}"#)));
    assert_eq!(outcome_of(late).await, accepted("m-1"));
}

#[tokio::test]
async fn what_fails_before_the_request_is_certainly_not_accepted() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    assert_eq!(send(&*clear(closed), &message(1)).await, unavailable("connect"));
    let nowhere = build_in("url = 'https://nowhere.invalid/send'", PATIENT, Path::new("."));
    assert_eq!(send(&*nowhere, &message(1)).await, unavailable("dns"));
}

#[tokio::test]
async fn a_server_that_never_finishes_the_handshake_is_unavailable() {
    // A listener whose connections nobody accepts: TCP is there, TLS never comes.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("url = 'https://127.0.0.1:{}/send'", listener.local_addr().unwrap().port());
    let outcome = send(&*build_in(&url, IMPATIENT, Path::new(".")), &message(1)).await;
    let expected = [unavailable("connect_timeout"), unavailable("timeout_before_request")];
    assert!(expected.contains(&outcome), "{outcome:?}");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_no_request() {
    let (acceptor, _) = self_signed();
    let server = Server::planned(Plan::new(good).tls(acceptor)).await;
    let (_, stranger) = self_signed();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("ca.pem"), stranger).unwrap();
    let settings = format!("url = 'https://127.0.0.1:{}/send'\nca_file = 'ca.pem'", server.port);
    let outcome = send(&*build_in(&settings, PATIENT, home.path()), &message(1)).await;
    assert_eq!(outcome, unavailable("tls_certificate"));
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_unavailable() {
    let server = Server::start(good).await;
    let settings = format!("url = 'https://127.0.0.1:{}/send'", server.port);
    let outcome = send(&*build_in(&settings, IMPATIENT, Path::new(".")), &message(1)).await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "{outcome:?}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let memory = Memory::default();
    let script = memory.clone();
    let server = Server::start(move |request| script.answer(request)).await;
    let provider = clear(server.port);
    for number in 0..20 {
        assert_eq!(send(&*provider, &message(number)).await, accepted(&format!("m-{number}")));
    }
    assert!(server.requests().iter().all(|request| request.connection == 0));
    assert_eq!((server.connections(), memory.keys().len()), (1, 20));
}

#[tokio::test]
async fn concurrent_requests_have_connections_of_their_own_and_one_answer_each() {
    let memory = Memory::default();
    let script = memory.clone();
    let server = Server::start(move |request| script.answer(request)).await;
    let provider = clear(server.port);
    let messages: Vec<Message> = (0..100).map(message).collect();
    let outcomes = join_all(messages.iter().map(|message| send(&*provider, message))).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Accepted { .. })), "{outcomes:?}");
    assert_eq!((memory.keys().len(), server.requests().len()), (100, 100));
    assert!(server.connections() <= 100);
}

#[tokio::test]
async fn the_same_message_is_the_same_bytes_on_every_attempt() {
    let memory = Memory::default();
    let script = memory.clone();
    let server = Server::start(move |request| script.answer(request)).await;
    let provider = clear(server.port);
    for _ in 0..3 {
        assert_eq!(send(&*provider, &message(7)).await, accepted("m-0"));
    }
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.body == requests[0].body));
}

/// A connection that the server has closed since is replaced where nothing had gone out on it. Where the request and
/// the goodbye cross, nobody knows, and then the request is not repeated: whatever happens, the server sees no
/// message twice.
#[tokio::test]
async fn a_connection_that_the_server_closed_between_requests_costs_no_second_request() {
    let server = Server::start(|_| Act::AnswerAndClose(202, r#"{"id":"m-1"}"#)).await;
    let provider = clear(server.port);
    for number in 0..200 {
        let outcome = send(&*provider, &message(number)).await;
        let fine = [accepted("m-1"), ambiguous("no_answer_after_request"), unavailable("lost_before_request")];
        assert!(fine.contains(&outcome), "{outcome:?}");
    }
    let mut keys: Vec<String> =
        server.requests().iter().map(|request| request.header("idempotency-key").unwrap().to_owned()).collect();
    let seen = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), seen, "a request came twice");
    assert!(seen > 100, "{seen}");
}

/// The server takes the request on a connection that was used before, and hangs up: a client that repeats what failed
/// on a reused connection would send it again here.
#[tokio::test]
async fn a_request_that_was_lost_on_a_reused_connection_is_not_repeated() {
    let server = Server::start(|request| if request.number == 0 { good(request) } else { Act::Drop }).await;
    let provider = clear(server.port);
    assert_eq!(send(&*provider, &message(1)).await, accepted("m-1"));
    assert_eq!(send(&*provider, &message(2)).await, ambiguous("no_answer_after_request"));
    assert_eq!((server.requests().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let server = Server::start(|_| Act::with_headers(303, &[("location", "/elsewhere")])).await;
    assert_eq!(send(&*clear(server.port), &message(1)).await, ambiguous("303"));
    assert_eq!(server.requests().len(), 1);
}

/// More than the buffers between two processes hold.
fn big() -> Message {
    Message { text: "x".repeat(24 << 20), ..message(1) }
}

/// A server that stops reading leaves the last byte with us, so that nothing can have been accepted.
#[tokio::test]
async fn a_request_that_never_became_whole_is_certainly_not_accepted() {
    for (act, expected) in [
        (Act::Drop, unavailable("lost_before_request")),
        (Act::RawAndDeaf(Vec::new()), unavailable("timeout_before_request")),
    ] {
        let is_lost = matches!(act, Act::Drop);
        let server = Server::planned(Plan::new(good).early(move |_| Some(act.clone()))).await;
        let limit = if is_lost { PATIENT } else { Duration::from_secs(5) };
        assert_eq!(send(&*clear_within(limit, server.port), &big()).await, expected);
        assert!(server.requests().is_empty());
        assert!(server.broken().iter().all(|broken| !broken.ends_with(b"}")));
    }
}

#[tokio::test]
async fn an_answer_before_the_whole_request_proves_that_nothing_was_accepted() {
    for (status, expected) in [(413, rejected("413")), (500, unavailable("500")), (202, unavailable("202_without_id"))]
    {
        let head = format!("HTTP/1.1 {status} Early\r\ncontent-length: 0\r\n\r\n");
        let early = move |_: &Request| Some(Act::RawAndDeaf(head.clone().into_bytes()));
        let server = Server::planned(Plan::new(good).early(early)).await;
        assert_eq!(send(&*clear(server.port), &big()).await, expected);
    }
}

#[tokio::test]
async fn nothing_is_sent_on_a_lease_that_the_answer_could_outlive() {
    let server = Server::start(good).await;
    let outcome = send_under(&*clear(server.port), &message(1), PATIENT).await;
    assert_eq!(outcome, Outcome::NotStarted);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_lookup_tells_found_absent_and_unknown_apart() {
    let memory = Memory::default();
    let script = memory.clone();
    let server = Server::start(move |request| script.answer(request)).await;
    let provider = clear(server.port);
    let lookup = Lookup { settle: SignedDuration::from_mins(2), misses: 2, retention: None };
    assert_eq!((provider.capabilities().lookup, provider.capabilities().replay), (Some(lookup), Replay::Never));
    let (sent, other) = (message(1), message(2));
    assert_eq!(send(&*provider, &sent).await, accepted("m-0"));
    assert_eq!(provider.look_up(&sent.key).await, Sighting::Found { reference: "m-0".to_owned() });
    assert_eq!(provider.look_up(&other.key).await, Sighting::Absent);
    assert_eq!(server.requests()[1].target, format!("/sent/{}", sent.key));
}

#[tokio::test]
async fn a_lookup_that_fails_says_nothing() {
    let unknown = |code: &str| Sighting::Unknown { code: code.to_owned() };
    for (act, code) in [
        (Act::answer(500, ""), "500"),
        (Act::with_headers(302, &[("location", "/login")]), "302"),
        (Act::answer(404, "<html>not found</html>"), "404_not_the_gateways"),
        (Act::answer(200, "{}"), "200_not_accepted"),
        (Act::answer(200, "x".repeat(70_000)), "200_unreadable"),
        (Act::Drop, "no_answer"),
        (Act::Silence, "timeout"),
        (raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"status\":\"accepted\""), "200_unreadable"),
        (raw("HTTP/1.1 404 No\r\ncontent-length: 9\r\n\r\n"), "404_not_the_gateways"),
    ] {
        let limit = if matches!(act, Act::Silence) { IMPATIENT } else { PATIENT };
        let shown = format!("{act:?}");
        let server = Server::start(move |_| act.clone()).await;
        let sighting = clear_within(limit, server.port).look_up(&message(1).key).await;
        assert_eq!(sighting, unknown(code), "{shown}");
        assert_eq!(server.requests().len(), 1, "{shown}");
    }
    assert_eq!(clear(1).look_up(&message(1).key).await, unknown("connect"));
    let without = build_in("url = 'http://127.0.0.1:1/send'", PATIENT, Path::new("."));
    assert_eq!(without.capabilities().lookup, None);
    assert_eq!(without.look_up(&message(1).key).await, unknown("no_lookup"));
}

#[tokio::test]
async fn a_check_says_what_it_found_and_sends_nothing() {
    let memory = Memory::default();
    let server = Server::start(move |request| memory.answer(request)).await;
    let found = clear(server.port).check().await.unwrap();
    assert_eq!(found, format!("127.0.0.1:{} answers and looks up by key", server.port));
    assert_eq!(server.requests()[0].method, "GET");

    for (status, words) in [(401, "token_file"), (404, "no absence will be believed"), (500, "answers 500 to a look")] {
        let server = Server::start(move |_| Act::answer(status, "<html>")).await;
        let problem = clear(server.port).check().await.unwrap_err();
        assert!(problem.contains(words) && problem.contains("destination.retail."), "{problem}");
    }

    let server = Server::start(|_| Act::answer(405, "")).await;
    let provider = build_in(&format!("url = 'http://127.0.0.1:{}/send'", server.port), PATIENT, Path::new("."));
    let found = provider.check().await.unwrap();
    assert!(found.contains("answers (405 to a HEAD, which sends nothing)"), "{found}");
    assert_eq!((server.requests()[0].method.as_str(), server.requests()[0].body.len()), ("HEAD", 0));

    let gone = clear(1).check().await.unwrap_err();
    assert!(gone.contains("cannot be reached (connect)"), "{gone}");
}

#[tokio::test]
async fn no_outcome_holds_a_secret_or_an_address() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("token"), "canary-token").unwrap();
    fs::set_permissions(home.path().join("token"), fs::Permissions::from_mode(0o600)).unwrap();
    let echo = |request: &Request| {
        let status = request.json()["text"].as_str().unwrap().trim_start_matches("Hello ").parse().unwrap();
        let words = format!("{request:?} zoe@customer.test canary-token").replace(['"', '\\'], "'");
        Act::answer(status, format!(r#"{{"id":"{words}","error":"{words}"}}"#))
    };
    let server = Server::start(echo).await;
    let settings = format!("url = 'http://127.0.0.1:{}/send'\ntoken_file = 'token'", server.port);
    let provider = build_in(&settings, PATIENT, home.path());
    for status in [200, 202, 301, 307, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 425, 429, 500, 502, 503] {
        let outcome = format!("{:?}", send(&*provider, &message(status)).await);
        for private in ["zoe", "Zoe", "customer.test", "canary", "Your week"] {
            assert!(!outcome.contains(private), "{status}: {outcome}");
        }
    }
    assert!(!provider.account().contains("canary"));
}
