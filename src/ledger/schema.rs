//! Which schema version a ledger has against the one that this program needs.

use sqlx::migrate::{MigrateError, Migrator};

use super::{LedgerError, Result};

/// Version of the newest migration in the program.
pub(super) fn needed(migrations: &Migrator) -> i64 {
    migrations.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Refuses a ledger that is newer than the program: an older program must not write into it.
pub(super) fn refuse_newer(found: i64, migrations: &Migrator) -> Result<()> {
    let needed = needed(migrations);
    if found > needed {
        return Err(LedgerError::Schema { found, needed, hint: "use a program at least as new as the ledger" });
    }
    Ok(())
}

/// Refuses a ledger that is not exactly as new as the program.
pub(super) fn refuse_other(found: i64, migrations: &Migrator) -> Result<()> {
    refuse_newer(found, migrations)?;
    let needed = needed(migrations);
    if found < needed {
        return Err(LedgerError::Schema { found, needed, hint: "run `counterfoil migrate`" });
    }
    Ok(())
}

/// What a failed migration means.
pub(super) fn failed(error: MigrateError) -> super::failure::Failure {
    match error {
        MigrateError::Execute(error) => error.into(),
        other => LedgerError::Migration(other).into(),
    }
}
