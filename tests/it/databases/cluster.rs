//! A PostgreSQL of one test's own, which may kill it.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Fresh, Place};

/// A server with files of its own; stopped and removed with the test.
#[derive(Debug)]
pub(crate) struct Cluster {
    place: Place,
    port: u16,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let place = Place::named(&format!("counterfoil-postgres-own-{}-{number}", std::process::id()));
        let port = place.start();
        Self { place, port }
    }

    /// A database on it.
    pub(crate) async fn fresh(&self) -> Fresh {
        Fresh::on_port(self.port).await
    }

    /// Kills the postmaster as the kernel would when memory runs out; its children notice and leave.
    pub(crate) fn kill(&self) {
        let pid_file = fs::read_to_string(self.place.data.join("postmaster.pid")).unwrap();
        let pid = pid_file.lines().next().unwrap();
        assert!(Command::new("kill").args(["-9", pid]).status().unwrap().success());
    }

    /// Starts it again on the files that the kill left, as soon as the last child has gone.
    pub(crate) async fn restart(&self) {
        for _ in 0..100 {
            if self.place.start_on(self.port) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("PostgreSQL does not start again; see {}", self.place.data.join("server.log").display());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.place.command("pg_ctl").args(["stop", "-m", "immediate", "-D"]).arg(&self.place.data).status();
        let _ = fs::remove_dir_all(&self.place.data);
    }
}
