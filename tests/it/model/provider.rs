//! The provider at the other end: how many messages it accepted under the key, and which keys it remembers.

use counterfoil::receipt::{Capabilities, Lookup, Replay};
use jiff::SignedDuration;

use super::world::{Guard, TICK_SECONDS, Tick};

/// How long the provider that forgets remembers a key, from the request that it accepted.
const REMEMBERS: Tick = 3;
/// The longest from the last check to the arrival of the bytes. The program takes it off that window.
pub(super) const MARGIN: Tick = 1;
/// How long after its acceptance a message shows in the lookup.
const LAG: Tick = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A repeated key gets the first answer for ever.
    ReplaysAlways,
    /// A repeated key gets the first answer for a while, then counts as new.
    ReplaysForAWhile,
    /// Every request is new, and nobody can be asked about an earlier one.
    KnowsNoKeys,
    /// Every request is new; a lookup shows what was accepted, after a while.
    LooksUp,
    /// The same, with a lookup that may once miss what it should show: only two misses are certain.
    LooksUpTwice,
    /// A lookup that lags, and a repeated key gets the first answer for ever.
    LooksUpAndReplays,
}

/// What the provider did under the key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Account {
    /// Messages accepted; a replay is none.
    pub(super) accepted: u8,
    remembered_since: Option<Tick>,
    /// When the lookup shows the first of them.
    shows_at: Option<Tick>,
    /// Looks that miss what they should show.
    pub(super) misses_left: u8,
}

impl Kind {
    /// The last instant at which an attempt is of use: late enough for one that follows upon what became of the first.
    pub(super) fn deadline(self) -> Tick {
        match self {
            Self::ReplaysForAWhile => REMEMBERS,
            Self::ReplaysAlways | Self::KnowsNoKeys => 1,
            Self::LooksUp | Self::LooksUpAndReplays => MARGIN + self.settle(),
            Self::LooksUpTwice => 2 * self.settle(),
        }
    }

    /// The instant that stands for all that follow: nothing is under way any more, and the lookup shows everything.
    pub(super) fn end_of_time(self) -> Tick {
        self.deadline() + if self.looks_up() { self.arrives_within() + LAG } else { 1 }
    }

    pub(super) fn looks_up(self) -> bool {
        matches!(self, Self::LooksUp | Self::LooksUpTwice | Self::LooksUpAndReplays)
    }

    /// Whether it matters when bytes arrive: where a window ends, and where somebody may have looked before.
    pub(super) fn arrival_matters(self) -> bool {
        self == Self::ReplaysForAWhile || self.looks_up()
    }

    /// The longest from the last check to the arrival of the bytes.
    pub(super) fn arrives_within(self) -> Tick {
        if self == Self::LooksUpTwice { 0 } else { MARGIN }
    }

    /// From an attempt's end until it certainly shows: bytes may be under way still when their worker gives up.
    fn settle(self) -> Tick {
        self.arrives_within() + LAG
    }

    /// What the program is told about this provider.
    pub(super) fn capabilities(self) -> Capabilities {
        let span = |ticks: Tick| SignedDuration::from_secs(i64::from(ticks) * TICK_SECONDS);
        let misses = if self == Self::LooksUpTwice { 2 } else { 1 };
        Capabilities {
            replay: match self {
                Self::ReplaysAlways | Self::LooksUpAndReplays => Replay::Always,
                Self::ReplaysForAWhile => Replay::Within(span(REMEMBERS - MARGIN)),
                Self::KnowsNoKeys | Self::LooksUp | Self::LooksUpTwice => Replay::Never,
            },
            lookup: self.looks_up().then(|| Lookup { settle: span(self.settle()), misses, retention: None }),
        }
    }
}

impl Account {
    /// Nothing has happened under the key.
    pub(super) fn of(kind: Kind) -> Self {
        Self { misses_left: u8::from(kind == Kind::LooksUpTwice), ..Self::default() }
    }

    pub(super) fn remembers(&self, kind: Kind, now: Tick) -> bool {
        self.remembered_since.is_some_and(|since| match kind {
            Kind::ReplaysAlways | Kind::LooksUpAndReplays => true,
            Kind::ReplaysForAWhile => now - since < REMEMBERS,
            Kind::KnowsNoKeys | Kind::LooksUp | Kind::LooksUpTwice => false,
        })
    }

    /// Whether the lookup shows that a message was accepted.
    pub(super) fn shows(&self, now: Tick) -> bool {
        self.shows_at.is_some_and(|at| at <= now)
    }

    /// Forgets what makes no difference any more.
    pub(super) fn forget_the_past(&mut self, now: Tick) {
        if self.shows(now) {
            self.shows_at = Some(0);
        }
    }

    /// Accepts a message, or answers as before where the key is remembered. Answers the reference.
    pub(super) fn accept(&mut self, kind: Kind, now: Tick, broken: &[Guard]) -> String {
        if !self.remembers(kind, now) || broken.contains(&Guard::ProviderReplays) {
            self.accepted += 1;
            self.remembered_since = match kind {
                Kind::ReplaysAlways | Kind::LooksUpAndReplays => Some(0),
                Kind::ReplaysForAWhile => Some(now),
                Kind::KnowsNoKeys | Kind::LooksUp | Kind::LooksUpTwice => None,
            };
            if kind.looks_up() {
                self.shows_at = self.shows_at.or(Some((now + LAG).min(kind.end_of_time())));
            }
        }
        self.accepted.to_string()
    }
}
