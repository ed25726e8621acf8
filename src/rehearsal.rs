//! Rehearsals: a process that ends itself at a named step, as a crash would, so that exercises and tests can die at
//! every boundary. Refused where `environment` is `production`. Nothing is decided here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The boundaries between steps at which a process can be made to die, in the order of a row's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A batch of claims is about to be asked for.
    BeforeClaim,
    /// It was committed.
    AfterClaim,
    /// A granted batch is about to be rendered.
    BeforeRender,
    /// It is rendered, nothing of it was sent.
    AfterRender,
    /// An attempt is about to begin, so that a connection may be made for it.
    BeforeSend,
    /// The provider has all but the decisive bytes.
    Connected,
    /// All that can be accepted was handed to the operating system.
    RequestWritten,
    /// The provider's answer was read; nobody else knows it.
    AnswerReceived,
    /// A batch of outcomes is about to be recorded.
    BeforeSettle,
    /// It was committed.
    AfterSettle,
    /// A doubtful attempt is about to be looked up.
    BeforeLookup,
    /// The provider has told what it knows; it is not recorded.
    AfterLookup,
    /// A part is about to be let go.
    BeforePartEnd,
    /// It was let go.
    AfterPartEnd,
    /// A run is about to be closed.
    BeforeRunClose,
    /// It was closed.
    AfterRunClose,
}

impl Step {
    /// Every step, in the order of a row's way.
    pub const ALL: &[Self] = &[
        Self::BeforeClaim,
        Self::AfterClaim,
        Self::BeforeRender,
        Self::AfterRender,
        Self::BeforeSend,
        Self::Connected,
        Self::RequestWritten,
        Self::AnswerReceived,
        Self::BeforeSettle,
        Self::AfterSettle,
        Self::BeforeLookup,
        Self::AfterLookup,
        Self::BeforePartEnd,
        Self::AfterPartEnd,
        Self::BeforeRunClose,
        Self::AfterRunClose,
    ];

    /// The word that names it in `COUNTERFOIL_TEST_DIE_AT`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeClaim => "before_claim",
            Self::AfterClaim => "after_claim",
            Self::BeforeRender => "before_render",
            Self::AfterRender => "after_render",
            Self::BeforeSend => "before_send",
            Self::Connected => "connected",
            Self::RequestWritten => "request_written",
            Self::AnswerReceived => "answer_received",
            Self::BeforeSettle => "before_settle",
            Self::AfterSettle => "after_settle",
            Self::BeforeLookup => "before_lookup",
            Self::AfterLookup => "after_lookup",
            Self::BeforePartEnd => "before_part_end",
            Self::AfterPartEnd => "after_part_end",
            Self::BeforeRunClose => "before_run_close",
            Self::AfterRunClose => "after_run_close",
        }
    }

    /// The step of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|step| step.as_str() == word)
    }
}

/// Where a process dies: at a step, when it comes there for the `visit`th time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// The step.
    pub step: Step,
    /// 1 is the first time.
    pub visit: u32,
}

impl Death {
    /// Reads `step` or `step:visit`; `None` where it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, visit) = text.split_once(':').unwrap_or((text, "1"));
        let visit = visit.parse().ok().filter(|visit| *visit > 0)?;
        Some(Self { step: Step::from_word(word)?, visit })
    }
}

static DEATH: OnceLock<Death> = OnceLock::new();
static VISITS: AtomicU32 = AtomicU32::new(0);

/// Lets this process die there. Without effect where it was told before.
pub fn arm(death: Death) {
    DEATH.get_or_init(|| death);
}

/// Comes to a step, and dies there if that was asked for: without unwinding, so that nothing is tidied up.
pub fn reach(step: Step) {
    let Some(death) = DEATH.get().filter(|death| death.step == step) else { return };
    if VISITS.fetch_add(1, Ordering::Relaxed) + 1 >= death.visit {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_word_of_its_own() {
        for step in Step::ALL {
            assert_eq!(Step::from_word(step.as_str()), Some(*step));
        }
    }

    #[test]
    fn a_death_is_a_step_and_a_visit_from_one() {
        assert_eq!(Death::parse("after_claim"), Some(Death { step: Step::AfterClaim, visit: 1 }));
        assert_eq!(Death::parse("after_claim:3"), Some(Death { step: Step::AfterClaim, visit: 3 }));
        for text in ["", "claim", "after_claim:0", "after_claim:", "after_claim:x", ":1"] {
            assert_eq!(Death::parse(text), None, "{text}");
        }
    }
}
