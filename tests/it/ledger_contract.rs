//! What every ledger promises, run on SQLite and on PostgreSQL alike.
