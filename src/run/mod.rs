//! The weekly run: the only place that talks both to a ledger and to a provider. Whatever it decides, it decides
//! by calling the pure functions of [`crate::receipt`]; it holds no SQL, no JSON shapes and no templates.
//!
//! One way for every row: a part is taken, its keys and fingerprints are computed, the ledger is looked at, what
//! may be claimed is claimed in batches, granted rows are rendered, sent and settled. Retries go the same way: a
//! part with something due is simply taken again. What may have been accepted is looked up first where the provider
//! can be asked.

mod attempt;
mod begun;
mod brake;
mod clock;
mod destination;
mod engine;
mod guards;
mod lookup;
mod observe;
mod only_unsent;
mod pace;
mod part;
mod progress;
mod queue;
mod refusal;
mod report;
mod request;
mod restored;
mod rounds;
mod sources;
mod suppression;

pub use clock::Clock;
pub use destination::{Destinations, build as provider_of};
pub use engine::{Setup, run, work};
pub use guards::{digest_config, same_identity};
pub use progress::Progress;
pub use refusal::Refusal;
pub use report::{Ending, Outcomes, RunReport, RunSummary, SnapshotCounts, WaitsFor};
pub use request::{RunRequest, SnapshotSource, WorkRequest};
pub use restored::LedgerLoss;
pub use sources::{bundle, seal_error, snapshot};

use crate::ledger::LedgerError;
use crate::snapshot::StoreError;

/// Why a run could not go on. What was settled before stays settled.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Refused before anything was claimed; the message says what to do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The snapshot store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A destination's credentials, sender identity or account are wrong. No receipt was charged.
    #[error("destination `{destination}` cannot be used: {problem}")]
    Misconfigured {
        /// Its name.
        destination: String,
        /// What the provider said, in our words.
        problem: String,
    },
    /// The suppression list could not be read, so nothing was sent.
    #[error("the suppression list cannot be read; what was claimed was given back, and nothing more was sent")]
    SuppressionList(#[source] LedgerError),
    /// A sealed row cannot be read back.
    #[error("snapshot {snapshot} holds a row that cannot be read (part {part}): {reason}")]
    SealedRow {
        /// Id of the snapshot.
        snapshot: String,
        /// Number of the part.
        part: u32,
        /// Without content.
        reason: String,
    },
    /// No number can be drawn that tells this worker from all others.
    #[error("the operating system has no random numbers; nothing more was claimed")]
    NoRandomness,
    /// A task of ours ended without a result.
    #[error("an internal task ended early; what was claimed is settled by the next run")]
    Internal,
}

impl RunError {
    /// Whether another run may go on: what is wrong is wrong with this run's settings, snapshot or pins only.
    fn is_about_its_run_alone(&self) -> bool {
        match self {
            Self::Refused(_) | Self::SealedRow { .. } => true,
            Self::Store(error) => !error.is_out_of_reach(),
            Self::Ledger(_)
            | Self::Misconfigured { .. }
            | Self::SuppressionList(_)
            | Self::NoRandomness
            | Self::Internal => false,
        }
    }
}
