//! An SMTP server on loopback that does at each moment what a script says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Where in the dialogue the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    Greeting,
    Ehlo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    /// After the first bytes of the message.
    Body,
    Dot,
    Rset,
    Noop,
}

/// A moment that the script decides about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Counts connections from zero.
    pub(crate) connection: usize,
    /// Counts messages on this connection from zero.
    pub(crate) message: usize,
    pub(crate) point: Point,
}

/// What the server does.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// What a good server does.
    Go,
    /// These bytes instead of the usual reply.
    Say(&'static str),
    /// These bytes, then the connection ends.
    SayAndClose(&'static str),
    /// The usual reply, then the connection ends.
    GoAndClose,
    /// One packet after another.
    Pieces(&'static [&'static str]),
    /// The usual reply, late.
    Late(Duration),
    /// Nothing until the client hangs up.
    Silence,
}

/// What a test can learn from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Command(String),
    /// A message with its final dot, dots undoubled.
    Message(Vec<u8>),
    /// A connection ended; whatever of a message had come without its final dot.
    Closed(Vec<u8>),
}

/// Whether and when the server encrypts.
#[derive(Clone)]
pub(crate) enum Protection {
    None,
    StartTls(TlsAcceptor),
    Implicit(TlsAcceptor),
}

impl Act {
    /// Whether a client is left without a whole reply on an open connection.
    pub(crate) fn leaves_waiting(&self) -> bool {
        matches!(self, Self::Silence)
            || matches!(self, Self::Say(text) if text.starts_with("250-") && text.lines().count() == 1)
    }
}

type Script = Arc<dyn Fn(Moment) -> Act + Send + Sync>;
type Socket = BufReader<Box<dyn Stream>>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: UnboundedReceiver<Seen>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) async fn start(
        offers: &'static [&'static str],
        script: impl Fn(Moment) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::protected(Protection::None, offers, script).await
    }

    pub(crate) async fn protected(
        protection: Protection,
        offers: &'static [&'static str],
        script: impl Fn(Moment) -> Act + Send + Sync + 'static,
    ) -> Self {
        // A small buffer, so that a client notices when nobody reads.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(32 * 1024).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(128).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, seen) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let script: Script = Arc::new(script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let connection = counter.fetch_add(1, Ordering::SeqCst);
                let dialogue = Dialogue {
                    offers,
                    script: Arc::clone(&script),
                    connection,
                    message: 0,
                    tell: tell.clone(),
                    partial: Vec::new(),
                };
                tokio::spawn(dialogue.run(stream, protection.clone()));
            }
        });
        Self { port, seen, connections }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Everything seen up to and including the end of the next connection that ends.
    pub(crate) async fn until_closed(&mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        while let Some(seen) = self.seen.recv().await {
            let is_end = matches!(seen, Seen::Closed(_));
            all.push(seen);
            if is_end {
                break;
            }
        }
        all
    }

    /// Everything seen so far.
    pub(crate) fn so_far(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

/// A certificate for localhost that only its own PEM vouches for.
pub(crate) fn self_signed() -> (TlsAcceptor, String) {
    self_signed_for(&[])
}

/// The same, agreeing on one of these protocols.
pub(crate) fn self_signed_for(protocols: &[&[u8]]) -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

/// One connection.
struct Dialogue {
    offers: &'static [&'static str],
    script: Script,
    connection: usize,
    message: usize,
    tell: UnboundedSender<Seen>,
    partial: Vec<u8>,
}

/// The connection is over.
struct Over;

impl From<std::io::Error> for Over {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Dialogue {
    async fn run(mut self, stream: TcpStream, protection: Protection) {
        // However it ends, its end is what is told.
        let _ = self.talk(stream, &protection).await;
        let _ = self.tell.send(Seen::Closed(std::mem::take(&mut self.partial)));
    }

