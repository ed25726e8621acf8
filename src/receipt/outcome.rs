//! What a provider's answer to one attempt means, in the only words that the rest of the program knows.

use jiff::{SignedDuration, Timestamp};

/// When a throttled destination may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// The provider named a span.
    In(SignedDuration),
    /// The provider named an instant.
    At(Timestamp),
    /// The provider named nothing usable: back off.
    Unspecified,
}

/// The answer to one send. Anything that cannot be proven not to have been accepted is [`Outcome::Ambiguous`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider took responsibility for the message.
    Accepted {
        /// The provider's own reference, such as a queue id.
        reference: String,
    },
    /// The provider will never take this message.
    Rejected {
        /// The provider's code, such as `550 5.1.1`.
        code: String,
        /// The provider's text; stored only where the destination keeps it.
        text: Option<String>,
    },
    /// The whole destination should slow down; this message was certainly not accepted.
    Throttled {
        /// When to come again.
        until: RetryAfter,
        /// The provider's code.
        code: String,
    },
    /// This recipient or message was put off; certainly not accepted, and the destination is well.
    Deferred {
        /// The provider's code.
        code: String,
    },
    /// Certainly not accepted: no connection, or an answer that proves it.
    Unavailable {
        /// A short class, such as `connect` or `503`.
        code: String,
    },
    /// The first request under this key is still running at the provider.
    KeyInUse {
        /// The provider's code.
        code: String,
    },
    /// The provider holds another payload under this key: an earlier request reached it.
    OtherPayload {
        /// The provider's code.
        code: String,
    },
    /// The provider does not send to this recipient any more.
    Suppressed {
        /// The provider's code.
        code: String,
    },
    /// May have been accepted.
    Ambiguous {
        /// A short class, such as `timeout_after_final_dot`.
        code: String,
    },
    /// Credentials, sender identity or account are wrong: the run stops and no receipt is charged.
    Misconfigured {
        /// What is wrong and which setting to look at; without secrets or addresses.
        problem: String,
    },
    /// Nothing that could be accepted was sent: the lease was too short, or the process is stopping.
    NotStarted,
}
