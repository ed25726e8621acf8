//! Connections between messages. The one used last is used first, so that the others grow old and are closed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::session::{Condition, Connection};

/// Servers hang up on idle clients after a few minutes; before that we do.
const LONGEST_IDLE: Duration = Duration::from_secs(60);

/// Idle connections. There are never more than sends at the same time, which the caller bounds.
pub(super) struct Idle {
    longest_idle: Duration,
    connections: Mutex<Vec<(Instant, Connection)>>,
}

impl Default for Idle {
    fn default() -> Self {
        Self { longest_idle: LONGEST_IDLE, connections: Mutex::default() }
    }
}

impl Idle {
    /// The connection that became idle last, unless the server has said something since or hung up: nothing that it
    /// could say now is an answer to us.
    pub(super) async fn take(&self) -> Option<Connection> {
        while let Some(mut connection) = self.pop() {
            if !connection.wire.has_unread().await {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection that may be used again; closes any other.
    pub(super) fn put(&self, connection: Connection) {
        if connection.condition != Condition::Spent {
            self.young().push((Instant::now(), connection));
        }
    }

    fn pop(&self) -> Option<Connection> {
        self.young().pop().map(|(_, connection)| connection)
    }

    /// The connections, without those that were idle for too long.
    fn young(&self) -> MutexGuard<'_, Vec<(Instant, Connection)>> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|(since, _)| since.elapsed() < self.longest_idle);
        connections
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::provider::smtp::offers::Offers;
    use crate::provider::smtp::wire::Wire;

    /// An open connection that offers what tells it apart, and the server's end of it.
    fn connection(dsn: bool) -> (Connection, DuplexStream) {
        let (ours, theirs) = duplex(64);
        let wire = Wire::new(Box::new(ours), Duration::from_secs(1));
        let offers = Offers { dsn, ..Offers::default() };
        (Connection { wire, offers, condition: Condition::Clean, protection: None }, theirs)
    }

    #[tokio::test]
    async fn the_last_one_used_is_used_first() {
        let idle = Idle::default();
        let ((first, _first_end), (last, _last_end)) = (connection(false), connection(true));
        idle.put(first);
        idle.put(last);
        assert!(idle.take().await.is_some_and(|connection| connection.offers.dsn));
        assert!(idle.take().await.is_some_and(|connection| !connection.offers.dsn));
        assert!(idle.take().await.is_none());
    }

    #[tokio::test]
    async fn one_that_was_idle_for_too_long_goes() {
        let idle = Idle { longest_idle: Duration::ZERO, ..Idle::default() };
        let (old, _end) = connection(false);
        idle.put(old);
        assert!(idle.take().await.is_none());
    }

    #[tokio::test]
    async fn one_that_hung_up_or_said_something_is_not_used() {
        let idle = Idle::default();
        let ((gone, gone_end), (talkative, mut talkative_end)) = (connection(false), connection(false));
        drop(gone_end);
        talkative_end.write_all(b"421 4.4.2 bye\r\n").await.unwrap();
        idle.put(gone);
        idle.put(talkative);
        assert!(idle.take().await.is_none());
    }

    #[tokio::test]
    async fn one_that_is_out_of_step_is_not_kept() {
        let idle = Idle::default();
        let (mut spent, _end) = connection(false);
        spent.condition = Condition::Spent;
        idle.put(spent);
        assert!(idle.take().await.is_none());
    }
}
