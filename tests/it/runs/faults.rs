//! Providers and ledgers that fail in the middle of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::place::{Place, smtp, until};
use crate::databases::Backend;
use crate::smtp::server::{Act, Point, Seen, Server};

fn messages(server: &mut Server) -> usize {
    server.so_far().iter().filter(|seen| matches!(seen, Seen::Message(_))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_after_the_final_dot_is_held_and_never_sent_again() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let mut server = Server::start(&["8BITMIME"], |moment| match moment.point {
            Point::Dot => Act::SayAndClose(""),
            _ => Act::Go,
        })
        .await;
        let place = Place::new(backend, &smtp(server.port)).await;
        place.export("week.jsonl", 0..7, |number| number);
        place.run(&["--snapshot", "week.jsonl"]).await.assert(3, &[("held", 7)]);
        assert_eq!(messages(&mut server), 7);
        place.run_at(86_400, &["--snapshot", "week.jsonl"]).await.assert(3, &[("held", 7)]);
        assert_eq!(messages(&mut server), 0);
        assert_eq!(place.receipts().await, ["held undecidable 7"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_a_reply_is_awaited_the_message_is_held() {
    let mut server = Server::start(&["8BITMIME"], |moment| match moment.point {
        Point::Dot => Act::Silence,
        _ => Act::Go,
    })
    .await;
    let place = Place::new(Backend::Sqlite, &smtp(server.port)).await;
    place.export("week.jsonl", 0..1, |number| number);
    let mut child = place.start_unheard(&["--snapshot", "week.jsonl"]);
    let arrived = AtomicUsize::new(0);
    let server_cell = std::sync::Mutex::new(&mut server);
    until("the message is there", || {
        arrived.fetch_add(messages(&mut server_cell.lock().unwrap()), Ordering::SeqCst);
        arrived.load(Ordering::SeqCst) == 1
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    place.run_at(60, &["--snapshot", "week.jsonl"]).await.assert(3, &[("held", 1)]);
    assert_eq!(messages(&mut server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_is_longer_than_the_wait_ends_the_run_with_work_left() {
    let server = Server::start(&["8BITMIME"], |moment| match moment.point {
        Point::Mail => Act::SayAndClose("421 4.7.0 slow down\r\n"),
        _ => Act::Go,
    })
    .await;
    let slow = smtp(server.port).replace("base = \"100ms\", cap = \"1s\"", "base = \"1000 days\", cap = \"1000 days\"");
    let place = Place::new(Backend::Sqlite, &slow).await;
    place.configure(&slow, "send_within = \"1000 days\"");
    place.export("week.jsonl", 0..2_500, |number| number);
    let ended = place.run(&["--snapshot", "week.jsonl", "--wait", "1s"]).await;
    assert_eq!(ended.code, 4, "{ended:?}");
    assert_eq!(ended.count("retryable") + ended.count("never_claimed") + ended.count("failed"), 2_500);
    assert!(ended.stderr.contains("work is left: destination `retail` is paused until"), "{}", ended.stderr);
    assert!(server.connections() <= 8, "a paused destination is left alone: {}", server.connections());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_throttles_for_ever_does_not_keep_the_run_for_ever() {
    let server = Server::start(&["8BITMIME"], |moment| match moment.point {
        Point::Mail => Act::SayAndClose("421 4.7.0 slow down\r\n"),
        _ => Act::Go,
    })
    .await;
    let quick =
        smtp(server.port).replace("send_timeout = \"10s\"\nlease = \"30s\"", "send_timeout = \"1s\"\nlease = \"3s\"");
    let place = Place::new(Backend::Sqlite, &quick).await;
    place.export("week.jsonl", 0..3, |number| number);
    let began = Instant::now();
    place.run(&["--snapshot", "week.jsonl", "--wait", "4s"]).await.assert(4, &[("retryable", 3)]);
    assert!(began.elapsed().as_secs() >= 2, "it did wait");
    let spent = place.ledger.value("SELECT sum(attempts) FROM receipts").await;
    assert_eq!(spent, "0", "throttling spends no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_kept_inside_a_batch_too() {
    let place = Place::new(Backend::Sqlite, "provider = \"maildir\"\npath = \"outbox\"\nrate = \"50/s\"\n").await;
    place.export("week.jsonl", 0..75, |number| number);
    let ended = place.run(&["--snapshot", "week.jsonl"]).await;
    ended.assert(0, &[("sent", 75)]);
    // One batch: its last send comes 74 fiftieths of a second after its first.
    assert!(ended.summary["elapsed_seconds"].as_f64() >= Some(1.48), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_away_for_a_while_loses_no_outcome() {
    let gate = Gate::before(crate::databases::Fresh::postgres().await).await;
    let closing = gate.closer();
    let mut server = Server::start(&["8BITMIME"], move |moment| match moment.point {
        Point::Dot if moment.message == 1 => {
            closing.close();
            Act::Late(std::time::Duration::from_millis(500))
        }
        _ => Act::Go,
    })
    .await;
    let place = Place::new(Backend::Sqlite, &smtp(server.port)).await;
    gate.configure(&place, &smtp(server.port));
    place.export("week.jsonl", 0..40, |number| number);
    let child = place.start(&["--snapshot", "week.jsonl"]);
    until("the ledger goes away", || gate.is_closed()).await;
    gate.open_after(std::time::Duration::from_secs(4)).await;
    let first = super::place::ended(child).await;
    assert!(matches!(first.code, 0 | 1), "{first:?}");
    let held =
        gate.fresh.value("SELECT count(*) FROM receipts WHERE state = 'held' OR ambiguous_since IS NOT NULL").await;
    assert_eq!(held, "0", "{first:?}");
    let last = place.run_at(60, &["--snapshot", "week.jsonl"]).await;
    assert_eq!(last.code, 0, "{last:?}");
    assert_eq!(messages(&mut server), 40);
    assert_eq!(gate.fresh.value("SELECT count(*) FROM receipts WHERE state = 'sent'").await, "40");
}

/// Stands before a PostgreSQL ledger; while it is closed, every connection ends and none begins.
struct Gate {
    fresh: crate::databases::Fresh,
    url: String,
    closed: Arc<tokio::sync::watch::Sender<bool>>,
}

/// Closes the gate, once.
struct Closer(Arc<tokio::sync::watch::Sender<bool>>, AtomicUsize);

impl Closer {
    fn close(&self) {
        if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            self.0.send_replace(true);
        }
    }
}

impl Gate {
    async fn before(fresh: crate::databases::Fresh) -> Self {
        use secrecy::ExposeSecret as _;
        let url = fresh.url.expose_secret().to_owned();
        let address = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let closed = Arc::new(tokio::sync::watch::Sender::new(false));
        let state = Arc::clone(&closed);
        let server = address.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut state = state.subscribe();
                if *state.borrow() {
                    continue;
                }
                let mut server = tokio::net::TcpStream::connect(&server).await.unwrap();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = state.wait_for(|closed| *closed) => {}
                    }
                });
            }
        });
        Self { url: url.replace(&address, &here), fresh, closed }
    }

    fn configure(&self, place: &Place, destination: &str) {
        use secrecy::ExposeSecret as _;
        place.configure(destination, "");
        place.edit("counterfoil.toml", place.ledger.url.expose_secret(), &self.url);
    }

    fn closer(&self) -> Closer {
        Closer(Arc::clone(&self.closed), AtomicUsize::new(0))
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    async fn open_after(&self, time: std::time::Duration) {
        tokio::time::sleep(time).await;
        self.closed.send_replace(false);
    }
}
