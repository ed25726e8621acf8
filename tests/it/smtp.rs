//! The SMTP provider against a scripted server: which failure is ambiguous and which is not.

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
use counterfoil::receipt::{Outcome, Replay, RetryAfter};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};

pub(crate) mod server;

use server::{Act, Moment, Point, Protection, Seen, Server, self_signed};

/// The time limit where an answer comes.
const PATIENT: Duration = Duration::from_secs(60);

/// The time limit where none comes.
const IMPATIENT: Duration = Duration::from_secs(1);

const PLAIN: &[&str] = &["SIZE 100000000", "8BITMIME"];
const PIPELINED: &[&str] = &["PIPELINING", "SIZE 100000000", "8BITMIME", "DSN"];

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
        text: format!("Hello {number}\n.\n..two dots\n.hidden\nbye"),
        html: "<p>Hello</p>\n.\n".to_owned(),
        unsubscribe_url: "https://bank.test/u/1".to_owned(),
        images: [].into(),
    }
}

fn build(settings: &str, send_timeout: Duration, directory: &Path) -> Box<dyn Provider> {
    let settings = Settings { section: "destination.retail".to_owned(), table: settings.parse().unwrap() };
    let build = Build {
        destination: "retail",
        settings,
        send_timeout: Some(send_timeout),
        directory,
        environment: "production",
    };
    (kind("smtp").unwrap().build)(build).unwrap()
}

/// In the clear, which is allowed on loopback.
fn clear(port: u16) -> Box<dyn Provider> {
    clear_within(PATIENT, port)
}

fn clear_within(limit: Duration, port: u16) -> Box<dyn Provider> {
    let limit_seconds = limit.as_secs();
    let settings = format!("host = '127.0.0.1'\nport = {port}\ntls = 'none'\ncommand_timeout = '{limit_seconds}s'");
    build(&settings, limit, Path::new("."))
}

async fn send(provider: &dyn Provider, message: &Message) -> Outcome {
    send_under(provider, message, Duration::from_secs(3_600)).await
}

async fn send_under(provider: &dyn Provider, message: &Message, lease: Duration) -> Outcome {
    let lease = Lease::counted_from(Instant::now(), SignedDuration::try_from(lease).unwrap());
    provider.send(Outgoing { key: &message.key, message, lease: &lease }).await
}

/// The outcome where the server does `act` at `point` and is good otherwise.
async fn outcome_of(offers: &'static [&'static str], point: Point, act: Act) -> Outcome {
    let limit = if act.leaves_waiting() { IMPATIENT } else { PATIENT };
    let server = Server::start(offers, move |moment| if moment.point == point { act.clone() } else { Act::Go }).await;
    send(&*clear_within(limit, server.port), &message(1)).await
}

