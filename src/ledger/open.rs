//! Which ledger a URL means.

use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use secrecy::{ExposeSecret as _, SecretString};

use super::postgres::PostgresLedger;
use super::sqlite::SqliteLedger;
use super::{Ledger, LedgerError, Result};

/// Opens the ledger that `url` names, without touching its schema. `sqlite://` is followed by an absolute path,
/// whose file is made (readable for its owner only) where it does not exist; `postgres://` and `postgresql://`
/// are libpq's URLs. `clock_offset` is added to the database's clock; zero outside tests.
///
/// # Errors
/// [`LedgerError::Url`] for any other URL, [`LedgerError::Unreachable`] where nothing answers.
pub async fn open(url: &SecretString, clock_offset: SignedDuration) -> Result<Arc<dyn Ledger>> {
    let url = url.expose_secret();
    if let Some(path) = url.strip_prefix("sqlite://") {
        if path.is_empty() || path.contains('?') {
            return Err(LedgerError::Url);
        }
        return Ok(Arc::new(SqliteLedger::open(Path::new(path), clock_offset).await?));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(PostgresLedger::open(url, clock_offset).await?));
    }
    Err(LedgerError::Url)
}
