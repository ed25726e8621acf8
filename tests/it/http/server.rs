//! An HTTP/1.1 server on loopback that does with each request what a script says, and a gateway that keeps its word.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A request, whole or, while only its head has come, without its body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Counts connections from zero.
    pub(crate) connection: usize,
    /// Counts requests on all connections from zero.
    pub(crate) number: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header that stands once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str());
        let first = found.next();
        assert!(found.next().is_none(), "{name} stands twice");
        first
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What the server does.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A whole answer; the connection stays open.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// A whole answer that promises an open connection, which then ends.
    AnswerAndClose(u16, &'static str),
    /// These bytes, then the connection ends.
    Raw(Vec<u8>),
    /// These bytes, then nothing until the client hangs up.
    RawAndSilence(Vec<u8>),
    /// These bytes, then the server neither reads nor writes.
    RawAndDeaf(Vec<u8>),
    /// The connection ends without a word.
    Drop,
    /// Nothing until the client hangs up.
    Silence,
    /// The same, later.
    Late(Duration, Box<Act>),
}

impl Act {
    /// A whole answer.
    pub(crate) fn answer(status: u16, body: impl Into<String>) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.into() }
    }

    /// A whole answer without content, with headers.
    pub(crate) fn with_headers(status: u16, headers: &[(&'static str, &str)]) -> Self {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self::Answer { status, headers, body: String::new() }
    }
}

type Early = Arc<dyn Fn(&Request) -> Option<Act> + Send + Sync>;
type Script = Arc<dyn Fn(&Request) -> Act + Send + Sync>;

/// A running server. It ends with the test's runtime.
pub(crate) struct Server {
    pub(crate) port: u16,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Request>>>,
    broken: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// How a server is to be.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Asked when a head has come, before its body is read.
    early: Early,
    /// Asked when a request is whole.
    script: Script,
    tls: Option<TlsAcceptor>,
}

impl Plan {
    pub(crate) fn new(script: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Self {
        Self { early: Arc::new(|_| None), script: Arc::new(script), tls: None }
    }

    pub(crate) fn early(self, early: impl Fn(&Request) -> Option<Act> + Send + Sync + 'static) -> Self {
        Self { early: Arc::new(early), ..self }
    }

    pub(crate) fn tls(self, acceptor: TlsAcceptor) -> Self {
        Self { tls: Some(acceptor), ..self }
    }
}

impl Server {
    /// A server in the clear that does with each whole request what `script` says.
    pub(crate) async fn start(script: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Self {
        Self::planned(Plan::new(script)).await
    }

    pub(crate) async fn planned(plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, connections: Arc::default(), requests: Arc::default(), broken: Arc::default() };
        let (connections, requests, broken) =
            (Arc::clone(&server.connections), Arc::clone(&server.requests), Arc::clone(&server.broken));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = connections.fetch_add(1, Ordering::SeqCst);
                let dialogue = Dialogue {
                    plan: plan.clone(),
                    connection,
                    requests: Arc::clone(&requests),
                    broken: Arc::clone(&broken),
                    pending: Vec::new(),
                };
                tokio::spawn(dialogue.open(stream));
            }
        });
        server
    }

    /// Connections that were ever opened.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Every whole request so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// What had come of requests that never became whole.
    pub(crate) fn broken(&self) -> Vec<Vec<u8>> {
        self.broken.lock().unwrap().clone()
    }
}

/// One connection.
struct Dialogue {
    plan: Plan,
    connection: usize,
    requests: Arc<Mutex<Vec<Request>>>,
    broken: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Read and not yet used.
    pending: Vec<u8>,
}

/// The connection is over.
struct Over;

