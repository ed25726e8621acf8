//! Connections between messages. The one used last is used first, so that the others grow old and are closed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::session::{Condition, Connection};

/// Servers hang up on idle clients after a few minutes; before that we do.
const LONGEST_IDLE: Duration = Duration::from_secs(60);

/// Idle connections. There are never more than sends at the same time, which the caller bounds.
#[derive(Default)]
pub(super) struct Idle {
    connections: Mutex<Vec<(Instant, Connection)>>,
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
        connections.retain(|(since, _)| since.elapsed() < LONGEST_IDLE);
        connections
    }
}
