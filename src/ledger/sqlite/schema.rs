//! Migrations, all pending ones in one transaction that holds the write lock.

use sqlx::migrate::Migrator;

use super::{SqliteLedger, rows};
use crate::ledger::failure::Try;
use crate::ledger::schema::{failed, needed, refuse_newer, refuse_other};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

const HAS_VERSIONS: &str = "SELECT count(*) > 0 FROM sqlite_schema WHERE name = '_sqlx_migrations'";

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";

async fn found(connection: &mut sqlx::SqliteConnection) -> Try<i64> {
    let (has_versions,): (bool,) = rows(HAS_VERSIONS).fetch_one(&mut *connection).await?;
    if !has_versions {
        return Ok(0);
    }
    let (version,): (i64,) = rows(VERSION).fetch_one(connection).await?;
    Ok(version)
}

pub(super) async fn migrate(ledger: &SqliteLedger) -> Try<()> {
    let mut transaction = ledger.write().await?;
    let version = found(&mut transaction).await?;
    refuse_newer(version, &MIGRATIONS)?;
    if version < needed(&MIGRATIONS) {
        let mut migrator = Migrator { migrations: MIGRATIONS.migrations.clone(), ..Migrator::DEFAULT };
        migrator.set_locking(false);
        migrator.run_direct(None, &mut *transaction, false).await.map_err(failed)?;
    }
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn check(ledger: &SqliteLedger) -> Try<()> {
    let mut transaction = ledger.read().await?;
    let version = found(&mut transaction).await?;
    transaction.commit().await?;
    Ok(refuse_other(version, &MIGRATIONS)?)
}
