//! `smtp`: hands messages to an SMTP server, with an outcome that is exact about the one moment that counts.
//!
//! The dialogue is our own, over sockets of our own, because it must decide what a library hides: that nothing is
//! read ahead of its command, that the lease is asked between the last byte of the message and the final dot, and on
//! which side of that dot a failure fell. lettre brings addresses and the grammar of commands.
//!
//! | file | lives there |
//! |---|---|
//! | `settings`, `socket` | host, TLS, credentials; a connected, encrypted socket |
//! | `wire`, `reply`, `offers` | lines out, replies in; what they say |
//! | `session`, `transaction` | up to `AUTH`; from `MAIL` to the final dot |
//! | `letter`, `body` | envelope and bytes of one message |
//! | `failure` | the table from a point of failure to an outcome |
//! | `idle` | connections between messages |

use std::time::Duration;

use async_trait::async_trait;

use super::{Build, Kind, Outgoing, Provider};
use crate::config::ConfigError;
use crate::receipt::{Capabilities, Outcome, Replay};

mod body;
mod failure;
mod idle;
mod letter;
mod offers;
mod reply;
mod session;
mod settings;
mod socket;
mod transaction;
mod wire;

use failure::{Failure, Step};
use idle::Idle;
use letter::Letter;
use session::Connection;
use settings::Server;
use transaction::Ended;

/// A client should wait this long for the reply to the final dot (RFC 5321, 4.5.3.2.6).
const SEND_TIMEOUT: Duration = Duration::from_secs(600);

pub(super) const KIND: Kind = Kind {
    name: "smtp",
    summary: "hands over to an SMTP server: settings `host`, `port`, `tls`, `username`, `password_file`, `ca_file`",
    send_timeout: SEND_TIMEOUT,
    build,
};

fn build(build: Build<'_>) -> Result<Box<dyn Provider>, ConfigError> {
    let Build { settings, directory, send_timeout, .. } = build;
    let server = Server::from_settings(&settings, directory)?;
    Ok(Box::new(Smtp { server, send_timeout: send_timeout.unwrap_or(SEND_TIMEOUT), idle: Idle::default() }))
}

struct Smtp {
    server: Server,
    /// Counted from the final dot.
    send_timeout: Duration,
    idle: Idle,
}

#[async_trait]
impl Provider for Smtp {
    fn capabilities(&self) -> Capabilities {
        Capabilities { replay: Replay::Never, lookup: None }
    }

    fn account(&self) -> String {
        self.server.account()
    }

    async fn check(&self) -> Result<String, String> {
        let private: Vec<&str> = self.server.credentials.iter().map(|it| it.username.as_str()).collect();
        self.look().await.map_err(|failure| failure.describe(&private))
    }

    async fn send(&self, outgoing: Outgoing<'_>) -> Outcome {
        // Rendering and dialogue are not worth beginning on a lease that the reply could outlive.
        let lease = *outgoing.lease;
        if !lease.covers(self.send_timeout) {
            return Outcome::NotStarted;
        }
        let letter = Letter::new(outgoing);
        let permitted = || lease.covers(self.send_timeout);
        match self.attempt(&letter, permitted).await {
            Ok(Ended::Accepted(reply)) => Outcome::Accepted { reference: reply.reference(&letter.private_words()) },
            Ok(Ended::NotStarted) => Outcome::NotStarted,
            Err(failure) => failure.outcome(&letter.private_words()),
        }
    }
}

impl Smtp {
    /// One attempt, over an idle connection where there is one. If that turns out to be gone before the server has
    /// accepted `MAIL`, a fresh connection takes its place, once: nothing can have been accepted.
    async fn attempt(&self, letter: &Letter, permitted: impl Fn() -> bool + Copy + Send) -> Result<Ended, Failure> {
        if let Some(mut connection) = self.idle.take().await {
            let ended = connection.transact(letter, permitted, self.send_timeout).await;
            self.idle.put(connection);
            if !ended.as_ref().is_err_and(Failure::is_stale_connection) {
                return ended;
            }
        }
        let mut connection = Connection::open(&self.server).await?;
        let ended = connection.transact(letter, permitted, self.send_timeout).await;
        self.idle.put(connection);
        ended
    }

    /// Connects, says what was found, and leaves.
    async fn look(&self) -> Result<String, Failure> {
        let mut connection = Connection::open(&self.server).await?;
        connection.expect(Step::Noop, "NOOP\r\n", 250).await?;
        // The answer to a farewell changes nothing.
        let _ = connection.wire.command("QUIT\r\n").await;
        Ok(format!(
            "{}:{} answers; {}; {}; offers {}",
            self.server.host,
            self.server.port,
            connection.protection.unwrap_or("not encrypted"),
            if self.server.credentials.is_some() { "credentials accepted" } else { "no account" },
            connection.offers.names(),
        ))
    }
}
