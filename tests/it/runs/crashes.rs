//! The crash matrix: at every boundary between two steps a real process dies, the next one takes over and dies at
//! another, until one is left alone. What the provider accepted is counted there, not in the ledger.
//!
//! `CRASH_ROUNDS` says how often the whole way is died along; one is enough to hold every boundary.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Arc, Mutex};

use counterfoil::rehearsal::Step;

use super::place::{Ended, MAILDIR, Place, ended, http, smtp};
use crate::databases::Backend;
use crate::http::server as gateway;
use crate::smtp::server::{Act, Seen, Server};

/// One batch holds few rows, so that the next process finds some that nobody has touched.
const SMALL_BATCHES: &str = "[run]\nmax_in_flight = 8\n";

/// Longer than every lease and settle time that these destinations have.
const PAST_EVERY_LEASE: i64 = 120;

/// Enough for three batches at each death.
const ROWS_PER_ROUND: u32 = 150;

/// Every boundary of the way of a row, those that end the work last.
const WITHOUT_LOOKUP: &[Step] = &[
    Step::BeforeClaim,
    Step::AfterClaim,
    Step::BeforeRender,
    Step::AfterRender,
    Step::BeforeSend,
    Step::Connected,
    Step::RequestWritten,
    Step::AnswerReceived,
    Step::BeforeSettle,
    Step::AfterSettle,
    Step::BeforePartEnd,
    Step::AfterPartEnd,
    Step::BeforeRunClose,
    Step::AfterRunClose,
];

/// The same where the provider can be asked: what the earlier deaths left in doubt is looked up on the way.
const WITH_LOOKUP: &[Step] = &[
    Step::BeforeClaim,
    Step::AfterClaim,
    Step::BeforeRender,
    Step::AfterRender,
    Step::BeforeSend,
    Step::Connected,
    Step::RequestWritten,
    Step::AnswerReceived,
    Step::BeforeLookup,
    Step::AfterLookup,
    Step::BeforeSettle,
    Step::AfterSettle,
    Step::BeforePartEnd,
    Step::AfterPartEnd,
    Step::BeforeRunClose,
    Step::AfterRunClose,
];

fn rounds() -> u32 {
    std::env::var("CRASH_ROUNDS").map_or(1, |rounds| rounds.parse().expect("CRASH_ROUNDS is a number"))
}

/// An installation on which one process after another dies.
struct Matrix {
    place: Place,
    /// How far the clocks of the next process are ahead.
    ahead: i64,
    crashes: u32,
}

impl Matrix {
    async fn new(backend: Backend, destination: &str) -> Self {
        let place = Place::new(backend, destination).await;
        place.configure(&format!("{destination}{SMALL_BATCHES}"), "");
        Self { place, ahead: 0, crashes: 0 }
    }

    /// Dies once at each step, again for each round with an export of its own.
    async fn die_along(&mut self, steps: &[Step], customers: std::ops::Range<u32>, visit: u32) -> Ended {
        let export = format!("customers_{}.jsonl", customers.start);
        self.place.export(&export, customers, |number| number);
        let arguments = ["--snapshot", &export, "--accept-row-count"];
        for step in steps {
            // The last ones come once a run.
            let visit = if *step < Step::BeforePartEnd { visit } else { 1 };
            let mut child = self.place.start_dying(self.ahead, *step, visit, &arguments);
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(6), "{step:?} was not reached: {status:?}");
            self.crashes += 1;
            self.ahead += PAST_EVERY_LEASE;
        }
        ended(self.place.start_at(self.ahead, &arguments)).await
    }

    /// No receipt waits, whoever died.
    async fn assert_settled(&self) {
        let waiting =
            self.place.ledger.value("SELECT count(*) FROM receipts WHERE state NOT IN ('sent', 'held')").await;
        assert_eq!(waiting, "0", "{:?}", self.place.receipts().await);
    }

    async fn count(&self, state: &str) -> u32 {
        self.place
            .ledger
            .value(&format!("SELECT count(*) FROM receipts WHERE state = '{state}'"))
            .await
            .parse()
            .unwrap()
    }
}

/// How often each recipient was accepted by the server.
fn accepted(server: &mut Server, so_far: &mut BTreeMap<String, u32>) {
    for seen in server.so_far() {
        if let Seen::Message(message) = seen {
            let text = String::from_utf8_lossy(&message);
            let to = text.lines().find(|line| line.starts_with("To: ")).expect("a message names its recipient");
            *so_far.entry(to.to_owned()).or_default() += 1;
        }
    }
}

