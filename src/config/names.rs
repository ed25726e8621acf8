//! The name of every setting that is not a provider kind's own. Loader and environment read the same lists.

/// Settings and tables outside any table.
pub(super) const ROOT: &[&str] = &[
    "environment",
    "time_zone",
    "templates",
    "ledger",
    "keyring",
    "store",
    "digest",
    "destination",
    "run",
    "rollout",
    "retention",
];

/// `[ledger]`
pub(super) const LEDGER: &[&str] = &["url", "auto_migrate"];

/// `[keyring]`
pub(super) const KEYRING: &[&str] = &["path"];

/// `[store]`
pub(super) const STORE: &[&str] = &["url"];

/// `[digest.<type>]`
pub(super) const DIGEST: &[&str] = &[
    "content_version",
    "destination",
    "from",
    "unsubscribe",
    "send_within",
    "max_row_change",
    "max_conflicts",
    "max_rejected",
];

/// `[destination.<name>]`, for every kind of provider.
pub(super) const DESTINATION: &[&str] = &[
    "provider",
    "rate",
    "concurrency",
    "max_attempts",
    "send_timeout",
    "lease",
    "on_ambiguous",
    "backoff",
    "keep_provider_text",
];

/// `backoff = { … }` of a destination.
pub(super) const BACKOFF: &[&str] = &["base", "cap"];

/// `[run]`
pub(super) const RUN: &[&str] = &["max_in_flight", "wait"];

/// `[rollout]`
pub(super) const ROLLOUT: &[&str] = &["mode", "cohort"];

/// `[retention]`
pub(super) const RETENTION: &[&str] = &["replay_horizon", "receipts", "snapshots"];

/// The tables that stand directly in the file, with their settings.
pub(super) const SECTIONS: &[(&str, &[&str])] = &[
    ("ledger", LEDGER),
    ("keyring", KEYRING),
    ("store", STORE),
    ("run", RUN),
    ("rollout", ROLLOUT),
    ("retention", RETENTION),
];

/// Names that a secret would stand under in a destination. A file that `<name>_file` names holds it instead.
pub(super) const SECRETS: &[&str] = &["password", "secret", "token", "api_key"];
