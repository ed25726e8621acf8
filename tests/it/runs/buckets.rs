//! Snapshots in an object store: sealed, found, listed and run from there, against a local server that speaks S3.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::place::{Ended, MAILDIR, Place, assert_one_each, ended};
use crate::databases::Backend;

const BUCKET: &str = "digests";
const SECRET: &str = "canary-secret-access-key";

/// moto's S3 server on a free port; stopped when it is dropped.
struct Moto {
    address: SocketAddr,
    server: Child,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The server's program: of the environment that `.ci/run` makes, or in PATH.
fn program() -> PathBuf {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../moto/bin/moto_server");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|directory| directory.join("moto_server"));
    std::iter::once(made).chain(installed).find(|file| file.is_file()).expect(
        "these tests need moto's server: `.ci/run` installs it, and so does \
         `python3 -m venv target/moto && target/moto/bin/pip install 'moto[server]'`",
    )
}

impl Moto {
    fn start(environment: &[(&str, &str)]) -> Self {
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new(program());
            command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]).envs(environment.iter().copied());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut moto = Self { address, server: command.spawn().unwrap() };
            let began = Instant::now();
            // It has left where somebody else took the port first.
            while began.elapsed() < Duration::from_secs(60) && moto.server.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).is_ok() {
                    return moto;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        panic!("moto's server did not start");
    }

    fn with_bucket() -> Self {
        let moto = Self::start(&[]);
        assert!(moto.ask("PUT", &format!("/{BUCKET}")).starts_with("HTTP/1.1 200"));
        moto
    }

    /// One request, whose signature this server does not check.
    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = format!("Host: {}\r\nContent-Length: 0\r\nConnection: close\r\n", self.address);
        let signed = "Authorization: AWS4-HMAC-SHA256 Credential=test/20261101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=00\r\n";
        write!(stream, "{method} {path} HTTP/1.1\r\n{host}{signed}\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The names of the objects in the bucket.
    fn objects(&self) -> Vec<String> {
        let answer = self.ask("GET", &format!("/{BUCKET}?list-type=2"));
        answer.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap().to_owned()).collect()
    }
}

/// The program with its store in the bucket behind `address`.
fn command(place: &Place, address: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command
        .env("COUNTERFOIL_STORE__URL", format!("s3://{BUCKET}/weekly"))
        .env("AWS_ENDPOINT_URL", format!("http://{address}"))
        .env("AWS_ACCESS_KEY_ID", "canary-key-id")
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_REGION", "us-east-1");
    command
}

fn output(place: &Place, address: SocketAddr, arguments: &[&str]) -> Output {
    command(place, address, arguments).output().unwrap()
}

