//! A request's body whose last byte goes out only once, only with permission, and not any more when the sender has
//! given up. Without its last byte a request cannot be accepted: it is shorter than its length says, and its JSON has
//! no end. So whoever closes the gate before that byte has passed knows that nothing was accepted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::ledger::Lease;
use crate::rehearsal::{self, Step};

const WAITING: u8 = 0;
const PASSED: u8 = 1;
const CLOSED: u8 = 2;
const TOO_LATE: u8 = 3;

/// What became of a request's last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was given to the connection: from here only an answer proves anything.
    Passed,
    /// It never was and never will be.
    Kept,
    /// It never was and never will be, because the lease or the time limit would have ended under it.
    TooLate,
}

/// The place that the last byte has to pass.
#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU8,
    lease: Lease,
    /// When whoever waits for the answer stops waiting.
    deadline: Instant,
}

impl Gate {
    pub(super) fn new(lease: Lease, deadline: Instant) -> Self {
        Self { state: AtomicU8::new(WAITING), lease, deadline }
    }

    /// Closes the gate, unless the byte has passed. Whatever runs on in the background cannot change the answer.
    pub(super) fn close(&self) -> Fate {
        match self.leave_waiting(CLOSED) {
            Ok(()) | Err(CLOSED) => Fate::Kept,
            Err(TOO_LATE) => Fate::TooLate,
            Err(_) => Fate::Passed,
        }
    }

    /// Whether the byte may go out: at most once, and only where the wait for the answer ends inside the lease.
    fn pass(&self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let permitted = !left.is_zero() && self.lease.covers(left);
        self.leave_waiting(if permitted { PASSED } else { TOO_LATE }).is_ok() && permitted
    }

    fn leave_waiting(&self, state: u8) -> Result<(), u8> {
        self.state.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// The last byte may not go out.
#[derive(Debug, thiserror::Error)]
#[error("the request was withdrawn before its last byte")]
pub(super) struct Withdrawn;

/// A body in two pieces: all but the last byte, and that byte.
#[derive(Debug)]
pub(super) struct DecisiveBody {
    beginning: Bytes,
    last: Bytes,
    /// Whether the connection had an occasion to write the beginning before it is asked for the last byte.
    paused: bool,
    gate: Arc<Gate>,
}

impl DecisiveBody {
    /// A body that needs `gate` to be open for its last byte.
    pub(super) fn new(mut whole: Bytes, gate: Arc<Gate>) -> Self {
        let last = whole.split_off(whole.len().saturating_sub(1));
        Self { beginning: whole, last: Bytes::from_owner(LastByte(last)), paused: false, gate }
    }
}

impl Body for DecisiveBody {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        let body = self.get_mut();
        if !body.beginning.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut body.beginning)))));
        }
        if body.last.is_empty() {
            return Poll::Ready(None);
        }
        // A connection that is told to wait writes what it has. This one is woken at once.
        if !std::mem::replace(&mut body.paused, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        rehearsal::reach(Step::Connected);
        if !body.gate.pass() {
            return Poll::Ready(Some(Err(Withdrawn)));
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut body.last)))))
    }

    fn is_end_stream(&self) -> bool {
        self.beginning.is_empty() && self.last.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let bytes = self.beginning.len().saturating_add(self.last.len());
        SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Tells when the connection lets go of the last byte: over plain HTTP/1.1 the operating system has it then, over TLS
/// or HTTP/2 the layer that encrypts or frames it, which writes it on in the same breath. It also lets go of a byte
/// that never went out, which only makes an exercise die a little elsewhere.
struct LastByte(Bytes);

impl AsRef<[u8]> for LastByte {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for LastByte {
    fn drop(&mut self) {
        rehearsal::reach(Step::RequestWritten);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;
    use crate::provider::fixtures;

    fn gate_of(lease: Duration, limit: Duration) -> Arc<Gate> {
        Arc::new(Gate::new(fixtures::lease_of(lease), Instant::now() + limit))
    }

    fn open_gate() -> Arc<Gate> {
        gate_of(Duration::from_secs(600), Duration::from_secs(60))
    }

    fn poll(body: &mut DecisiveBody) -> Poll<Option<Result<Bytes, ()>>> {
        let frame = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()).map_err(drop)))
    }

    /// A body of which only the last byte is left, and the connection had its pause.
    fn before_the_last_byte(gate: &Arc<Gate>) -> DecisiveBody {
        let mut body = DecisiveBody::new(Bytes::from_static(b"{..}"), Arc::clone(gate));
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(Bytes::from_static(b"{..")))));
        assert_eq!(poll(&mut body), Poll::Pending);
        assert_eq!(body.size_hint().exact(), Some(1));
        body
    }

    #[test]
    fn the_last_byte_comes_alone_after_a_pause_and_ends_the_body() {
        let gate = open_gate();
        let mut body = before_the_last_byte(&gate);
        assert!(!body.is_end_stream());
        assert_eq!(poll(&mut body), Poll::Ready(Some(Ok(Bytes::from_static(b"}")))));
        assert!(body.is_end_stream());
        assert_eq!(poll(&mut body), Poll::Ready(None));
        assert_eq!(gate.close(), Fate::Passed);
        assert_eq!(gate.close(), Fate::Passed);
    }

    #[test]
    fn a_closed_gate_lets_nothing_pass_any_more() {
        let gate = open_gate();
        let mut body = before_the_last_byte(&gate);
        assert_eq!(gate.close(), Fate::Kept);
        assert_eq!(poll(&mut body), Poll::Ready(Some(Err(()))));
        assert_eq!(gate.close(), Fate::Kept);
    }

    #[test]
    fn a_second_body_cannot_pass_the_same_gate() {
        let gate = open_gate();
        let (mut first, mut second) = (before_the_last_byte(&gate), before_the_last_byte(&gate));
        assert!(matches!(poll(&mut first), Poll::Ready(Some(Ok(_)))));
        assert_eq!(poll(&mut second), Poll::Ready(Some(Err(()))));
        assert_eq!(gate.close(), Fate::Passed);
    }

    #[test]
    fn nothing_passes_when_the_answer_could_outlive_the_lease_or_nobody_waits_for_it() {
        for (lease, limit) in [(30, 60), (600, 0)] {
            let gate = gate_of(Duration::from_secs(lease), Duration::from_secs(limit));
            let mut body = before_the_last_byte(&gate);
            assert_eq!(poll(&mut body), Poll::Ready(Some(Err(()))));
            assert_eq!(gate.close(), Fate::TooLate);
        }
    }
}
