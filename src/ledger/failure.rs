//! What a failed statement means: go again, or give up with which error. Knows both databases' codes, no SQL.

use std::time::{Duration, Instant};

use super::LedgerError;

/// The outcome of one try of a verb.
pub(super) type Try<T> = std::result::Result<T, Failure>;

/// Why one try of a verb failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database or the way to it.
    Database(sqlx::Error),
    /// What it holds or how it was migrated.
    Ledger(LedgerError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

/// What may be done about a database's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The transaction was rolled back in favour of another one.
    Contention,
    /// The connection broke: whether the transaction was committed is unknown.
    Lost,
    /// The database cannot be reached now, and waiting has been tried.
    Unreachable,
    /// A repetition would fail in the same way.
    Final,
}

fn kind(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => Kind::Lost,
        sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Kind::Unreachable,
        sqlx::Error::Database(database) => match database.code().as_deref() {
            // Serialization failure, deadlock; SQLite's BUSY with its extended forms, and LOCKED.
            Some("40001" | "40P01" | "5" | "261" | "517" | "773" | "6") => Kind::Contention,
            // Shut down, crashed, starting up, connection failures.
            Some("57P01" | "57P02" | "57P03" | "08000" | "08003" | "08006" | "08007" | "08P01") => Kind::Lost,
            // Too many connections; not accepting us.
            Some("53300" | "08001" | "08004" | "28000" | "28P01" | "3D000") => Kind::Unreachable,
            // SQLite: I/O error, cannot open, disk full and their extended forms go this way too: a repetition
            // inside the same second does not mend them.
            _ => Kind::Final,
        },
        _ => Kind::Final,
    }
}

/// Whether a wait may mend it.
pub(super) fn passes(error: &sqlx::Error) -> bool {
    kind(error) == Kind::Contention
}

/// How often one verb is tried in all where others were in the way.
const TRIES: u32 = 6;

/// How long one call is tried again after connections that broke: as long as a database takes to start again or to
/// hand over to another. Giving up sooner would leave claims in doubt that nobody has used.
const LOST_LIMIT: Duration = Duration::from_secs(30);

/// The bounded tries of one call of a verb.
#[derive(Debug)]
pub(super) struct Tries {
    verb: &'static str,
    made: u32,
    began: Instant,
}

impl Tries {
    pub(super) fn of(verb: &'static str) -> Self {
        Self { verb, made: 0, began: Instant::now() }
    }

    /// Whether an earlier try of this call may have been committed without our knowing.
    pub(super) const fn in_doubt(&self) -> bool {
        self.made > 0
    }

    /// Waits for the next try where there is one.
    pub(super) async fn again_after(&mut self, failure: Failure) -> super::Result<()> {
        self.made += 1;
        let error = match failure {
            Failure::Ledger(error) => return Err(error),
            Failure::Database(error) => error,
        };
        let kind = kind(&error);
        let again = match kind {
            Kind::Contention => self.made < TRIES,
            Kind::Lost => self.began.elapsed() < LOST_LIMIT,
            Kind::Unreachable | Kind::Final => false,
        };
        match kind {
            Kind::Contention | Kind::Lost if again => {
                tracing::debug!(verb = self.verb, made = self.made, %error, "the ledger asks to go again");
                tokio::time::sleep(jittered(self.made)).await;
                Ok(())
            }
            Kind::Lost | Kind::Unreachable => Err(LedgerError::Unreachable(error)),
            Kind::Contention | Kind::Final => Err(LedgerError::Refused { verb: self.verb, source: error }),
        }
    }
}

/// Between nothing and 20 ms at first, twice as much after every try, at most 1.3 s.
fn jittered(made: u32) -> Duration {
    let share = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
    Duration::from_millis(10 << made.min(7)).mul_f64(share)
}

/// Evaluates a try, again and again while the failure is of the kind that passes and tries are left.
macro_rules! tried {
    ($verb:literal, |$tries:ident| $attempt:expr) => {{
        let mut tries = $crate::ledger::failure::Tries::of($verb);
        loop {
            let $tries = &tries;
            match $crate::ledger::failure::bounded($attempt).await {
                Ok(value) => break Ok(value),
                Err(failure) => tries.again_after(failure).await?,
            }
        }
    }};
    ($verb:literal, $attempt:expr) => {
        $crate::ledger::failure::tried!($verb, |_tries| $attempt)
    };
}
pub(super) use tried;

/// Longest time that one try may take. A connection whose other end has vanished says nothing for much longer.
const TRY_LIMIT: Duration = Duration::from_secs(120);

/// A try that is over after [`TRY_LIMIT`]: what it did is as unknown as after a broken connection.
pub(super) async fn bounded<T>(attempt: impl Future<Output = Try<T>>) -> Try<T> {
    match tokio::time::timeout(TRY_LIMIT, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()).into()),
    }
}
