//! Opens fresh ledgers for tests: SQLite files, and databases on a private PostgreSQL.
//!
//! The server is started from the installed binaries by the first test process that needs it, shared by all that
//! run at the same time, and stopped and removed by a guard once nobody has used it for ten seconds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "only tests use this")]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use counterfoil::ledger::{self, Ledger};
use jiff::SignedDuration;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) mod cluster;
pub(crate) mod pooler;

/// Which database a ledger is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

/// A new, empty database of its own. Dropped with the test.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) backend: Backend,
    /// What `ledger.url` would say.
    pub(crate) url: SecretString,
    _directory: Option<tempfile::TempDir>,
}

impl Fresh {
    /// A SQLite file in a directory of its own; the file does not exist yet.
    pub(crate) fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("ledger.db").display());
        Self { backend: Backend::Sqlite, url: url.into(), _directory: Some(directory) }
    }

    /// A database on the private PostgreSQL.
    pub(crate) async fn postgres() -> Self {
        Self::on_port(server().port).await
    }

    async fn on_port(port: u16) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("t_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let server = format!("postgres://counterfoil@127.0.0.1:{port}");
        let mut connection = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        // A process id can come again while the server lives.
        for sql in [
            format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            format!("CREATE DATABASE {name} TEMPLATE template0"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        }
        Self { backend: Backend::Postgres, url: format!("{server}/{name}").into(), _directory: None }
    }

    /// The path of a SQLite ledger.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(self.url.expose_secret().strip_prefix("sqlite://").unwrap())
    }

    /// A ledger as it is before the first migration.
    pub(crate) async fn open_bare(&self) -> Arc<dyn Ledger> {
        ledger::open(&self.url, SignedDuration::ZERO).await.unwrap()
    }

    /// The migrated ledger.
    pub(crate) async fn open(&self) -> Arc<dyn Ledger> {
        self.open_later(SignedDuration::ZERO).await
    }

    /// Another handle on the same ledger, whose clock is ahead by `offset`.
    pub(crate) async fn open_later(&self, offset: SignedDuration) -> Arc<dyn Ledger> {
        let ledger = ledger::open(&self.url, offset).await.unwrap();
        ledger.migrate().await.unwrap();
        ledger
    }

    /// Runs statements beside the ledger.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let url = self.url.expose_secret();
        let sql = AssertSqlSafe(sql.to_owned());
        match self.backend {
            Backend::Sqlite => {
                let mut connection = SqliteConnection::connect(url).await?;
                sqlx::raw_sql(sql).execute(&mut connection).await?;
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(url).await?;
                sqlx::raw_sql(sql).execute(&mut connection).await?;
            }
        }
        Ok(())
    }

    /// The rows of a query as the database writes them as text.
    pub(crate) async fn query(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let url = self.url.expose_secret();
        let sql = AssertSqlSafe(sql.to_owned());
        match self.backend {
            Backend::Sqlite => {
                let mut connection = SqliteConnection::connect(url).await.unwrap();
                let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| (0..row.len()).map(|at| row.try_get_unchecked(at).unwrap()).collect()).collect()
            }
            Backend::Postgres => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await.unwrap();
                rows.iter().map(|row| (0..row.len()).map(|at| row.try_get_unchecked(at).unwrap()).collect()).collect()
            }
        }
    }

    /// The first column of a query's first row.
    pub(crate) async fn value(&self, sql: &str) -> String {
        self.query(sql).await[0][0].clone().unwrap_or_default()
    }
}

/// Runs a test on a fresh ledger of each kind.
pub(crate) async fn each_ledger(test: impl AsyncFn(&Fresh)) {
    println!("on SQLite");
    test(&Fresh::sqlite()).await;
    println!("on PostgreSQL");
    test(&Fresh::postgres().await).await;
}

/// Where a [`Proxy`] breaks a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The server never sees the next COMMIT.
    BeforeCommit,
    /// The server carries the next COMMIT out, the client never learns of it.
    AfterCommit,
}

/// Stands between a ledger and the private PostgreSQL and breaks a connection when told to.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// What `ledger.url` would say.
    pub(crate) url: SecretString,
    armed: Arc<Mutex<Option<Cut>>>,
    cuts: Arc<AtomicU32>,
}

impl Proxy {
    pub(crate) async fn before(fresh: &Fresh) -> Self {
        Self::cutting(fresh, false).await
    }