fn good(_: Moment) -> Act {
    Act::Go
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

fn throttled(code: &str) -> Outcome {
    Outcome::Throttled { until: RetryAfter::Unspecified, code: code.to_owned() }
}

fn deferred(code: &str) -> Outcome {
    Outcome::Deferred { code: code.to_owned() }
}

fn rejected(code: &str, text: &str) -> Outcome {
    Outcome::Rejected { code: code.to_owned(), text: Some(text.to_owned()) }
}

fn messages(seen: Vec<Seen>) -> Vec<Vec<u8>> {
    let message = |seen| match seen {
        Seen::Message(bytes) => Some(bytes),
        _ => None,
    };
    seen.into_iter().filter_map(message).collect()
}

#[tokio::test]
async fn each_point_of_failure_has_its_outcome() {
    let table = [
        (Point::Greeting, Act::SayAndClose(""), unavailable("lost_at_greeting")),
        (Point::Greeting, Act::Silence, unavailable("timeout_at_greeting")),
        (Point::Greeting, Act::Say("HTTP/1.1 400 Bad Request\r\n"), unavailable("unreadable_at_greeting")),
        (Point::Greeting, Act::Say("421 4.3.2 busy\r\n"), throttled("421 4.3.2")),
        (Point::Ehlo, Act::SayAndClose(""), unavailable("lost_at_ehlo")),
        (Point::Ehlo, Act::Say("451 4.3.0 later\r\n"), throttled("451 4.3.0")),
        (Point::Mail, Act::SayAndClose(""), unavailable("lost_at_mail")),
        (Point::Mail, Act::Silence, unavailable("timeout_at_mail")),
        (Point::Mail, Act::Say("what?\r\n"), unavailable("unreadable_at_mail")),
        (Point::Mail, Act::Say("421 4.7.0 too fast\r\n"), throttled("421 4.7.0")),
        (Point::Mail, Act::Say("452 4.3.1 full\r\n"), throttled("452 4.3.1")),
        (Point::Mail, Act::Say("552 5.3.4 too big\r\n"), rejected("552 5.3.4", "too big")),
        (Point::Rcpt, Act::SayAndClose(""), unavailable("lost_at_rcpt")),
        (Point::Rcpt, Act::Silence, unavailable("timeout_at_rcpt")),
        (Point::Rcpt, Act::Say("421 4.7.0 too many\r\n"), throttled("421 4.7.0")),
        (Point::Rcpt, Act::Say("450 4.2.1 greylisted\r\n"), deferred("450 4.2.1")),
        (
            Point::Rcpt,
            Act::Say("550-5.1.1 <Zoe@Customer.test>: no such user\r\n550 5.1.1 at customer.test\r\n"),
            rejected("550 5.1.1", "(removed) no such user at (removed)"),
        ),
        (Point::Data, Act::SayAndClose(""), unavailable("lost_at_data")),
        (Point::Data, Act::Silence, unavailable("timeout_at_data")),
        (Point::Data, Act::Say("421 4.3.2 closing\r\n"), throttled("421 4.3.2")),
        (Point::Data, Act::Say("451 4.3.0 later\r\n"), deferred("451 4.3.0")),
        (Point::Data, Act::Say("554 5.7.1 no\r\n"), rejected("554 5.7.1", "no")),
        (Point::Data, Act::Say("250 2.0.0 ok\r\n"), unavailable("unexpected_reply_at_data")),
        (Point::Dot, Act::SayAndClose(""), ambiguous("lost_after_final_dot")),
        (Point::Dot, Act::SayAndClose("250 2.0.0 Ok: que"), ambiguous("lost_after_final_dot")),
        (Point::Dot, Act::SayAndClose("250-2.0.0 Ok\r\n"), ambiguous("lost_after_final_dot")),
        (Point::Dot, Act::Silence, ambiguous("timeout_after_final_dot")),
        (Point::Dot, Act::Say("250-2.0.0 Ok\r\n"), ambiguous("timeout_after_final_dot")),
        (Point::Dot, Act::Say("OK, thanks\r\n"), ambiguous("unreadable_after_final_dot")),
        (Point::Dot, Act::Say("250-yes\r\n550 no\r\n"), ambiguous("unreadable_after_final_dot")),
        (Point::Dot, Act::Say("354 go on\r\n"), ambiguous("unexpected_reply_after_final_dot")),
        (Point::Dot, Act::Say("421 4.3.2 closing\r\n"), throttled("421 4.3.2")),
        (Point::Dot, Act::Say("451 4.3.0 later\r\n"), deferred("451 4.3.0")),
        (Point::Dot, Act::Say("550 5.7.1 spam from bank.test\r\n"), rejected("550 5.7.1", "spam from (removed)")),
        (Point::Dot, Act::Say("250-2.0.0 thanks\r\n250 2.0.0 Ok: queued as ABC\r\n"), accepted("ABC")),
        (Point::Dot, Act::Pieces(&["2", "50 2.0.", "0 Ok: queued", " as ABC\r", "\n"]), accepted("ABC")),
        (Point::Dot, Act::Go, accepted("Q0-0")),
    ];
    for offers in [PLAIN, PIPELINED] {
        let outcomes = table.iter().map(|(point, act, _)| outcome_of(offers, *point, act.clone()));
        for (outcome, (point, act, expected)) in join_all(outcomes).await.iter().zip(&table) {
            assert_eq!(outcome, expected, "{point:?} {act:?} with {offers:?}");
        }
    }
}

#[tokio::test]
async fn what_concerns_every_message_alike_stops_the_run() {
    for (point, reply, look_at) in [
        (Point::Greeting, "554 5.7.1 not from there\r\n", "whether this machine may use the server"),
        (Point::Ehlo, "502 5.5.1 what\r\n", "`host`, `port`"),
        (Point::Mail, "550 5.7.1 you may not send as digest@bank.test\r\n", "the digest's `from`"),
        (Point::Mail, "530 5.7.0 authenticate first\r\n", "`username`, `password_file`"),
        (Point::Rcpt, "530 5.7.0 authenticate first\r\n", "`username`, `password_file`"),
    ] {
        let outcome = outcome_of(PIPELINED, point, Act::Say(reply)).await;
        let Outcome::Misconfigured { problem } = outcome else { panic!("{reply}: {outcome:?}") };
        assert!(problem.contains(look_at), "{problem}");
        assert!(!problem.contains('@'), "{problem}");
    }
}

#[tokio::test]
async fn no_connection_is_certainly_not_accepted() {
    // Bound, so that nobody else takes the port, but not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let provider = clear(port);
    assert_eq!(send(&*provider, &message(1)).await, unavailable("connect"));
    assert!(provider.check().await.unwrap_err().starts_with("connect: "));
}

#[tokio::test]
async fn an_endless_reply_is_cut_off() {
    static ENDLESS: [&str; 3_000] = ["250-and so on and so on and so on\r\n"; 3_000];
    static LONG: [&str; 3_000] = ["250 and so on and so on and so on"; 3_000];
    for pieces in [&ENDLESS, &LONG] {
        let outcome = outcome_of(PLAIN, Point::Dot, Act::Pieces(pieces)).await;
        assert_eq!(outcome, ambiguous("unreadable_after_final_dot"));
    }
}

/// Larger than what the sockets' buffers take, so that the client is still writing when the server acts.
fn large_message() -> Message {
    let mut large = message(1);
    large.text = String::with_capacity(9_000_000);
    while large.text.len() < 8_000_000 {
        large.text.push_str("a line of a very long message\r\n");
    }
    large
}

#[tokio::test]
async fn a_connection_lost_inside_the_message_is_certainly_not_accepted() {
    for offers in [PLAIN, PIPELINED] {
        let close = |moment: Moment| if moment.point == Point::Body { Act::SayAndClose("") } else { Act::Go };
        let server = Server::start(offers, close).await;
        assert_eq!(send(&*clear(server.port), &large_message()).await, unavailable("lost_at_body"));
    }
}

#[tokio::test]
async fn a_server_that_stops_reading_is_certainly_not_accepted() {
    let hang = |moment: Moment| match moment.point {
        Point::Body => Act::Late(Duration::from_secs(3_600)),
        _ => Act::Go,
    };
    let server = Server::start(PLAIN, hang).await;
    let provider = clear_within(IMPATIENT, server.port);
    assert_eq!(send(&*provider, &large_message()).await, unavailable("timeout_at_body"));
}

#[tokio::test]
async fn a_refusal_inside_the_message_is_believed_and_no_final_dot_follows() {
    let refuse = |moment: Moment| match moment.point {
        Point::Body => Act::Say("552 5.3.4 enough\r\n"),
        _ => Act::Go,
    };
    let mut server = Server::start(PLAIN, refuse).await;
    assert_eq!(send(&*clear(server.port), &large_message()).await, rejected("552 5.3.4", "enough"));
    assert!(messages(server.until_closed().await).is_empty());
}

#[tokio::test]
async fn the_server_gets_the_bytes_of_the_message() {
    for offers in [PLAIN, PIPELINED] {
        let mut server = Server::start(offers, good).await;
        let message = message(7);
        assert_eq!(send(&*clear(server.port), &message).await, accepted("Q0-0"));
        let seen = server.so_far();
        let mail = format!("MAIL FROM:<digest@bank.test> SIZE={}", message.to_mime().len());
        let envelope_id = if offers == PIPELINED { format!(" ENVID={}", message.key) } else { String::new() };
        assert!(seen.contains(&Seen::Command(format!("{mail}{envelope_id}"))), "{seen:?}");
        assert!(seen.contains(&Seen::Command("RCPT TO:<zoe@customer.test>".to_owned())));
        let delivered = messages(seen);
        assert!(delivered[0].windows(5).any(|five| five == b"\r\n.\r\n"), "the message has a lone dot in it");
        assert_eq!(String::from_utf8_lossy(&delivered[0]), String::from_utf8_lossy(&message.to_mime()));
        assert_eq!(delivered.len(), 1);
    }
}

#[tokio::test]
async fn a_hundred_messages_go_over_one_connection() {
    for offers in [PLAIN, PIPELINED] {
        let mut server = Server::start(offers, good).await;
        let provider = clear(server.port);
        for number in 0..100 {
            assert_eq!(send(&*provider, &message(number)).await, accepted(&format!("Q0-{number}")));
        }
        assert_eq!(server.connections(), 1);
        assert_eq!(messages(server.so_far()).len(), 100);
    }
}

#[tokio::test]
async fn a_refused_recipient_costs_a_reset_and_no_connection() {
    for (point, reply) in [
        (Point::Rcpt, "550 5.1.1 no such user\r\n"),
        (Point::Data, "451 4.3.0 later\r\n"),
        (Point::Dot, "554 5.7.1 spam\r\n"),
    ] {
        for offers in [PLAIN, PIPELINED] {
            let refuse = move |moment: Moment| match (moment.point == point, moment.message) {
                (true, 0) => Act::Say(reply),
                _ => Act::Go,
            };
            // The count of messages rises with the dot: only before it the refusal repeats.
            let repeats = point != Point::Dot;
            let mut server = Server::start(offers, refuse).await;
            let provider = clear(server.port);
            let first = send(&*provider, &message(1)).await;
            let second = send(&*provider, &message(2)).await;
            assert!(matches!(first, Outcome::Rejected { .. } | Outcome::Deferred { .. }), "{first:?}");
            if repeats {
                assert_eq!(first, second);
            } else {
                assert_eq!(second, accepted("Q0-1"));
            }
            assert_eq!(server.connections(), 1);
            assert!(server.so_far().contains(&Seen::Command("RSET".to_owned())));
        }
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_reset_is_replaced() {
    for act in [Act::Say("500 5.5.2 what\r\n"), Act::SayAndClose("")] {
        let server = Server::start(PIPELINED, move |moment| match (moment.connection, moment.point) {
            (0, Point::Rcpt) => Act::Say("550 5.1.1 no such user\r\n"),
            (0, Point::Rset) => act.clone(),
            _ => Act::Go,
        })
        .await;
        let provider = clear(server.port);
        assert_eq!(send(&*provider, &message(1)).await, rejected("550 5.1.1", "no such user"));
        assert_eq!(send(&*provider, &message(2)).await, accepted("Q1-0"));
        assert_eq!(send(&*provider, &message(3)).await, accepted("Q1-1"));
    }
}

#[tokio::test]
async fn an_idle_connection_that_died_is_replaced_without_doubt() {
    type Dying = fn(Moment) -> Act;
    let hung_up: Dying = |moment| match (moment.connection, moment.point) {
        (0, Point::Dot) => Act::GoAndClose,
        _ => Act::Go,
    };
    let said_goodbye: Dying = |moment| match (moment.connection, moment.message, moment.point) {
        (0, 1, Point::Mail) => Act::SayAndClose("421 4.4.2 idle for too long\r\n"),
        _ => Act::Go,
    };
    let fell_silent: Dying = |moment| match (moment.connection, moment.message, moment.point) {
        (0, 1, Point::Mail) => Act::Silence,
        _ => Act::Go,
    };
    for offers in [PLAIN, PIPELINED] {
        for dying in [hung_up, said_goodbye, fell_silent] {
            let mut server = Server::start(offers, dying).await;
            let is_silent = std::ptr::fn_addr_eq(dying, fell_silent);
            let provider = clear_within(if is_silent { IMPATIENT } else { PATIENT }, server.port);
            assert_eq!(send(&*provider, &message(1)).await, accepted("Q0-0"));
            if std::ptr::fn_addr_eq(dying, hung_up) {
                server.until_closed().await;
            }
            assert_eq!(send(&*provider, &message(2)).await, accepted("Q1-0"));
            assert_eq!(send(&*provider, &message(3)).await, accepted("Q1-1"));
            assert_eq!(server.connections(), 2);
        }
    }
}

#[tokio::test]
async fn a_fresh_connection_that_fails_is_not_replaced() {
    let server = Server::start(PLAIN, |moment| match moment.point {
        Point::Mail => Act::SayAndClose(""),
        _ => Act::Go,
    })
    .await;
    assert_eq!(send(&*clear(server.port), &message(1)).await, unavailable("lost_at_mail"));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_lease_that_runs_out_on_the_way_stops_before_the_final_dot() {
    let slow = |moment: Moment| match moment.point {
        Point::Data => Act::Late(Duration::from_millis(1_200)),
        _ => Act::Go,
    };
    for offers in [PLAIN, PIPELINED] {
        let mut server = Server::start(offers, slow).await;
        let settings = format!("host = '127.0.0.1'\nport = {}\ntls = 'none'", server.port);
        let provider = build(&settings, Duration::from_secs(1), Path::new("."));
        let message = message(1);
        assert_eq!(send_under(&*provider, &message, Duration::from_secs(2)).await, Outcome::NotStarted);
        let seen = server.until_closed().await;
        assert_eq!(seen.last(), Some(&Seen::Closed(message.to_mime())), "all but the final dot came");
        assert!(messages(seen).is_empty());
    }
}

#[tokio::test]
async fn a_lease_that_is_too_short_from_the_beginning_connects_to_nothing() {
    let server = Server::start(PLAIN, good).await;
    let outcome = send_under(&*clear(server.port), &message(1), Duration::from_millis(100)).await;
    assert_eq!(outcome, Outcome::NotStarted);
    assert_eq!(server.connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_at_once_share_sixteen_connections() {
    let mut server = Server::start(PIPELINED, good).await;
    let provider = clear(server.port);
    let outcomes: Vec<_> = futures_util::stream::iter(0..480)
        .map(|number| {
            let provider = &provider;
            async move { send(&**provider, &message(number)).await }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Accepted { .. })));
    assert!(server.connections() <= 16, "{}", server.connections());
    let mut delivered = messages(server.so_far());
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), 480);
}

/// A directory with the server's certificate and a password, and a provider that uses them.
struct Protected {
    home: tempfile::TempDir,
    server: Server,
}

impl Protected {
    async fn start(
        implicit: bool,
        offers: &'static [&'static str],
        script: impl Fn(Moment) -> Act + Send + Sync + 'static,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (acceptor, pem) = self_signed();
        fs::write(home.path().join("ca.pem"), pem).unwrap();
        fs::write(home.path().join("password"), "open sesame\n").unwrap();
        fs::set_permissions(home.path().join("password"), fs::Permissions::from_mode(0o600)).unwrap();
        let protection = if implicit { Protection::Implicit(acceptor) } else { Protection::StartTls(acceptor) };
        Self { home, server: Server::protected(protection, offers, script).await }
    }

    fn provider(&self, settings: &str) -> Box<dyn Provider> {
        let settings = format!("host = 'localhost'\nport = {}\n{settings}", self.server.port);
        build(&settings, PATIENT, self.home.path())
    }
}

const ACCOUNT: &str = "ca_file = 'ca.pem'\nusername = 'bank'\npassword_file = 'password'\n";

#[tokio::test]
async fn starttls_comes_before_credentials_and_mail() {
    let mut there = Protected::start(false, &["STARTTLS", "AUTH PLAIN LOGIN"], good).await;
    let provider = there.provider(&format!("{ACCOUNT}hello_name = 'bank.test'"));
    assert_eq!(send(&*provider, &message(1)).await, accepted("Q0-0"));
    let commands: Vec<_> = there.server.so_far().into_iter().filter(|it| matches!(it, Seen::Command(_))).collect();
    let expected = [
        "EHLO bank.test",
        "STARTTLS",
        "EHLO bank.test",
        "AUTH PLAIN AGJhbmsAb3BlbiBzZXNhbWU=",
        "MAIL FROM:<digest@bank.test>",
        "RCPT TO:<zoe@customer.test>",
        "DATA",
    ];
    assert_eq!(commands, expected.map(|command| Seen::Command(command.to_owned())));
}

#[tokio::test]
async fn implicit_tls_and_auth_login_work_too() {
    let mut there = Protected::start(true, &["AUTH LOGIN"], good).await;
    let provider = there.provider(&format!("tls = 'implicit'\n{ACCOUNT}"));
    for number in 0..3 {
        assert_eq!(send(&*provider, &message(number)).await, accepted(&format!("Q0-{number}")));
    }
    let seen = there.server.so_far();
    assert!(seen.contains(&Seen::Command("b3BlbiBzZXNhbWU=".to_owned())));
    assert_eq!(messages(seen), [0, 1, 2].map(|number| message(number).to_mime()));
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_ends_the_connection() {
    for implicit in [false, true] {
        let mut there = Protected::start(implicit, &["STARTTLS"], good).await;
        let (_, another) = self_signed();
        fs::write(there.home.path().join("ca.pem"), another).unwrap();
        let tls = if implicit { "implicit" } else { "starttls" };
        let provider = there.provider(&format!("tls = '{tls}'\nca_file = 'ca.pem'"));
        assert_eq!(send(&*provider, &message(1)).await, unavailable("tls_certificate"));
        assert!(messages(there.server.until_closed().await).is_empty());
        let problem = provider.check().await.unwrap_err();
        assert!(problem.contains("look at `host` and `ca_file`"), "{problem}");
    }
}

#[tokio::test]
async fn a_server_without_starttls_gets_neither_credentials_nor_mail() {
    let mut there = Protected::start(false, &["AUTH PLAIN"], good).await;
    let outcome = send(&*there.provider(ACCOUNT), &message(1)).await;
    let Outcome::Misconfigured { problem } = outcome else { panic!("{outcome:?}") };
    assert!(problem.contains("does not offer STARTTLS"), "{problem}");
    let seen = there.server.until_closed().await;
    assert_eq!(seen, [Seen::Command("EHLO [127.0.0.1]".to_owned()), Seen::Closed(Vec::new())]);
}

#[tokio::test]
async fn words_slipped_in_before_the_encryption_are_not_believed() {
    let there = Protected::start(false, &["STARTTLS"], |moment| match moment.point {
        Point::StartTls => Act::Pieces(&["220 go\r\n250 injected\r\n"]),
        _ => Act::Go,
    })
    .await;
    let outcome = send(&*there.provider("ca_file = 'ca.pem'"), &message(1)).await;
    assert_eq!(outcome, unavailable("unreadable_at_starttls"));
}

#[tokio::test]
async fn trouble_on_the_way_to_encryption_and_credentials_has_its_outcome() {
    let table = [
        (Point::StartTls, Act::SayAndClose(""), Some(unavailable("lost_at_starttls"))),
        (Point::StartTls, Act::SayAndClose("220 go\r\n"), Some(unavailable("lost_at_starttls"))),
        (Point::StartTls, Act::Say("454 4.7.0 no TLS now\r\n"), Some(throttled("454 4.7.0"))),
        (Point::StartTls, Act::Say("220 go\r\nthis is no TLS"), Some(unavailable("unreadable_at_starttls"))),
        (Point::Auth, Act::SayAndClose(""), Some(unavailable("lost_at_auth"))),
        (Point::Auth, Act::Say("454 4.7.0 later\r\n"), Some(throttled("454 4.7.0"))),
        (Point::Auth, Act::Say("535 5.7.8 wrong\r\n"), None),
        (Point::Auth, Act::Say("504 5.5.4 unknown\r\n"), None),
    ];
    for (point, act, expected) in table {
        let there = Protected::start(false, &["STARTTLS", "AUTH PLAIN"], {
            let act = act.clone();
            move |moment| if moment.point == point { act.clone() } else { Act::Go }
        })
        .await;
        let outcome = send(&*there.provider(ACCOUNT), &message(1)).await;
        match expected {
            Some(expected) => assert_eq!(outcome, expected, "{point:?} {act:?}"),
            None => {
                let Outcome::Misconfigured { problem } = outcome else { panic!("{act:?}: {outcome:?}") };
                assert!(problem.contains("`username`") && !problem.contains("sesame"), "{problem}");
            }
        }
    }
}

#[tokio::test]
async fn an_account_at_a_server_that_knows_no_accounts_is_a_mistake() {
    let there = Protected::start(false, &["STARTTLS", "AUTH CRAM-MD5"], good).await;
    let outcome = send(&*there.provider(ACCOUNT), &message(1)).await;
    let Outcome::Misconfigured { problem } = outcome else { panic!("{outcome:?}") };
    assert!(problem.contains("neither AUTH PLAIN nor AUTH LOGIN"), "{problem}");
}

#[tokio::test]
async fn a_check_says_what_it_found_and_sends_nothing() {
    let mut there = Protected::start(false, &["STARTTLS", "AUTH PLAIN", "SIZE 1000"], good).await;
    let provider = there.provider(ACCOUNT);
    let port = there.server.port;
    assert_eq!(
        provider.check().await.unwrap(),
        format!("localhost:{port} answers; TLS 1.3; credentials accepted; offers AUTH PLAIN, SIZE")
    );
    let seen = there.server.until_closed().await;
    assert!(seen.contains(&Seen::Command("QUIT".to_owned())));
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Command(command) if command.starts_with("MAIL"))));
}

#[tokio::test]
async fn the_account_tells_destinations_apart_and_nothing_can_be_replayed() {
    let there = Protected::start(false, &[], good).await;
    let provider = there.provider(ACCOUNT);
    assert_eq!(provider.account(), format!("smtp localhost {} bank", there.server.port));
    assert_eq!(provider.capabilities().replay, Replay::Never);
}