async fn maildir_survives(backend: Backend) {
    let mut matrix = Matrix::new(backend, MAILDIR).await;
    for round in 0..rounds() {
        let customers = round * ROWS_PER_ROUND..(round + 1) * ROWS_PER_ROUND;
        let last = matrix.die_along(WITHOUT_LOOKUP, customers, 1 + round % 3).await;
        assert_eq!(last.code, 0, "{last:?}");
    }
    matrix.assert_settled().await;
    super::place::assert_one_each(&matrix.place.delivered(), (rounds() * ROWS_PER_ROUND) as usize);
    assert_eq!(matrix.count("sent").await, rounds() * ROWS_PER_ROUND);
    eprintln!("maildir: {} crashes", matrix.crashes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maildir_gets_each_digest_once_wherever_the_processes_die_on_sqlite() {
    maildir_survives(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maildir_gets_each_digest_once_wherever_the_processes_die_on_postgres() {
    maildir_survives(Backend::Postgres).await;
}

/// A server that knows no keys: what may have been accepted is held, and nobody is sent two.
async fn smtp_survives(backend: Backend) {
    let mut server = Server::start(&["8BITMIME", "PIPELINING"], |_| Act::Go).await;
    let mut matrix = Matrix::new(backend, &smtp(server.port)).await;
    let mut at_the_provider = BTreeMap::new();
    for round in 0..rounds() {
        let customers = round * ROWS_PER_ROUND..(round + 1) * ROWS_PER_ROUND;
        let last = matrix.die_along(WITHOUT_LOOKUP, customers, 1 + round % 3).await;
        assert!(matches!(last.code, 0 | 3), "{last:?}");
        accepted(&mut server, &mut at_the_provider);
    }
    matrix.assert_settled().await;
    assert!(at_the_provider.values().all(|times| *times == 1), "{at_the_provider:?}");
    let (sent, held) = (matrix.count("sent").await, matrix.count("held").await);
    assert_eq!(sent + held, rounds() * ROWS_PER_ROUND, "nobody is left out");
    let got = at_the_provider.len() as u32;
    assert!(sent <= got && got <= sent + held, "sent {sent}, held {held}, at the provider {got}");
    assert!(held > 0 && held < matrix.crashes * 4, "few are in doubt: {held} after {} crashes", matrix.crashes);
    eprintln!("smtp: {} crashes, {sent} sent, {held} held, {got} at the provider", matrix.crashes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_gets_each_digest_at_most_once_wherever_the_processes_die_on_sqlite() {
    smtp_survives(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_gets_each_digest_at_most_once_wherever_the_processes_die_on_postgres() {
    smtp_survives(Backend::Postgres).await;
}

/// A gateway that counts how often it accepted a message under each key.
#[derive(Clone, Default)]
struct Accepted(Arc<Mutex<BTreeMap<String, u32>>>);

impl Accepted {
    /// Whoever sends a key again gets the first answer where the gateway `replays`, else sends another message.
    fn answer(&self, request: &gateway::Request, replays: bool) -> gateway::Act {
        let mut accepted = self.0.lock().unwrap();
        if request.method == "GET" {
            let key = request.target.rsplit('/').next().unwrap();
            return match accepted.contains_key(key) {
                true => gateway::Act::answer(200, format!("{{\"status\":\"accepted\",\"id\":\"m-{}\"}}", &key[..8])),
                false => gateway::Act::answer(404, ""),
            };
        }
        let key = request.header("idempotency-key").expect("a send has a key");
        let times = accepted.entry(key.to_owned()).or_default();
        if *times == 0 || !replays {
            *times += 1;
        }
        gateway::Act::answer(200, format!("{{\"id\":\"m-{}\"}}", &key[..8]))
    }
}

async fn gateway_survives(backend: Backend, replays: bool) {
    let accepted = Accepted::default();
    let script = accepted.clone();
    let server = gateway::Server::start(move |request| script.answer(request, replays)).await;
    let (more, steps) = match replays {
        true => ("replay_window = \"48h\"".to_owned(), WITHOUT_LOOKUP),
        false => (
            format!("lookup_url = \"http://127.0.0.1:{}/sent/{{key}}\"\nlookup_settle = \"1s\"", server.port),
            WITH_LOOKUP,
        ),
    };
    let mut matrix = Matrix::new(backend, &http(server.port, &more)).await;
    for round in 0..rounds() {
        let customers = round * ROWS_PER_ROUND..(round + 1) * ROWS_PER_ROUND;
        let last = matrix.die_along(steps, customers, 1 + round % 3).await;
        assert_eq!(last.code, 0, "{last:?}");
    }
    matrix.assert_settled().await;
    assert_eq!(matrix.count("sent").await, rounds() * ROWS_PER_ROUND);
    let accepted = accepted.0.lock().unwrap();
    assert_eq!(accepted.len() as u32, rounds() * ROWS_PER_ROUND, "nobody is left out");
    assert!(accepted.values().all(|times| *times == 1), "{accepted:?}");
    eprintln!("http, replays {replays}: {} crashes, {} keys accepted once each", matrix.crashes, accepted.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_replays_accepts_each_digest_once_wherever_the_processes_die_on_sqlite() {
    gateway_survives(Backend::Sqlite, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_replays_accepts_each_digest_once_wherever_the_processes_die_on_postgres() {
    gateway_survives(Backend::Postgres, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_can_be_asked_accepts_each_digest_once_wherever_the_processes_die_on_sqlite() {
    gateway_survives(Backend::Sqlite, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_can_be_asked_accepts_each_digest_once_wherever_the_processes_die_on_postgres() {
    gateway_survives(Backend::Postgres, false).await;
}
