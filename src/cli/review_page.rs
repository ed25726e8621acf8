//! How the outcome of decisions is shown.

use std::fmt;

use serde::Serialize;

use super::layout::count;
use super::review::refusal;
use crate::identity::ReceiptKey;
use crate::ledger::ReviewAnswer;
use crate::receipt::State;

/// As many refusals are shown to people; programs get all.
const SHOWN: usize = 20;

/// What became of one decision about one or many receipts.
#[derive(Debug, Serialize)]
pub(super) struct Decided {
    #[serde(skip)]
    done: &'static str,
    dry_run: bool,
    decided: u64,
    /// The state of the last receipt that was decided about.
    #[serde(skip)]
    state: Option<&'static str>,
    /// Those that were left as they are.
    pub(super) refused: Vec<Refused>,
}

/// A receipt that was left as it is, and why.
#[derive(Debug, Serialize)]
pub(super) struct Refused {
    receipt_key: String,
    reason: String,
}

impl Decided {
    /// Nothing decided yet; `done` says in words what a decision does.
    pub(super) fn new(done: &'static str, dry_run: bool) -> Self {
        Self { done, dry_run, decided: 0, state: None, refused: Vec::new() }
    }

    /// Counts an answer.
    pub(super) fn count(&mut self, key: &ReceiptKey, answer: &ReviewAnswer) {
        match (refusal(answer), answer) {
            (Some(reason), _) => self.refused.push(Refused { receipt_key: key.to_string(), reason }),
            (None, ReviewAnswer::Recorded(state)) => {
                self.decided += 1;
                self.state = Some(state.as_str());
            }
            (None, _) => {}
        }
    }
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.decided == 0 && self.refused.is_empty() {
            return writeln!(f, "no receipt matches");
        }
        let would = if self.dry_run { " (dry run, nothing recorded)" } else { "" };
        let noun = if self.decided == 1 { "receipt" } else { "receipts" };
        writeln!(f, "{} {noun} {}{would}", count(self.decided), self.done)?;
        for refused in self.refused.iter().take(SHOWN) {
            writeln!(f, "  {:.12}  left as it is: {}", refused.receipt_key, refused.reason)?;
        }
        if self.refused.len() > SHOWN {
            writeln!(f, "  and {} more left as they are", count((self.refused.len() - SHOWN) as u64))?;
        }
        if self.state == Some(State::Retryable.as_str()) && !self.dry_run {
            writeln!(f, "\n-> counterfoil run")?;
        }
        Ok(())
    }
}