    /// Breaks the connection of about one COMMIT in ten, by turns before and after it. At no fixed interval: a verb
    /// that commits twice would meet its next cut always at the same place.
    pub(crate) async fn cutting_one_in_ten(fresh: &Fresh) -> Self {
        Self::cutting(fresh, true).await
    }

    async fn cutting(fresh: &Fresh, by_itself: bool) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let server = format!("127.0.0.1:{}", server().port);
        let url = fresh.url.expose_secret().replace(&server, &here).into();
        let armed = Arc::new(Mutex::new(None));
        let (cuts, commits) = (Arc::new(AtomicU32::new(0)), AtomicU32::new(0));
        let (cut, counted) = (armed.clone(), cuts.clone());
        let next_cut: NextCut = Arc::new(move || {
            let now = if by_itself {
                // The golden ratio spreads the numbers evenly and without a period.
                let spread = commits.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9);
                let cut = if counted.load(Ordering::SeqCst) % 2 == 0 { Cut::AfterCommit } else { Cut::BeforeCommit };
                (spread > u32::MAX / 10 * 9).then_some(cut)
            } else {
                cut.lock().unwrap().take()
            };
            counted.fetch_add(u32::from(now.is_some()), Ordering::SeqCst);
            now
        });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(relay(client, server, next_cut.clone()));
            }
        });
        Self { url, armed, cuts }
    }

    /// How many connections were broken.
    pub(crate) fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::SeqCst)
    }

    /// Breaks the connection that commits next.
    pub(crate) fn arm(&self, cut: Cut) {
        *self.armed.lock().unwrap() = Some(cut);
    }

    /// Whether it has happened since.
    pub(crate) fn was_cut(&self) -> bool {
        self.armed.lock().unwrap().is_none()
    }
}

/// What is done to a COMMIT that has just come.
type NextCut = Arc<dyn Fn() -> Option<Cut> + Send + Sync>;

async fn relay(mut client: TcpStream, mut server: TcpStream, next_cut: NextCut) -> std::io::Result<()> {
    let (mut asked, mut answered) = ([0; 65_536], [0; 65_536]);
    loop {
        tokio::select! {
            length = client.read(&mut asked) => {
                let question = &asked[..length?];
                if question.is_empty() {
                    return Ok(());
                }
                let commits = question.windows(6).any(|word| word == b"COMMIT");
                let cut = if commits { next_cut() } else { None };
                if cut != Some(Cut::BeforeCommit) {
                    server.write_all(question).await?;
                }
                if cut == Some(Cut::AfterCommit) {
                    let _answer_of_the_commit = server.read(&mut answered).await?;
                }
                if cut.is_some() {
                    return Ok(());
                }
            }
            length = server.read(&mut answered) => {
                let answer = &answered[..length?];
                if answer.is_empty() {
                    return Ok(());
                }
                client.write_all(answer).await?;
            }
        }
    }
}

/// The private PostgreSQL of this machine's test runs.
#[derive(Debug)]
struct Server {
    port: u16,
    /// Says that this process uses the server, until it ends.
    _in_use: File,
}

/// Where the server's files lie and who it runs as.
#[derive(Debug)]
struct Place {
    /// initdb, pg_ctl and postgres.
    binaries: PathBuf,
    data: PathBuf,
    /// Words that begin a command line; they change to an unprivileged user where the tests run as root.
    prefix: Vec<String>,
    user: Option<u32>,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let place = Place::shared();
        let locks = Path::new(env!("CARGO_TARGET_TMPDIR"));
        fs::create_dir_all(locks).unwrap();
        let lock = File::create(locks.join("postgres.lock")).unwrap();
        let in_use = File::create(locks.join("postgres.users")).unwrap();
        lock.lock().unwrap();
        in_use.lock_shared().unwrap();
        let port = place.running_port().unwrap_or_else(|| place.start());
        place.guard(locks);
        Server { port, _in_use: in_use }
    })
}

