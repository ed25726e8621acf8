//! One message over an open connection: `MAIL`, `RCPT`, `DATA`, the bytes, and the final dot.
//!
//! The final dot is a write of its own, and the permission is asked right before it: until then the server must
//! forget the message if the connection ends (RFC 5321, 4.1.1.10), from then on it may have accepted it.

use std::time::Duration;

use super::failure::{Failure, Step, Trouble};
use super::letter::Letter;
use super::reply::Reply;
use super::session::{Condition, Connection, expected};
use crate::rehearsal;

/// The end of the message, behind a line end. RFC 5321, 4.1.1.4
const FINAL_DOT: &[u8] = b".\r\n";

/// How a message ended that did not fail.
#[derive(Debug)]
pub(super) enum Ended {
    /// The server took responsibility, in these words.
    Accepted(Reply),
    /// The permission was gone before the final dot.
    NotStarted,
}

impl Connection {
    /// Sends `letter`. `permitted` is asked as the last act before the final dot; the reply to it may take
    /// `dot_limit`. Afterwards `condition` says whether the connection may be used again.
    pub(super) async fn transact(
        &mut self,
        letter: &Letter,
        permitted: impl Fn() -> bool + Send,
        dot_limit: Duration,
    ) -> Result<Ended, Failure> {
        if std::mem::replace(&mut self.condition, Condition::Spent) == Condition::NeedsReset {
            self.expect(Step::Reset, "RSET\r\n", 250).await?;
        }
        self.condition = Condition::Clean;
        let mail = letter.mail(&self.offers).map_err(|trouble| Step::Mail.failed(trouble))?;
        self.condition = Condition::Spent;
        if self.offers.pipelining {
            self.open_pipelined(&mail, &letter.rcpt()).await?;
        } else {
            self.open_in_turn(&mail, &letter.rcpt()).await?;
        }
        self.write_body(&letter.body).await?;
        rehearsal::reach(rehearsal::Step::Connected);
        if !permitted() {
            return Ok(Ended::NotStarted);
        }
        self.finish(dot_limit).await.map(Ended::Accepted)
    }

    /// `MAIL`, `RCPT`, `DATA`, each when the one before was answered.
    async fn open_in_turn(&mut self, mail: &str, rcpt: &str) -> Result<(), Failure> {
        self.expect(Step::Mail, mail, 250).await?;
        let opened = match recipient(self.wire.command(rcpt).await) {
            Ok(()) => self.expect(Step::Data, "DATA\r\n", 354).await,
            refused => refused,
        };
        opened.inspect_err(|failure| self.keep_after(failure))
    }

    /// `MAIL`, `RCPT`, `DATA` in one packet (RFC 2920): one round trip instead of three.
    async fn open_pipelined(&mut self, mail: &str, rcpt: &str) -> Result<(), Failure> {
        let written = self.wire.write(format!("{mail}{rcpt}DATA\r\n").as_bytes()).await;
        expected(Step::Mail, self.reply_after(&written).await, 250)?;
        let Err(failure) = recipient(self.wire.reply().await) else {
            let data = expected(Step::Data, self.wire.reply().await, 354);
            return data.map(drop).inspect_err(|failure| self.keep_after(failure));
        };
        // The reply to `DATA` is on its way too. A server that now waits for a message without a recipient is left
        // alone; one that refuses it is ready for the next message.
        if matches!(failure.trouble, Trouble::Refused(_))
            && self.wire.reply().await.is_ok_and(|data| data.leaves_channel_open())
        {
            self.keep_after(&failure);
        }
        Err(failure)
    }

    /// The reply to what was written; where writing failed, a reply that the server had left before it hung up.
    async fn reply_after(&mut self, written: &Result<(), Trouble>) -> Result<Reply, Trouble> {
        match written {
            Ok(()) => self.wire.reply().await,
            Err(trouble) if self.wire.has_unread().await => self.wire.reply().await.map_err(|_| trouble.clone()),
            Err(trouble) => Err(trouble.clone()),
        }
    }

    /// A connection on which the server refused something in due form goes on.
    fn keep_after(&mut self, failure: &Failure) {
        if let Trouble::Refused(reply) = &failure.trouble
            && reply.leaves_channel_open()
        {
            self.condition = Condition::NeedsReset;
        }
    }

    /// The message without the final dot. A server that speaks before the dot will not take the message: the dot is
    /// not written.
    async fn write_body(&mut self, body: &[u8]) -> Result<(), Failure> {
        let written = self.wire.write(body).await;
        if written.is_ok() && !self.wire.has_unread().await {
            return Ok(());
        }
        let trouble = match self.reply_after(&written).await {
            Ok(reply) => Trouble::Refused(reply),
            Err(trouble) => trouble,
        };
        Err(Step::Body.failed(trouble))
    }

    /// The final dot and the reply to it.
    async fn finish(&mut self, limit: Duration) -> Result<Reply, Failure> {
        let reply = self
            .wire
            .exchange(FINAL_DOT, rehearsal::Step::RequestWritten, limit)
            .await
            .map_err(|trouble| Step::Dot.failed(trouble))?;
        if (250..260).contains(&reply.code) {
            self.condition = Condition::Clean;
            return Ok(reply);
        }
        let failure = Step::Dot.failed(Trouble::Refused(reply));
        self.keep_after(&failure);
        Err(failure)
    }
}

/// The reply to `RCPT`: `250`, or `251` and `252` where the server forwards or cannot tell yet.
fn recipient(reply: Result<Reply, Trouble>) -> Result<(), Failure> {
    match reply {
        Ok(reply) if (250..253).contains(&reply.code) => Ok(()),
        Ok(reply) => Err(Step::Rcpt.failed(Trouble::Refused(reply))),
        Err(trouble) => Err(Step::Rcpt.failed(trouble)),
    }
}
