//! The program as a user meets it: output, errors, exit codes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on should stop")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Secrets of a keyring that no output may hold a part of.
const CANARY_KEYRING: &str = "[[key]]\nid = \"k1\"\nfrom_week = \"2020-W01\"\n\
                              secret = \"Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ\"\n\n\
                              [stable]\nsecret = \"Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ\"\n";

/// An installation in a directory of its own.
struct Place {
    directory: TempDir,
}

/// How a command ended and what it said.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Place {
    fn empty() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn initialised() -> Self {
        let place = Self::empty();
        let ended = place.run(&["init"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        place
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, &[])
    }

    /// Runs the program in the directory, with no variables of ours but those given.
    fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null()).env_remove("COLUMNS");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERFOIL_")) {
            command.env_remove(name);
        }
        let Output { status, stdout, stderr } = command.envs(environment.iter().copied()).output().unwrap();
        Ended {
            code: status.code().unwrap(),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Replaces a text in the configuration, which must stand in it.
    fn edit(&self, old: &str, new: &str) {
        let path = self.path().join("counterfoil.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "the configuration has no {old}");
        fs::write(path, text.replace(old, new)).unwrap();
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn help_works_where_everything_else_is_broken() {
    let place = Place::empty();
    fs::write(place.path().join("counterfoil.toml"), "[[[").unwrap();
    for arguments in [&["--help"][..], &["-h"], &["run", "--help"], &["receipts", "show", "--help"], &["--version"]] {
        let ended = place.run_with(arguments, &[("COUNTERFOIL_NONSENSE", "x")]);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(!ended.stdout.is_empty());
    }
}

#[test]
fn the_help_reads_like_a_manual() {
    insta::assert_snapshot!("help", Place::empty().run(&["--help"]).stdout);
    insta::assert_snapshot!("help_run", Place::empty().run(&["run", "--help"]).stdout);
    insta::assert_snapshot!("help_receipts_show", Place::empty().run(&["receipts", "show", "--help"]).stdout);
}

#[test]
fn usage_errors_end_with_2_and_name_the_argument() {
    let place = Place::empty();
    for (arguments, expected) in [
        (&["sned"][..], "unrecognized subcommand 'sned'"),
        (&["run", "--week", "2025-W53"], "2025 has weeks W01 to W52"),
        (&["run", "--week", "yesterday"], "YYYY-Www"),
        (&["run", "--mode", "advisory"], "[possible values: observe, enforce]"),
        (&["run", "--wait", "soon"], "\"30m\""),
        (&["run", "--snapshot", "x", "--expect-sha256", "00"], "64 hex digits"),
        (&["run", "--expect-rows", "5"], "--snapshot"),
        (&["run", "--type", "Weekly"], "lower-case letter"),
        (&["-q", "-v", "run"], "cannot be used with"),
        (&["receipts", "show"], "--key"),
        (&["receipts", "show"], "--customer"),
        (&["receipts", "show", "--key", "433ae5f2261"], "at least the first 12"),
        (&["receipts", "list", "--run", "zz"], "32 hex digits of a run's id"),
        (&["keys", "generate", "--id", "a \"b"], "expected 1 to 64 letters"),
        (&["receipts", "list", "--state", "gone"], "expected one of: claimed, sent"),
        (&["receipts", "list", "--limit", "0"], "1..=100000"),
        (&["preview", "--snapshot", "x", "--customer", "y", "--text", "--html"], "cannot be used with"),
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn a_missing_configuration_says_what_to_do() {
    let ended = Place::empty().run(&["receipts", "list"]);
    assert_eq!(ended.code, 2);
    insta::assert_snapshot!(ended.stderr, @"error: counterfoil.toml: there is no such file; `counterfoil init` writes one, `--config FILE` names another");
    let elsewhere = Place::empty().run_with(&["receipts", "list"], &[("COUNTERFOIL_CONFIG", "other.toml")]);
    assert!(elsewhere.stderr.starts_with("error: other.toml: "), "{}", elsewhere.stderr);
}

#[test]
fn an_error_for_programs_is_one_json_object_on_standard_error() {
    let ended = Place::empty().run(&["--format", "json", "receipts", "list"]);
    let error: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(error["exit_code"], 2);
    assert!(error["error"].as_str().unwrap().starts_with("counterfoil.toml: "));
    assert_eq!(ended.stdout, "");
}

#[test]
fn an_unknown_setting_is_refused_with_the_nearest_name() {
    let place = Place::initialised();
    place.edit("auto_migrate", "auto_mgirate");
    let ended = place.run(&["receipts", "list"]);
    assert_eq!(ended.code, 2);
    insta::assert_snapshot!(ended.stderr, @"error: counterfoil.toml:10: setting `ledger.auto_mgirate`: is unknown; did you mean `auto_migrate`?");
}

#[test]
fn the_environment_overrides_the_file() {
    let place = Place::initialised();
    let ended = place.run_with(&["receipts", "list"], &[("COUNTERFOIL_ROLLOUT__MODE", "guess")]);
    assert_eq!(ended.code, 2);
    insta::assert_snapshot!(ended.stderr, @r#"error: environment variable COUNTERFOIL_ROLLOUT__MODE: setting `rollout.mode`: expected "observe" or "enforce"; found "guess""#);
    let ended = place.run_with(&["receipts", "list"], &[("COUNTERFOIL_ROLOUT__MODE", "enforce")]);
    assert_eq!(ended.code, 2);
    insta::assert_snapshot!(ended.stderr, @"error: environment variable COUNTERFOIL_ROLOUT__MODE: is no setting of this configuration; did you mean COUNTERFOIL_ROLLOUT__MODE? It has to be COUNTERFOIL_<SECTION>__<NAME>, of a digest or destination that the file names");
}

#[test]
fn the_test_clock_is_refused_in_production() {
    let place = Place::initialised();
    let environment = [("COUNTERFOIL_ENVIRONMENT", "production"), ("COUNTERFOIL_TEST_CLOCK_OFFSET", "60")];
    let ended = place.run_with(&["receipts", "list"], &environment);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("COUNTERFOIL_TEST_CLOCK_OFFSET: is for tests"), "{}", ended.stderr);
}

#[test]
fn init_writes_an_installation_that_sends_nothing() {
    let place = Place::empty();
    let ended = place.run(&["init", "here"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let config = fs::read_to_string(place.path().join("here/counterfoil.toml")).unwrap();
    assert!(config.contains("mode   = \"observe\""));
    assert_eq!(mode(&place.path().join("here/keyring.toml")), 0o600);
    assert!(
        ended.stdout.contains("wrote  counterfoil.toml") && ended.stdout.contains("--config here/counterfoil.toml")
    );
}

#[test]
fn init_twice_keeps_what_is_there() {
    let place = Place::initialised();
    let keyring = fs::read(place.path().join("keyring.toml")).unwrap();
    let files = place.files();
    let again = place.run(&["init"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(!again.stdout.contains("wrote"), "{}", again.stdout);
    assert_eq!(fs::read(place.path().join("keyring.toml")).unwrap(), keyring);
    assert_eq!(place.files(), files);
}

#[test]
fn init_never_overwrites() {
    let place = Place::empty();
    fs::write(place.path().join("counterfoil.toml"), "mine").unwrap();
    let ended = place.run(&["init"]);
    assert_eq!(ended.code, 2);
    insta::assert_snapshot!(ended.stderr, @r"
    error: . exists already with other content: counterfoil.toml

    hint: nothing was written; choose an empty directory, or move these files away
    ");
    assert_eq!(place.files(), ["counterfoil.toml"]);
}

#[test]
fn quickstart_does_not_take_over_another_installation() {
    let place = Place::initialised();
    let ended = place.run(&["quickstart", "."]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("counterfoil.toml"), "{}", ended.stderr);
}

#[test]
fn keys_go_to_a_private_file_that_is_never_overwritten() {
    let place = Place::empty();
    let arguments = ["keys", "generate", "--from-week", "2026-W01", "--id", "k1", "--out", "keyring.toml"];
    let ended = place.run(&arguments);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("wrote keyring.toml (mode 0600): key k1 from 2026-W01, check value "));
    let path = place.path().join("keyring.toml");
    assert_eq!(mode(&path), 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("secret = ").count(), 2);
    let again = place.run(&arguments);
    assert_eq!(again.code, 2);
    insta::assert_snapshot!(again.stderr, @"error: keyring.toml exists and is not overwritten: receipts may depend on the keys in it");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_rotated_key_is_printed_alone_and_an_impossible_id_is_refused() {
    let place = Place::empty();
    let ended = place.run(&["keys", "generate", "--key-only", "--from-week", "2027-W01"]);
    assert!(ended.stdout.starts_with("[[key]]\nid = \"2027-W01\"\n") && !ended.stdout.contains("[stable]"));
    let ended = place.run(&["keys", "generate", "--id", "no \" good"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
}

#[test]
fn a_keyring_that_others_may_read_is_refused_with_the_command_to_type() {
    let place = Place::initialised();
    let keyring = place.path().join("keyring.toml");
    fs::set_permissions(&keyring, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = place.run(&["keys", "list"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("has mode 0644, others may use it; type: chmod 600 "), "{}", ended.stderr);
}

#[test]
fn no_secret_is_ever_printed() {
    let place = Place::initialised();
    let keyring = place.path().join("keyring.toml");
    let broken = [
        CANARY_KEYRING.to_owned(),
        CANARY_KEYRING.replace("secret = \"", "secret = "),
        CANARY_KEYRING.replace("JZ\"\n\n", "JZ\n\n"),
        CANARY_KEYRING.replace("[stable]", "Q0FOQVJZ = 1"),
        CANARY_KEYRING.replace("k1", "k1\"\nQ0FOQVJZ = \""),
    ];
    for text in &broken {
        fs::write(&keyring, text).unwrap();
        for arguments in [&["-vv", "keys", "list"][..], &["-vv", "check"], &["-vv", "--format", "json", "check"]] {
            for environment in [&[][..], &[("COUNTERFOIL_KEYRING", text.as_str())]] {
                let ended = place.run_with(arguments, environment);
                let said = format!("{}{}", ended.stdout, ended.stderr);
                assert!(!said.contains("Q0FOQVJZ"), "{arguments:?}: {said}");
            }
        }
    }
    let url = [("COUNTERFOIL_LEDGER__URL", "postgres://user:Q0FOQVJZ@127.0.0.1:1/none")];
    for arguments in [&["-vv", "check"][..], &["-vv", "migrate"], &["-vv", "receipts", "list"]] {
        let ended = place.run_with(arguments, &url);
        assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("Q0FOQVJZ"), "{}", ended.stderr);
    }
}

#[test]
fn no_customer_is_repeated_by_an_error() {
    let place = Place::initialised();
    for arguments in [
        &["receipts", "show", "--week", "2026-W32", "--customer", " canary"][..],
        &["preview", "--snapshot", "x", "--customer", "canary\u{7}"],
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}");
        assert!(ended.stderr.starts_with("error: --customer ") && !ended.stderr.contains("canary"), "{}", ended.stderr);
    }
}

#[test]
fn a_password_in_the_configuration_is_refused_with_advice() {
    let place = Place::initialised();
    place.edit("concurrency  = 16 ", "password = \"canary\"\nconcurrency  = 16 ");
    let ended = place.run(&["check"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("`password_file`") && !ended.stderr.contains("canary"), "{}", ended.stderr);
    let exposed = Place::initialised();
    fs::set_permissions(exposed.path().join("counterfoil.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    exposed.edit("sqlite://counterfoil.db", "postgres://u:canary@h/d");
    let ended = exposed.run(&["check"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("chmod o-r") && !ended.stderr.contains("canary"), "{}", ended.stderr);
}

#[test]
fn completions_are_made_for_every_shell() {
    let place = Place::empty();
    for (shell, expected) in
        [("bash", "_counterfoil()"), ("zsh", "#compdef counterfoil"), ("fish", "complete -c counterfoil")]
    {
        let ended = place.run(&["completions", shell]);
        assert_eq!(ended.code, 0);
        assert!(ended.stdout.contains(expected) && ended.stdout.contains("quickstart"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .args(["completions", "bash"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_usage_error_is_json_where_json_was_asked_for() {
    let ended = Place::empty().run(&["run", "--wait", "soon", "--format", "json"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    let error: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(error["exit_code"], 2);
    assert!(error["error"].as_str().unwrap().starts_with("invalid value 'soon' for '--wait <TIME|auto>'"), "{error}");
}

#[test]
fn what_logs_show_of_a_receipt_or_a_run_finds_it() {
    let place = Place::empty();
    assert_eq!(place.run(&["quickstart", "."]).code, 0);
    let page = place.run(&["receipts", "list", "--format", "json"]).stdout;
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    for receipt in page["receipts"].as_array().unwrap() {
        let (key, run) = (receipt["receipt_key"].as_str().unwrap(), receipt["run_id"].as_str().unwrap());
        let shown = place.run(&["receipts", "show", "--key", &key[..12]]);
        assert!(shown.stdout.starts_with(&format!("receipt {key}\n")), "{}{}", shown.stdout, shown.stderr);
        let listed = place.run(&["receipts", "list", "--run", &run[..12], "--format", "json"]).stdout;
        assert_eq!(serde_json::from_str::<serde_json::Value>(&listed).unwrap(), page);
    }
    for arguments in [["show", "--key", "ffffffffffff"], ["list", "--run", "ffffffffffff"]] {
        let ended = place.run(&[&["receipts"], &arguments[..]].concat());
        assert_eq!(ended.code, 2, "{}", ended.stdout);
        assert!(ended.stderr.contains("ffffffffffff"), "{}", ended.stderr);
    }
}

#[test]
fn a_guard_that_was_asked_for_is_not_skipped_where_the_snapshot_is_sealed_already() {
    let place = Place::initialised();
    let export = place.files().into_iter().find(|name| name.ends_with(".jsonl")).unwrap();
    let sealed = place.run(&["snapshot", "seal", &export, "--format", "json"]).stdout;
    let id = serde_json::from_str::<serde_json::Value>(&sealed).unwrap()["id"].as_str().unwrap().to_owned();
    for (guard, value, code) in [("--expect-rows", "7", 0), ("--expect-rows", "8", 2), ("--expect-sha256", &id, 2)] {
        let ended = place.run(&["run", "--snapshot", &id[..12], guard, value]);
        assert_eq!(ended.code, code, "{guard} {value}: {}", ended.stderr);
    }
}

#[test]
fn check_fails_where_a_run_could_not_make_its_files() {
    let place = Place::initialised();
    let elsewhere = [("COUNTERFOIL_LEDGER__URL", "sqlite://nowhere/counterfoil.db")];
    let ended = place.run_with(&["check"], &elsewhere);
    assert_eq!(ended.code, 1);
    assert!(ended.stdout.contains("there is no directory"), "{}", ended.stdout);
    fs::write(place.path().join("file"), "").unwrap();
    let ended = place.run_with(&["check"], &[("COUNTERFOIL_STORE__URL", "file/snapshots")]);
    assert_eq!(ended.code, 2, "{}", ended.stdout);
    assert!(ended.stdout.contains("FAIL  store"), "{}", ended.stdout);
}

#[test]
fn no_customer_is_in_what_a_run_prints_logs_lists_or_records() {
    let place = Place::initialised();
    place.edit("mode   = \"observe\"", "mode   = \"enforce\"");
    let row = |id: &str, currency: &str| {
        format!(
            "{{\"customer_id\":\"{id}_canary\",\"email\":\"{id}.canary@example.test\",\"name\":\"Canary\",\"data\":{{\
             \"period_start\":\"2026-08-03\",\"period_end\":\"2026-08-09\",\"currency\":\"{currency}\",\
             \"opening_balance\":\"1\",\"closing_balance\":\"2\",\"transactions\":[\
             {{\"date\":\"2026-08-04\",\"description\":\"canary\",\"amount\":\"1.00\"}}]}}}}"
        )
    };
    let rows = [row("a", "EUR"), row("b", "EUR"), row("c", "canary"), row("d", "JPY"), "canary".to_owned()];
    fs::write(place.path().join("export.jsonl"), rows.join("\n")).unwrap();
    let arguments = ["-vv", "run", "--snapshot", "export.jsonl", "--on-bad-row", "set-aside", "--rejects", "bad.jsonl"];
    for format in ["human", "json"] {
        let ended = place.run(&[&arguments[..], &["--format", format]].concat());
        assert_eq!(ended.code, 3, "{}", ended.stderr);
        let shown = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
        assert!(!shown.contains("canary"), "{shown}");
    }
    assert_eq!(fs::read_dir(place.path().join("outbox/new")).unwrap().count(), 2);
    for file in place.files().into_iter().filter(|name| name.starts_with("counterfoil.db") || name == "bad.jsonl") {
        let bytes = fs::read(place.path().join(&file)).unwrap().to_ascii_lowercase();
        assert!(!bytes.windows(6).any(|window| window == b"canary"), "{file}");
    }
}
