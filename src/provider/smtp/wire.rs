//! Lines out, replies in, over a socket that may be encrypted. Every wait has a limit and every reply a bound.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::failure::Trouble;
use super::reply::{Line, Reply};
use crate::rehearsal;

/// Longest line of a reply; RFC 5321 allows 512 bytes.
const LINE_BYTES: u64 = 4_096;

/// Most lines of a reply.
const LINES: usize = 128;

/// Bytes that are written under one time limit.
const CHUNK: usize = 64 * 1024;

/// A socket, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// One connection's bytes.
pub(super) struct Wire {
    stream: BufReader<Box<dyn Stream>>,
    time_limit: Duration,
}

impl Wire {
    /// A wire over `stream`; each write and each reply may take `time_limit`.
    pub(super) fn new(stream: Box<dyn Stream>, time_limit: Duration) -> Self {
        Self { stream: BufReader::new(stream), time_limit }
    }

    /// The socket, to encrypt what follows.
    ///
    /// # Errors
    /// Bytes that came before the encryption: they would count as if they had come after it, so that anyone on the
    /// way could speak for the server.
    pub(super) fn into_stream(self) -> Result<Box<dyn Stream>, Trouble> {
        if self.stream.buffer().is_empty() { Ok(self.stream.into_inner()) } else { Err(Trouble::Garbled) }
    }

    /// Writes and flushes, each chunk within the time limit.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        for chunk in bytes.chunks(CHUNK) {
            timeout(self.time_limit, self.put(chunk)).await.map_err(|_| Trouble::TimedOut)??;
        }
        Ok(())
    }

    /// Reads a reply within the time limit.
    pub(super) async fn reply(&mut self) -> Result<Reply, Trouble> {
        timeout(self.time_limit, self.read_reply()).await.map_err(|_| Trouble::TimedOut)?
    }

    /// Writes a line, with its line end, and reads the reply. A reply that had come before is nobody's answer.
    pub(super) async fn command(&mut self, line: &str) -> Result<Reply, Trouble> {
        if !self.stream.buffer().is_empty() {
            return Err(Trouble::Garbled);
        }
        self.write(line.as_bytes()).await?;
        self.reply().await
    }

    /// Writes `bytes`, reaches `written`, and reads the reply, all within `limit`; the first byte goes out with the
    /// first poll.
    pub(super) async fn exchange(
        &mut self,
        bytes: &[u8],
        written: rehearsal::Step,
        limit: Duration,
    ) -> Result<Reply, Trouble> {
        let both = async {
            self.put(bytes).await?;
            rehearsal::reach(written);
            self.read_reply().await
        };
        timeout(limit, both).await.map_err(|_| Trouble::TimedOut)?
    }

    /// Whether the server has said something, or hung up, that was not read yet. Does not wait for it.
    pub(super) async fn has_unread(&mut self) -> bool {
        if !self.stream.buffer().is_empty() {
            return true;
        }
        // Lets the runtime ask the operating system what has arrived since.
        tokio::task::yield_now().await;
        poll_fn(|context| Poll::Ready(Pin::new(&mut self.stream).poll_fill_buf(context).is_ready())).await
    }

    async fn put(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes).await.map_err(|_| Trouble::Lost)?;
        stream.flush().await.map_err(|_| Trouble::Lost)
    }

    async fn read_reply(&mut self) -> Result<Reply, Trouble> {
        let mut lines = Vec::new();
        let mut expected = None;
        while lines.len() < LINES {
            let line = self.read_line().await?;
            if expected.is_some_and(|code| code != line.code) {
                return Err(Trouble::Garbled);
            }
            expected = Some(line.code);
            lines.push(line.text);
            if line.is_last {
                return Ok(Reply { code: line.code, lines });
            }
        }
        Err(Trouble::Garbled)
    }

    async fn read_line(&mut self) -> Result<Line, Trouble> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(LINE_BYTES);
        bounded.read_until(b'\n', &mut line).await.map_err(|_| Trouble::Lost)?;
        let is_full = bounded.limit() == 0;
        match line.last() {
            Some(b'\n') => Line::parse(&line).ok_or(Trouble::Garbled),
            _ if is_full => Err(Trouble::Garbled),
            _ => Err(Trouble::Lost),
        }
    }
}
