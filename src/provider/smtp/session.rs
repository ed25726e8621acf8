//! Opening a connection up to the point where mail may be sent: greeting, `EHLO`, encryption, credentials.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::ExposeSecret as _;
use tokio::time::timeout;

use super::failure::{Failure, Step, Trouble};
use super::offers::Offers;
use super::reply::Reply;
use super::settings::{Credentials, Encryption, Server};
use super::socket;
use super::wire::{Stream, Wire};

/// In which state a connection is left, which decides whether it may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// Between messages.
    Clean,
    /// A message was refused on the way; `RSET` comes before the next.
    NeedsReset,
    /// Ended, or not known to be in step.
    Spent,
}

/// An open connection.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) offers: Offers,
    pub(super) condition: Condition,
    /// Such as `TLS 1.3`, where it is encrypted.
    pub(super) protection: Option<&'static str>,
}

impl Connection {
    /// Connects, encrypts and authenticates as the settings say.
    pub(super) async fn open(server: &Server) -> Result<Self, Failure> {
        let limit = server.command_timeout;
        let (stream, local) = within(limit, socket::connect(&server.host, server.port, server.tls == Encryption::None))
            .await
            .map_err(|trouble| Step::Connect.failed(trouble))?;
        let hello = format!("EHLO {}\r\n", server.hello_name.clone().unwrap_or_else(|| address_literal(local)));
        let stream: Box<dyn Stream> = Box::new(stream);
        let (mut wire, protection) = match server.tls {
            Encryption::None => (Wire::new(stream, limit), None),
            Encryption::Implicit => encrypted(server, Step::Connect, stream).await?,
            Encryption::StartTls => start_tls(server, stream, &hello).await?,
        };
        if server.tls != Encryption::StartTls {
            greeting(&mut wire).await?;
        }
        let offers = say_hello(&mut wire, &hello).await?;
        let mut connection = Self { wire, offers, condition: Condition::Clean, protection };
        if let Some(credentials) = &server.credentials {
            connection.authenticate(credentials).await?;
        }
        Ok(connection)
    }

    async fn authenticate(&mut self, credentials: &Credentials) -> Result<(), Failure> {
        let password = credentials.password.expose_secret();
        if self.offers.auth_plain {
            let token = BASE64.encode(format!("\0{}\0{password}", credentials.username));
            return self.expect(Step::Auth, &format!("AUTH PLAIN {token}\r\n"), 235).await;
        }
        if self.offers.auth_login {
            self.expect(Step::Auth, "AUTH LOGIN\r\n", 334).await?;
            self.expect(Step::Auth, &format!("{}\r\n", BASE64.encode(&credentials.username)), 334).await?;
            return self.expect(Step::Auth, &format!("{}\r\n", BASE64.encode(password)), 235).await;
        }
        Err(Step::Auth.failed(Trouble::Unfit(
            "the SMTP server offers neither AUTH PLAIN nor AUTH LOGIN here; look at `tls` and `port`, or remove \
             `username` and `password_file` if it needs no account"
                .to_owned(),
        )))
    }

    /// Writes a line and expects this code.
    pub(super) async fn expect(&mut self, step: Step, line: &str, code: u16) -> Result<(), Failure> {
        expected(step, self.wire.command(line).await, code).map(drop)
    }
}

/// Turns a reply other than the expected one into a failure of the step.
pub(super) fn expected(step: Step, reply: Result<Reply, Trouble>, code: u16) -> Result<Reply, Failure> {
    match reply {
        Ok(reply) if reply.code == code => Ok(reply),
        Ok(reply) => Err(step.failed(Trouble::Refused(reply))),
        Err(trouble) => Err(step.failed(trouble)),
    }
}

async fn greeting(wire: &mut Wire) -> Result<(), Failure> {
    expected(Step::Greeting, wire.reply().await, 220).map(drop)
}

async fn say_hello(wire: &mut Wire, hello: &str) -> Result<Offers, Failure> {
    let reply = expected(Step::Ehlo, wire.command(hello).await, 250)?;
    Ok(Offers::from_reply(&reply))
}

/// Speaks in the clear up to `STARTTLS`. What the server offered before is forgotten: anyone could have said it.
async fn start_tls(
    server: &Server,
    stream: Box<dyn Stream>,
    hello: &str,
) -> Result<(Wire, Option<&'static str>), Failure> {
    let mut wire = Wire::new(stream, server.command_timeout);
    greeting(&mut wire).await?;
    if !say_hello(&mut wire, hello).await?.start_tls {
        return Err(Step::StartTls.failed(Trouble::Unfit(
            "the SMTP server does not offer STARTTLS on this port; look at `host`, `port` and `tls`".to_owned(),
        )));
    }
    expected(Step::StartTls, wire.command("STARTTLS\r\n").await, 220)?;
    let stream = wire.into_stream().map_err(|trouble| Step::StartTls.failed(trouble))?;
    encrypted(server, Step::StartTls, stream).await
}

async fn encrypted(
    server: &Server,
    step: Step,
    stream: Box<dyn Stream>,
) -> Result<(Wire, Option<&'static str>), Failure> {
    let limit = server.command_timeout;
    let Some(trust) = &server.trust else {
        return Err(step.failed(Trouble::Unfit("`tls` asks for TLS, which is not set up".to_owned())));
    };
    let (stream, protocol) = within(limit, trust.encrypt(stream)).await.map_err(|trouble| step.failed(trouble))?;
    Ok((Wire::new(stream, limit), Some(protocol)))
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    timeout(limit, work).await.map_err(|_| Trouble::TimedOut)?
}

/// How a client without a name calls itself (RFC 5321, 4.1.3).
fn address_literal(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("[{address}]"),
        IpAddr::V6(address) => format!("[IPv6:{address}]"),
    }
}
