//! What tells a ledger that is what it was from one that was restored from an older copy. No SQL, no decision.

use jiff::Timestamp;

/// What a database says about itself; `None` where it does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatabaseMark {
    /// Tells it from its copies.
    pub identity: Option<String>,
    /// Changes when another server takes over, or an older state is restored.
    pub timeline: Option<String>,
}

impl DatabaseMark {
    /// Whether both tell, and tell different things.
    pub fn differs_from(&self, other: &Self) -> bool {
        let differ =
            |ours: &Option<String>, theirs: &Option<String>| ours.is_some() && theirs.is_some() && ours != theirs;
        differ(&self.identity, &other.identity) || differ(&self.timeline, &other.timeline)
    }
}

/// How far a run may rely on what the ledger does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrust {
    /// Tells this ledger from another one.
    pub ledger_id: String,
    /// The database that the run knows.
    pub known: DatabaseMark,
    /// The database that answers.
    pub answering: DatabaseMark,
    /// Whether rows without a receipt are claimed: not any more once a person has closed the run.
    pub takes_new: bool,
    /// When its owner accepted a loss.
    pub loss_accepted_at: Option<Timestamp>,
    /// Visits that the ledger remembers.
    pub visits: u32,
    /// The parts that were asked for.
    pub parts: Vec<PartTrust>,
}

/// A part of a run as the ledger knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartTrust {
    /// Its number.
    pub part: u32,
    /// Whether the ledger remembers that its marker was to be written.
    pub marked: bool,
    /// Whether it is done.
    pub done: bool,
    /// Set where rows without a receipt may have been sent, at this instant at the earliest.
    pub doubted_since: Option<Timestamp>,
}
