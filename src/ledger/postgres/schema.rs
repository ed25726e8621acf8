//! Migrations, all pending ones in one transaction under a lock that ends with it.

use sqlx::migrate::Migrator;

use super::{PostgresLedger, rows, statement};
use crate::ledger::failure::Try;
use crate::ledger::schema::{failed, needed, refuse_newer, refuse_other};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// One process migrates, the others wait and find it done.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7236837463829104)";

/// The migrator names its statements; names would outlive the transaction on a pooled server connection.
const FORGET_STATEMENTS: &str = "DEALLOCATE ALL";

const HAS_VERSIONS: &str = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";

async fn found(connection: &mut sqlx::PgConnection) -> Try<i64> {
    let (has_versions,): (bool,) = rows(HAS_VERSIONS).fetch_one(&mut *connection).await?;
    if !has_versions {
        return Ok(0);
    }
    let (version,): (i64,) = rows(VERSION).fetch_one(connection).await?;
    Ok(version)
}

pub(super) async fn migrate(ledger: &PostgresLedger) -> Try<()> {
    let mut transaction = ledger.write().await?;
    statement(LOCK).execute(&mut *transaction).await?;
    let version = found(&mut transaction).await?;
    refuse_newer(version, &MIGRATIONS)?;
    if version < needed(&MIGRATIONS) {
        sqlx::raw_sql(FORGET_STATEMENTS).execute(&mut *transaction).await?;
        let mut migrator = Migrator { migrations: MIGRATIONS.migrations.clone(), ..Migrator::DEFAULT };
        migrator.set_locking(false);
        migrator.run_direct(None, &mut *transaction, false).await.map_err(failed)?;
        sqlx::raw_sql(FORGET_STATEMENTS).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(())
}

pub(super) async fn check(ledger: &PostgresLedger) -> Try<()> {
    let mut transaction = ledger.read().await?;
    let version = found(&mut transaction).await?;
    transaction.commit().await?;
    Ok(refuse_other(version, &MIGRATIONS)?)
}
