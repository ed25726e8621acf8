//! Which ledger a URL means.
