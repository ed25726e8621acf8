//! `migrate`: brings the ledger's schema up to date.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::{Exit, Failure, Session, open};

/// Bring the ledger's schema up to date
///
/// Safe at any time and from several processes at once. `run` does it too, unless ledger.auto_migrate is false.
#[derive(Debug, Args)]
pub(super) struct MigrateArguments {}

#[derive(Serialize)]
struct Migrated {
    migrated: bool,
}

impl fmt::Display for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the ledger's schema is up to date")
    }
}

/// Migrates.
pub(super) async fn migrate(session: &Session, _: &MigrateArguments) -> Result<Exit, Failure> {
    let config = session.load()?;
    open::ledger(&config).await?.migrate().await?;
    session.output.result(&Migrated { migrated: true })?;
    Ok(Exit::Settled)
}
