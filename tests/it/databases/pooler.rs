//! PgBouncer before the private PostgreSQL, handing out a server connection for a transaction at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use secrecy::{ExposeSecret as _, SecretString};

use super::{Fresh, Place, free_port, server};

/// A pooler; stopped with the test.
#[derive(Debug)]
pub(crate) struct Pooler {
    /// What `ledger.url` would say.
    pub(crate) url: SecretString,
    process: Child,
    directory: PathBuf,
}

impl Pooler {
    /// Pools connections to a database on the private PostgreSQL: few of them, so that clients share.
    pub(crate) async fn before(fresh: &Fresh) -> Self {
        let directory = std::env::temp_dir().join(format!("counterfoil-pooler-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let place = Place::shared();
        let (port, upstream) = (free_port(), server().port);
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={upstream} user=counterfoil\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 3\nmax_client_conn = 200\nignore_startup_parameters = extra_float_digits\n"
        );
        let file = directory.join("pgbouncer.ini");
        fs::write(&file, settings).unwrap();
        std::os::unix::fs::chown(&directory, place.user, place.user).unwrap();
        let process = place.unprivileged(&binary()).arg("-q").arg(&file).spawn().unwrap();
        let here = format!("127.0.0.1:{port}");
        let url = fresh.url.expose_secret().replace(&format!("127.0.0.1:{upstream}"), &here).into();
        let pooler = Self { url, process, directory };
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(&here).await.is_ok() {
                return pooler;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
        panic!("PgBouncer does not listen");
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn binary() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]);
    let found = directories.map(|directory| directory.join("pgbouncer")).find(|file| file.is_file());
    found.expect("these tests need PgBouncer: install it so that pgbouncer is in PATH or /usr/sbin")
}