impl Place {
    fn named(name: &str) -> Self {
        let user = (run_for_text("id", &["-u"]) == "0").then(|| {
            let id =
                ["postgres", "nobody"].iter().map(|name| run_for_text("id", &["-u", name])).find(|id| !id.is_empty());
            id.and_then(|id| id.parse().ok()).expect("PostgreSQL refuses to run as root, and there is no user `nobody`")
        });
        let prefix = match user {
            Some(id) => {
                vec!["setpriv".into(), format!("--reuid={id}"), format!("--regid={id}"), "--clear-groups".into()]
            }
            None => Vec::new(),
        };
        // Somewhere that another user can reach.
        Self { binaries: binaries(), data: std::env::temp_dir().join(name), prefix, user }
    }

    /// One server for every checkout's target directory.
    fn shared() -> Self {
        let mut hash = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(env!("CARGO_TARGET_TMPDIR"), &mut hash);
        Self::named(&format!("counterfoil-postgres-{:016x}", std::hash::Hasher::finish(&hash)))
    }

    fn command(&self, binary: &str) -> Command {
        self.unprivileged(&self.binaries.join(binary))
    }

    /// A program as the user that the server runs as.
    fn unprivileged(&self, binary: &Path) -> Command {
        let mut command = match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(binary);
                command
            }
            None => Command::new(binary),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        command
    }

    /// The port of a server that an earlier or a concurrent test process has started.
    fn running_port(&self) -> Option<u16> {
        let up = self.command("pg_ctl").arg("status").arg("-D").arg(&self.data).status().unwrap().success();
        let pid_file = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        pid_file.lines().nth(3)?.trim().parse().ok().filter(|_| up)
    }

    fn start(&self) -> u16 {
        if self.data.exists() {
            fs::remove_dir_all(&self.data).unwrap();
        }
        fs::create_dir(&self.data).unwrap();
        std::os::unix::fs::chown(&self.data, self.user, self.user).unwrap();
        let made = self
            .command("initdb")
            .args(["--auth=trust", "--username=counterfoil", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"])
            .arg(&self.data)
            .stderr(Stdio::inherit())
            .status();
        assert!(made.unwrap().success(), "initdb failed in {}", self.data.display());
        for _ in 0..5 {
            let port = free_port();
            if self.start_on(port) {
                return port;
            }
        }
        panic!("PostgreSQL did not start; see {}", self.data.join("server.log").display());
    }

    /// Starts the server on its files; answers whether it could.
    fn start_on(&self, port: u16) -> bool {
        // Nothing here has to outlive the machine's next crash.
        let options = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=400 \
             -c fsync=off -c full_page_writes=off -c autovacuum=off"
        );
        let log = self.data.join("server.log");
        let mut start = self.command("pg_ctl");
        start.args(["start", "-w", "-D"]).arg(&self.data).arg("-l").arg(log).args(["-o", &options]);
        start.status().unwrap().success()
    }

    /// Leaves a process behind that stops the server and removes its files once nobody holds `postgres.users`.
    /// Only the first one stays.
    fn guard(&self, locks: &Path) {
        const SCRIPT: &str = r#"
            exec 8>"$1/postgres.guard"; flock -n 8 || exit 0
            idle=0
            while sleep 1; do
                if flock -n -x "$1/postgres.users" true; then idle=$((idle + 1)); else idle=0; fi
                [ $idle -ge 10 ] || continue
                exec 9>"$1/postgres.lock"; flock 9
                if flock -n -x "$1/postgres.users" true; then
                    locks=$1 data=$2; shift 2
                    "$@" stop -m immediate -D "$data"
                    rm -rf "$data"
                    exit 0
                fi
                exec 9>&-
                idle=0
            done"#;
        let mut guard = Command::new("sh");
        guard.args(["-c", SCRIPT, "guard"]).arg(locks).arg(&self.data).args(&self.prefix);
        guard.arg(self.binaries.join("pg_ctl")).current_dir("/");
        guard.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut guard, 0);
        drop(guard.spawn().expect("sh is needed to stop the private PostgreSQL after the tests"));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn run_for_text(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// The newest installation that has everything; its own directory first, then PATH.
fn binaries() -> PathBuf {
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut packaged: Vec<(u32, PathBuf)> =
        packaged.filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))).collect();
    packaged.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = packaged.into_iter().rev().map(|(_, path)| path).chain(std::env::split_paths(&path));
    candidates
        .into_iter()
        .find(|directory| ["initdb", "pg_ctl", "postgres"].iter().all(|binary| directory.join(binary).is_file()))
        .expect("these tests need PostgreSQL 15 or newer: install it so that initdb, pg_ctl and postgres are in PATH")
}