fn seal(place: &Place, address: SocketAddr) -> Output {
    output(place, address, &["--format", "json", "snapshot", "seal", "export.jsonl"])
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn run(place: &Place, address: SocketAddr, arguments: &[&str]) -> Ended {
    let all: Vec<&str> = ["--format", "json", "run", "--mode", "enforce"].iter().chain(arguments).copied().collect();
    ended(command(place, address, &all).spawn().unwrap()).await
}

/// An installation with an export of so many customers.
async fn place(customers: u32) -> Place {
    let place = Place::new(Backend::Sqlite, MAILDIR).await;
    place.export("export.jsonl", 0..customers, |number| number);
    place
}

#[tokio::test]
async fn a_snapshot_in_a_bucket_is_sealed_found_listed_and_run_to_the_end() {
    let (moto, place) = (Moto::with_bucket(), place(1_200).await);
    let first = json(&seal(&place, moto.address));
    let id = first["id"].as_str().unwrap().to_owned();
    assert_eq!((&first["rows"], &first["found"]), (&Value::from(1_200), &Value::from(false)));
    let again = json(&seal(&place, moto.address));
    assert_eq!((again["id"].as_str(), &again["found"]), (Some(id.as_str()), &Value::from(true)));
    let names = ["manifest.json", "part-000000.jsonl", "part-000001.jsonl"].map(|name| format!("weekly/{id}/{name}"));
    assert_eq!(moto.objects(), names);

    let listed = json(&output(&place, moto.address, &["--format", "json", "snapshot", "list"]));
    assert_eq!(listed["snapshots"][0]["id"].as_str(), Some(id.as_str()));
    let shown = json(&output(&place, moto.address, &["--format", "json", "snapshot", "show", &id[..12]]));
    assert_eq!(shown["part_rows"], serde_json::json!([1_000, 200]));
    let checked = output(&place, moto.address, &["check"]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("s3://digests/weekly, 1 sealed"), "{checked:?}");

    run(&place, moto.address, &["--snapshot", &id[..12]]).await.assert(0, &[("sent", 1_200)]);
    run(&place, moto.address, &["--snapshot", "export.jsonl"]).await.assert(0, &[("duplicate", 1_200)]);
    assert_one_each(&place.delivered(), 1_200);
    assert!(!place.path("snapshots").exists(), "rows were left in a directory");
}

#[tokio::test]
async fn what_is_damaged_in_a_bucket_is_noticed_and_mended_by_sealing_again() {
    let (moto, place) = (Moto::with_bucket(), place(1_200).await);
    let id = json(&seal(&place, moto.address))["id"].as_str().unwrap().to_owned();
    let emptied = moto.ask("PUT", &format!("/{BUCKET}/weekly/{id}/part-000001.jsonl"));
    assert!(emptied.starts_with("HTTP/1.1 200"), "{emptied}");
    let broken = run(&place, moto.address, &["--snapshot", &id]).await;
    assert_eq!(broken.code, 2);
    assert!(broken.stderr.contains("part-000001.jsonl is not what was sealed"), "{}", broken.stderr);
    assert_eq!(json(&seal(&place, moto.address))["found"], Value::from(true));
    let mended = run(&place, moto.address, &["--snapshot", &id]).await;
    assert_eq!(mended.code, 0, "{}", mended.stderr);
    assert_one_each(&place.delivered(), 1_200);
}

#[tokio::test]
async fn a_sealing_that_breaks_off_leaves_nothing_that_looks_sealed() {
    let (moto, place) = (Moto::with_bucket(), place(1_200).await);
    let cutting = cutting_proxy(moto.address, b"part-000001");
    let broken = seal(&place, cutting);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let words = String::from_utf8_lossy(&broken.stderr);
    assert!(words.contains("snapshot store: cannot write s3://digests/weekly/"), "{words}");
    assert_eq!(moto.objects().len(), 1, "the first part alone");
    let listed = json(&output(&place, moto.address, &["--format", "json", "snapshot", "list"]));
    assert_eq!(listed["snapshots"], serde_json::json!([]));
    assert_eq!(json(&seal(&place, moto.address))["found"], Value::from(false));
    assert_eq!(moto.objects().len(), 3);
}

/// Stands before the server and breaks every connection on which `word` is written.
fn cutting_proxy(server: SocketAddr, word: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(server).unwrap());
            let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            std::thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                while let Ok(length @ 1..) = client.read(&mut bytes) {
                    let head = &bytes[..length.min(4_096)];
                    if head.starts_with(b"PUT ") && head.windows(word.len()).any(|found| found == word) {
                        break;
                    }
                    if server.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

#[tokio::test]
async fn a_wrong_bucket_wrong_credentials_and_a_dead_server_are_told_apart_without_a_secret() {
    let place = place(1).await;
    let say = |address: SocketAddr, words: &[&str]| {
        let refused = seal(&place, address);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr);
        for word in words {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
        assert!(!text.contains("canary"), "{text}");
    };
    let empty = Moto::start(&[]);
    say(empty.address, &["s3://digests/weekly", "there is no such bucket", "store.url"]);
    let strict = Moto::start(&[("INITIAL_NO_AUTH_ACTION_COUNT", "0")]);
    say(strict.address, &["s3://digests/weekly", "access was denied", "AWS_ACCESS_KEY_ID"]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    say(nobody, &["s3://digests/weekly", "out of reach", "AWS_ENDPOINT_URL", "run again"]);
}
