//! The states, the reasons for being in one, and the kinds of event, with the words that the ledger stores.

/// An enum whose values have one stored word each.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$value_doc])* $value),+ }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$value),+];

            /// The word that the ledger stores and commands show.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }

            /// The value of a stored word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Where a receipt stands.
    State {
        /// One worker may make one attempt, or one look, until the lease ends; then the claim is ambiguous.
        Claimed = "claimed",
        /// The provider accepted it. Final.
        Sent = "sent",
        /// May be tried at its next attempt time.
        Retryable = "retryable",
        /// Ambiguous, and neither lookup nor replay can decide: a person must.
        Held = "held",
        /// Not sent and not tried again; the reason says why.
        Failed = "failed",
        /// One key, two fingerprints.
        Quarantined = "quarantined",
        /// The recipient is on our list or on the provider's.
        Suppressed = "suppressed",
    }
}

words! {
    /// Why a receipt is in its state.
    Reason {
        /// `failed`: the provider refused the message for good.
        Rejected = "rejected",
        /// `failed`: the row could not be rendered.
        RenderError = "render_error",
        /// `failed`: every attempt that the destination allows was spent.
        AttemptsExhausted = "attempts_exhausted",
        /// `failed`: the next attempt would come too late to be of use.
        DeadlinePassed = "deadline_passed",
        /// `failed`: another content version took its place.
        Superseded = "superseded",
        /// `failed`: a person decided so.
        Discarded = "discarded",
        /// `held`: the destination can neither look up nor replay.
        Undecidable = "undecidable",
        /// `held` or `retryable`: the ledger was restored from an older copy and may have forgotten that it was sent.
        LedgerRestored = "ledger_restored",
        /// `held`: the destination now points at another account than the ambiguous attempt went to.
        DestinationChanged = "destination_changed",
        /// `held`: the replay window, counted from the first attempt, is over.
        ReplayWindowOver = "replay_window_over",
        /// `held`: the provider says that it holds another payload under this key. `retryable` where it can be asked
        /// what became of that.
        OtherPayload = "other_payload",
        /// `held`: a replay was refused, which says nothing about the first attempt.
        ReplayRefused = "replay_refused",
        /// `held`: looking up failed or could not tell, as often as allowed. `retryable` before that.
        LookupFailed = "lookup_failed",
        /// `held`: the provider knows nothing of the attempt, but no longer remembers attempts as old as it.
        LookupRetentionOver = "lookup_retention_over",
        /// `held`: attempts or time ran out while an attempt was still ambiguous.
        OutOfTries = "out_of_tries",
        /// `quarantined`: one key, two fingerprints.
        Conflict = "conflict",
        /// `suppressed`: on our own list.
        OnOurList = "on_our_list",
        /// `suppressed`: on the provider's list.
        OnProviderList = "on_provider_list",
        /// `retryable`: the provider asked to slow down.
        Throttled = "throttled",
        /// `retryable`: certainly not accepted, the provider was out of reach.
        Unavailable = "unavailable",
        /// `retryable`: certainly not accepted, this recipient was put off.
        Deferred = "deferred",
        /// `retryable`: an earlier request under this key is still running at the provider.
        KeyInUse = "key_in_use",
        /// `retryable`: the attempt may have been accepted.
        Ambiguous = "ambiguous",
        /// `retryable`: the provider knows nothing of the attempt yet; it is asked again.
        Absent = "absent",
        /// `retryable`: the provider has said often enough that no attempt was accepted; another one may be made.
        ConfirmedAbsent = "confirmed_absent",
        /// `retryable`: the claim's lease ended before its outcome was known.
        LeaseEnded = "lease_ended",
        /// `retryable`: claimed, then given back unstarted.
        GivenBack = "given_back",
        /// `retryable`: a person asked for it.
        Requested = "requested",
    }
}

words! {
    /// What an event records.
    EventKind {
        /// A grant whose claim is recorded by itself. Usually the event that ends the claim carries it.
        Claim = "claim",
        /// The outcome of an attempt, recorded by the worker that held the grant.
        Settle = "settle",
        /// A grant returned before anything was sent.
        GiveBack = "give_back",
        /// A lease that ended without an outcome.
        LeaseEnd = "lease_end",
        /// An outcome that came after its grant was no longer the current one.
        LateSettle = "late_settle",
        /// What the provider said about an earlier attempt.
        Lookup = "lookup",
        /// Another fingerprint was presented under this key.
        Conflict = "conflict",
        /// A person's decision.
        Review = "review",
        /// Two accepted sends under one key.
        DoubleAccept = "double_accept",
    }
}
