//! The HTTP provider over TLS and HTTP/2, against a server that is driven by the frame.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use h2::Reason;
use h2::server::SendResponse;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::smtp::server::self_signed_for;

/// What the server does with a stream.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Accept,
    Reset(Reason),
    /// Ends the connection after the whole request has come.
    Drop,
}

struct Place {
    port: u16,
    home: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
    /// The whole bodies that have come.
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl Place {
    async fn start(deed: Deed) -> Self {
        let (acceptor, authority) = self_signed_for(&[b"h2", b"http/1.1"]);
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("ca.pem"), authority).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let place = Self { port, home, connections: Arc::default(), bodies: Arc::default() };
        let (connections, bodies) = (Arc::clone(&place.connections), Arc::clone(&place.bodies));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, acceptor.clone(), deed, Arc::clone(&bodies)));
            }
        });
        place
    }

    fn provider(&self) -> Box<dyn Provider> {
        let settings = format!("url = 'https://127.0.0.1:{}/send'\nca_file = 'ca.pem'", self.port);
        build_in(&settings, PATIENT, self.home.path())
    }

    fn bodies(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, deed: Deed, bodies: Arc<Mutex<Vec<Bytes>>>) {
    let stream = acceptor.accept(stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let (done, mut ended) = tokio::sync::mpsc::unbounded_channel::<()>();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                tokio::spawn(stream_of(request.into_body(), respond, deed, Arc::clone(&bodies), done.clone()));
            }
            _ = ended.recv() => return,
        }
    }
}

async fn stream_of(
    mut body: h2::RecvStream,
    mut respond: SendResponse<Bytes>,
    deed: Deed,
    bodies: Arc<Mutex<Vec<Bytes>>>,
    done: tokio::sync::mpsc::UnboundedSender<()>,
) {
    if let Deed::Reset(reason @ Reason::REFUSED_STREAM) = deed {
        respond.send_reset(reason);
        return;
    }
    let mut whole = Vec::new();
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).unwrap();
        whole.extend_from_slice(&piece);
    }
    bodies.lock().unwrap().push(whole.into());
    match deed {
        Deed::Accept => {
            let head = axum::http::Response::builder().status(202).body(()).unwrap();
            let mut answer = respond.send_response(head, false).unwrap();
            answer.send_data(Bytes::from_static(br#"{"id":"m-1"}"#), true).unwrap();
        }
        Deed::Reset(reason) => respond.send_reset(reason),
        Deed::Drop => done.send(()).unwrap(),
    }
}

#[tokio::test]
async fn one_encrypted_connection_carries_many_requests() {
    let place = Place::start(Deed::Accept).await;
    let provider = place.provider();
    assert_eq!(send(&*provider, &message(0)).await, accepted("m-1"));
    let messages: Vec<Message> = (1..50).map(message).collect();
    let outcomes = join_all(messages.iter().map(|message| send(&*provider, message))).await;
    assert!(outcomes.iter().all(|outcome| *outcome == accepted("m-1")), "{outcomes:?}");
    assert_eq!((place.connections.load(Ordering::SeqCst), place.bodies()), (1, 50));
    let bodies = place.bodies.lock().unwrap();
    assert!(bodies.iter().all(|body| serde_json::from_slice::<serde_json::Value>(body).is_ok()));
}

#[tokio::test]
async fn a_stream_that_is_reset_after_the_request_is_ambiguous_and_not_repeated() {
    for deed in [Deed::Reset(Reason::INTERNAL_ERROR), Deed::Reset(Reason::CANCEL), Deed::Drop] {
        let place = Place::start(deed).await;
        let outcome = send(&*place.provider(), &message(1)).await;
        assert_eq!(outcome, ambiguous("no_answer_after_request"), "{deed:?}");
        assert_eq!(place.bodies(), 1, "{deed:?}");
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_is_not_repeated_behind_our_back() {
    let place = Place::start(Deed::Reset(Reason::REFUSED_STREAM)).await;
    let outcome = send(&*place.provider(), &message(1)).await;
    assert!(matches!(outcome, Outcome::Unavailable { .. } | Outcome::Ambiguous { .. }), "{outcome:?}");
    assert_eq!((place.bodies(), place.connections.load(Ordering::SeqCst)), (0, 1));
}
