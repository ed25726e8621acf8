//! The ledger's clock, followed on this process's monotonic clock, so that decisions here and guards there agree
//! even where the host's wall clock is wrong.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{self, Ledger};

/// The ledger's clock as of one reading.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    reading: Timestamp,
    read_at: Instant,
}

impl Clock {
    /// Reads the ledger's clock once.
    ///
    /// # Errors
    /// When the ledger is out of reach.
    pub async fn read(ledger: &dyn Ledger) -> ledger::Result<Self> {
        let read_at = Instant::now();
        Ok(Self { reading: ledger.now().await?, read_at })
    }

    /// The ledger's time now.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.read_at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.reading.saturating_add(elapsed).unwrap_or(self.reading)
    }
}