    async fn talk(&mut self, stream: TcpStream, protection: &Protection) -> Result<(), Over> {
        let stream: Box<dyn Stream> = match protection {
            Protection::Implicit(acceptor) => Box::new(acceptor.accept(stream).await?),
            _ => Box::new(stream),
        };
        let mut socket = BufReader::new(stream);
        self.act(&mut socket, Point::Greeting, "220 test ESMTP\r\n").await?;
        let mut has_recipient = false;
        loop {
            let mut line = String::new();
            if socket.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let command = line.trim_end().to_owned();
            let _ = self.tell.send(Seen::Command(command.clone()));
            match command.split([' ', ':']).next().unwrap_or_default() {
                "EHLO" => {
                    let reply = self.ehlo_reply();
                    self.act(&mut socket, Point::Ehlo, &reply).await?;
                }
                "STARTTLS" => {
                    let Protection::StartTls(acceptor) = protection else { return Err(Over) };
                    self.act(&mut socket, Point::StartTls, "220 go\r\n").await?;
                    socket = BufReader::new(Box::new(acceptor.accept(socket.into_inner()).await?));
                }
                "AUTH" if command == "AUTH LOGIN" => self.login(&mut socket).await?,
                "AUTH" => {
                    self.act(&mut socket, Point::Auth, "235 2.7.0 ok\r\n").await?;
                }
                "MAIL" => {
                    self.act(&mut socket, Point::Mail, "250 2.1.0 ok\r\n").await?;
                }
                "RCPT" => has_recipient = self.act(&mut socket, Point::Rcpt, "250 2.1.5 ok\r\n").await?,
                "DATA" if !has_recipient => socket.write_all(b"503 5.5.1 no recipient\r\n").await?,
                "DATA" => {
                    has_recipient = false;
                    if self.act(&mut socket, Point::Data, "354 go on\r\n").await? {
                        self.message(&mut socket).await?;
                    }
                }
                "RSET" => {
                    has_recipient = false;
                    self.act(&mut socket, Point::Rset, "250 2.0.0 ok\r\n").await?;
                }
                "NOOP" => {
                    self.act(&mut socket, Point::Noop, "250 2.0.0 ok\r\n").await?;
                }
                "QUIT" => {
                    socket.write_all(b"221 2.0.0 bye\r\n").await?;
                    socket.flush().await?;
                    return Ok(());
                }
                _ => socket.write_all(b"500 5.5.2 what\r\n").await?,
            }
            socket.flush().await?;
        }
    }

    fn ehlo_reply(&self) -> String {
        let lines: Vec<_> = ["test"].iter().chain(self.offers).copied().collect();
        let (last, others) = lines.split_last().unwrap();
        others.iter().map(|line| format!("250-{line}\r\n")).collect::<String>() + &format!("250 {last}\r\n")
    }

    async fn login(&mut self, socket: &mut Socket) -> Result<(), Over> {
        for prompt in ["334 VXNlcm5hbWU6\r\n", "334 UGFzc3dvcmQ6\r\n"] {
            socket.write_all(prompt.as_bytes()).await?;
            socket.flush().await?;
            let mut line = String::new();
            socket.read_line(&mut line).await?;
            let _ = self.tell.send(Seen::Command(line.trim_end().to_owned()));
        }
        self.act(socket, Point::Auth, "235 2.7.0 ok\r\n").await.map(drop)
    }

    async fn message(&mut self, socket: &mut Socket) -> Result<(), Over> {
        let first = socket.fill_buf().await?.len();
        if first > 0 {
            self.act(socket, Point::Body, "").await?;
        }
        loop {
            let mut line = Vec::new();
            if socket.read_until(b'\n', &mut line).await? == 0 {
                return Err(Over);
            }
            if line == b".\r\n" {
                break;
            }
            self.partial.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
        }
        let _ = self.tell.send(Seen::Message(std::mem::take(&mut self.partial)));
        let reply = format!("250 2.0.0 Ok: queued as Q{}-{}\r\n", self.connection, self.message);
        self.act(socket, Point::Dot, &reply).await?;
        self.message += 1;
        Ok(())
    }

    /// Does what the script says; answers whether the usual thing happened.
    async fn act(&mut self, socket: &mut Socket, point: Point, usual: &str) -> Result<bool, Over> {
        let act = (self.script)(Moment { connection: self.connection, message: self.message, point });
        match act {
            Act::Go => socket.write_all(usual.as_bytes()).await?,
            Act::Late(wait) => {
                tokio::time::sleep(wait).await;
                socket.write_all(usual.as_bytes()).await?;
            }
            Act::GoAndClose => {
                socket.write_all(usual.as_bytes()).await?;
                socket.flush().await?;
                return Err(Over);
            }
            Act::Say(text) => {
                socket.write_all(text.as_bytes()).await?;
                socket.flush().await?;
                return Ok(false);
            }
            Act::SayAndClose(text) => {
                socket.write_all(text.as_bytes()).await?;
                socket.flush().await?;
                return Err(Over);
            }
            Act::Pieces(pieces) => {
                for piece in pieces {
                    socket.write_all(piece.as_bytes()).await?;
                    socket.flush().await?;
                    tokio::task::yield_now().await;
                }
            }
            Act::Silence => {
                let mut rest = Vec::new();
                socket.read_to_end(&mut rest).await?;
                return Err(Over);
            }
        }
        socket.flush().await?;
        Ok(true)
    }
}