impl From<std::io::Error> for Over {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Dialogue {
    async fn open(self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        match self.plan.tls.clone() {
            None => self.run(stream).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.run(stream).await;
                }
            }
        }
    }

    async fn run(mut self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        while self.exchange(&mut stream).await.is_ok() {}
        if !self.pending.is_empty() {
            self.broken.lock().unwrap().push(std::mem::take(&mut self.pending));
        }
        let _ = stream.shutdown().await;
    }

    async fn exchange(&mut self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), Over> {
        let end = loop {
            match self.pending.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more(stream).await?,
            }
        };
        let mut request = self.head(&String::from_utf8(self.pending[..end].to_vec()).unwrap());
        if let Some(act) = (self.plan.early)(&request) {
            return self.act(stream, act).await;
        }
        let length: usize = request.header("content-length").map_or(0, |length| length.parse().unwrap());
        assert_eq!(request.header("transfer-encoding"), None);
        while self.pending.len() < end + length {
            self.more(stream).await?;
        }
        request.body = self.pending.drain(..end + length).skip(end).collect();
        {
            let mut requests = self.requests.lock().unwrap();
            request.number = requests.len();
            requests.push(request.clone());
        }
        let act = (self.plan.script)(&request);
        self.act(stream, act).await
    }

    async fn more(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Over> {
        let mut piece = vec![0; 64 * 1024];
        match stream.read(&mut piece).await? {
            0 => Err(Over),
            count => {
                self.pending.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    fn head(&self, text: &str) -> Request {
        let mut lines = text.lines();
        let mut words = lines.next().unwrap().split(' ');
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Request {
            connection: self.connection,
            number: 0,
            method: words.next().unwrap().to_owned(),
            target: words.next().unwrap().to_owned(),
            headers: lines.filter(|line| !line.is_empty()).map(header).collect(),
            body: Vec::new(),
        }
    }

    async fn act(&mut self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), mut act: Act) -> Result<(), Over> {
        while let Act::Late(wait, then) = act {
            tokio::time::sleep(wait).await;
            act = *then;
        }
        match act {
            Act::Late(..) => unreachable!(),
            Act::Answer { status, headers, body } => {
                stream.write_all(&bytes(status, &headers, &body)).await?;
                Ok(())
            }
            Act::AnswerAndClose(status, body) => {
                stream.write_all(&bytes(status, &[], body)).await?;
                Err(Over)
            }
            Act::Raw(raw) => {
                stream.write_all(&raw).await?;
                Err(Over)
            }
            Act::RawAndSilence(raw) => {
                stream.write_all(&raw).await?;
                self.silence(stream).await
            }
            Act::RawAndDeaf(raw) => {
                stream.write_all(&raw).await?;
                std::future::pending().await
            }
            Act::Drop => Err(Over),
            Act::Silence => self.silence(stream).await,
        }
    }

    async fn silence(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), Over> {
        loop {
            self.more(stream).await?;
        }
    }
}

fn bytes(status: u16, headers: &[(&'static str, String)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

/// What a gateway remembers: by key, the body of the first request and the id that it answered with.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<BTreeMap<String, (Vec<u8>, String)>>>);

impl Memory {
    /// What a gateway that keeps its word says: `POST` of anything accepts once a key and repeats its answer, another
    /// payload under a key is refused, `GET` of `…/KEY` tells what was accepted.
    pub(crate) fn answer(&self, request: &Request) -> Act {
        let mut accepted = self.0.lock().unwrap();
        if request.method == "GET" {
            let key = request.target.rsplit('/').next().unwrap();
            return match accepted.get(key) {
                Some((_, id)) => Act::answer(200, json!({ "status": "accepted", "id": id }).to_string()),
                None => Act::answer(404, json!({ "error": "not_found" }).to_string()),
            };
        }
        let key = request.header("idempotency-key").unwrap().to_owned();
        let next = format!("m-{}", accepted.len());
        let (body, id) = accepted.entry(key).or_insert_with(|| (request.body.clone(), next));
        if *body == request.body {
            Act::answer(202, json!({ "id": id }).to_string())
        } else {
            Act::answer(422, json!({ "error": "other_payload" }).to_string())
        }
    }

    /// The keys that were accepted, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}
