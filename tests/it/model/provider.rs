//! The provider at the other end: how many messages it accepted under the key, and which keys it remembers.

use counterfoil::receipt::{Capabilities, Replay};
use jiff::SignedDuration;

use super::world::{Guard, TICK_SECONDS, Tick};

/// How long the provider that forgets remembers a key, from the request that it accepted.
const REMEMBERS: Tick = 3;
/// What the program takes off that window: the longest from the last check to the arrival of the bytes.
pub(super) const MARGIN: Tick = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A repeated key gets the first answer for ever.
    ReplaysAlways,
    /// A repeated key gets the first answer for a while, then counts as new.
    ReplaysForAWhile,
    /// Every request is new, and nobody can be asked about an earlier one.
    KnowsNoKeys,
}

impl Kind {
    /// The last instant at which an attempt is of use. Where no window ends, one step of time is as good as three.
    pub(super) fn deadline(self) -> Tick {
        if self == Self::ReplaysForAWhile { REMEMBERS } else { 1 }
    }
}

/// What the provider did under the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Account {
    /// Messages accepted; a replay is none.
    pub(super) accepted: u8,
    remembered_since: Option<Tick>,
}

impl Kind {
    /// What the program is told about this provider.
    pub(super) fn capabilities(self) -> Capabilities {
        let window = SignedDuration::from_secs(i64::from(REMEMBERS - MARGIN) * TICK_SECONDS);
        Capabilities {
            replay: match self {
                Self::ReplaysAlways => Replay::Always,
                Self::ReplaysForAWhile => Replay::Within(window),
                Self::KnowsNoKeys => Replay::Never,
            },
            lookup: None,
        }
    }
}

impl Account {
    pub(super) fn remembers(&self, kind: Kind, now: Tick) -> bool {
        self.remembered_since.is_some_and(|since| match kind {
            Kind::ReplaysAlways => true,
            Kind::ReplaysForAWhile => now - since < REMEMBERS,
            Kind::KnowsNoKeys => false,
        })
    }

    /// Accepts a message, or answers as before where the key is remembered. Answers the reference.
    pub(super) fn accept(&mut self, kind: Kind, now: Tick, broken: &[Guard]) -> String {
        if !self.remembers(kind, now) || broken.contains(&Guard::ProviderReplays) {
            self.accepted += 1;
            self.remembered_since = match kind {
                Kind::ReplaysAlways => Some(0),
                Kind::ReplaysForAWhile => Some(now),
                Kind::KnowsNoKeys => None,
            };
        }
        self.accepted.to_string()
    }
}
