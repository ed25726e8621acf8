//! Whole configurations: defaults, overrides, and what is refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::*;
use crate::provider::Kind;

const KINDS: &[Kind] = &[
    Kind {
        name: "maildir",
        summary: "writes files",
        send_timeout: Duration::from_secs(30),
        build: |_| Err(ConfigError::setting("", "never built")),
    },
    Kind {
        name: "smtp",
        summary: "a mail server",
        send_timeout: Duration::from_mins(10),
        build: |_| Err(ConfigError::setting("", "never built")),
    },
];

const SMALLEST: &str = "[digest.weekly_activity]\n\
                        destination = \"retail\"\n\
                        from = \"Example Bank <digest@example.test>\"\n\
                        unsubscribe = \"https://example.test/u/{customer}/{token}\"\n\
                        [destination.retail]\n\
                        provider = \"maildir\"\n";

/// Loads a text with variables that are written `NAME=value`.
fn load(text: &str, variables: &[&str]) -> Result<Config, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("counterfoil.toml");
    std::fs::write(&path, text).unwrap();
    let pairs = variables.iter().map(|pair| pair.split_once('=').unwrap());
    let environment: BTreeMap<String, String> =
        pairs.map(|(name, value)| (format!("COUNTERFOIL_{name}"), value.to_owned())).collect();
    Config::load_with(&path, &environment, KINDS)
}

/// The error of a text, without the temporary directory.
fn refusal(text: &str, variables: &[&str]) -> String {
    let error = load(text, variables).unwrap_err().to_string();
    match error.find("counterfoil.toml") {
        Some(start) if error.starts_with('/') => error[start..].to_owned(),
        _ => error,
    }
}

/// The smallest configuration with lines added to one of its tables.
fn with(table: &str, lines: &str) -> String {
    if table.is_empty() {
        return format!("{lines}\n{SMALLEST}");
    }
    if SMALLEST.contains(&format!("[{table}]")) {
        return SMALLEST.replace(&format!("[{table}]\n"), &format!("[{table}]\n{lines}\n"));
    }
    format!("{SMALLEST}[{table}]\n{lines}\n")
}

#[test]
fn the_smallest_configuration_has_the_documented_defaults() {
    let config = load(SMALLEST, &[]).unwrap();
    assert_eq!(config.environment, "development");
    assert_eq!(config.time_zone.iana_name(), Some("UTC"));
    assert_eq!(config.templates, config.directory.join("templates"));
    assert_eq!(config.ledger.url.expose_secret(), format!("sqlite://{}/counterfoil.db", config.directory.display()));
    assert!(config.ledger.auto_migrate);
    assert!(matches!(&config.keyring, KeyringSource::File(path) if *path == config.directory.join("keyring.toml")));
    assert_eq!(config.store.directory(), Some(config.directory.join("snapshots").as_path()));
    let digest = config.digests.values().next().unwrap();
    assert_eq!(digest.content_version.as_str(), "v1");
    assert_eq!(digest.send_within, SignedDuration::from_hours(72));
    assert_eq!((digest.max_row_change, digest.max_conflicts, digest.max_rejected), (0.5, 0.01, 0.05));
    let retail = &config.destinations["retail"];
    assert_eq!((retail.rate, retail.concurrency, retail.max_attempts), (None, 16, 12));
    assert_eq!(retail.send_timeout, Duration::from_secs(30));
    assert_eq!(retail.lease, SignedDuration::from_mins(5));
    assert_eq!(retail.on_ambiguous, OnAmbiguous::Hold);
    assert_eq!(retail.backoff, Backoff { base: SignedDuration::from_secs(2), cap: SignedDuration::from_mins(30) });
    assert!(!retail.keep_provider_text);
    assert_eq!((config.run.max_in_flight, config.run.wait), (1_000, None));
    assert_eq!((config.rollout.mode, config.rollout.cohort), (Mode::Observe, 1.0));
    let retention = config.retention;
    assert_eq!((retention.replay_horizon_weeks, retention.receipts_weeks, retention.snapshots_weeks), (26, 104, 8));
    assert_eq!(config.clock_offset, SignedDuration::ZERO);
}

#[test]
fn every_error_names_file_line_and_setting() {
    let refused = refusal(&with("destination.retail", "rate = \"50 per second\""), &[]);
    insta::assert_snapshot!(refused, @r#"counterfoil.toml:6: setting `destination.retail.rate`: expected "unlimited", or a whole number per second, minute or hour, such as "50/s", "300/min" or "1000/h"; found "50 per second""#);
    let refused = refusal(&with("", "time_zone = \"Mars/Olympus\""), &[]);
    insta::assert_snapshot!(refused, @r#"counterfoil.toml:1: setting `time_zone`: expected an IANA time zone, such as "Europe/Berlin"; found "Mars/Olympus""#);
    let refused = refusal(&SMALLEST.replace("from =", "form ="), &[]);
    insta::assert_snapshot!(refused, @"counterfoil.toml:3: setting `digest.weekly_activity.form`: is unknown; did you mean `from`?");
    let refused = refusal(&SMALLEST.replace("from = \"Example Bank <digest@example.test>\"\n", ""), &[]);
    insta::assert_snapshot!(refused, @"counterfoil.toml:1: setting `digest.weekly_activity.from`: is missing");
    let refused = refusal(&SMALLEST.replace("maildir", "mialdir"), &[]);
    insta::assert_snapshot!(refused, @r#"counterfoil.toml:6: setting `destination.retail.provider`: there is no provider "mialdir"; known: maildir, smtp"#);
    let refused = refusal(SMALLEST, &["DESTINATION__RETAIL__LEASE=5s"]);
    insta::assert_snapshot!(refused, @"environment variable COUNTERFOIL_DESTINATION__RETAIL__LEASE: setting `destination.retail.lease`: must be longer than send_timeout (30s), or nothing could ever be sent under it; `auto` is three times send_timeout, at least 5m");
}

#[test]
fn what_cannot_work_is_refused() {
    for (table, line, expected) in [
        ("", "enviroment = \"x\"", "did you mean `environment`?"),
        ("", "environment = \"Production\"", "lower-case"),
        ("", "ledger = 5", "must be a table"),
        ("ledger", "url = \"mysql://x\"", "sqlite://PATH"),
        ("ledger", "uri = \"x\"", "did you mean `url`?"),
        ("store", "url = \"gs://bucket\"", "expected a directory or s3://BUCKET/PREFIX"),
        ("destination.retail", "concurrency = 0", "from 1 to 10000"),
        ("destination.retail", "max_attempts = 1001", "from 1 to 1000"),
        ("destination.retail", "send_timeout = \"0s\"", "expected a number and a unit"),
        ("destination.retail", "lease = \"30s\"", "longer than send_timeout"),
        ("destination.retail", "on_ambiguous = \"guess\"", "\"hold\" or \"resend\""),
        ("destination.retail", "backoff = { base = \"2h\", cap = \"1h\" }", "not be shorter than base"),
        ("destination.retail", "backoff = { bsae = \"2h\" }", "did you mean `base`?"),
        ("destination.retail", "raet = \"1/s\"", "did you mean `rate`?"),
        ("destination.retail", "concurency = 5", "did you mean `concurrency`?"),
        ("destination.retail", "password = \"canary\"", "`password_file`"),
        ("destination.Retail", "provider = \"maildir\"", "only in case"),
        ("destination.\"a b\"", "provider = \"maildir\"", "a destination's name is"),
        ("digest.Weekly", "from = \"a@b.test\"", "lower-case letter"),
        ("digest.weekly_activity", "max_conflicts = \"101%\"", "percentage"),
        ("digest.weekly_activity", "content_version = \"-\"", "letter or digit"),
        ("run", "max_in_flight = 0", "from 1 to 100000"),
        ("run", "wait = \"soon\"", "number and a unit"),
        ("rollout", "mode = \"advisory\"", "\"observe\" or \"enforce\""),
        ("rollout", "cohort = \"5%\"", "sends to every customer"),
        ("destination.retail", "keep_provider_text = true", "never its text"),
        ("retention", "receipts = \"25 weeks\"", "replay_horizon"),
        ("retention", "snapshots = \"3d\"", "whole weeks"),
    ] {
        let refused = refusal(&with(table, line), &[]);
        assert!(refused.contains(expected), "{line}: {refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
}

#[test]
fn a_configuration_needs_a_digest_and_its_destination() {
    assert!(refusal("", &[]).contains("[destination.NAME]"));
    assert!(refusal("[destination.retail]\nprovider = \"maildir\"", &[]).contains("[digest.TYPE]"));
    let refused = refusal(&SMALLEST.replace("= \"retail\"", "= \"retial\""), &[]);
    assert!(refused.contains("there is no [destination.retial]; there is: retail"), "{refused}");
}

#[test]
fn the_lease_is_three_times_the_longest_send_and_at_least_five_minutes() {
    let smtp = load(&SMALLEST.replace("maildir", "smtp"), &[]).unwrap();
    assert_eq!(smtp.destinations["retail"].lease, SignedDuration::from_mins(30));
    let short = load(&with("destination.retail", "send_timeout = \"1s\"\nlease = \"auto\""), &[]).unwrap();
    assert_eq!(short.destinations["retail"].lease, SignedDuration::from_mins(5));
    let explicit = load(&with("destination.retail", "lease = \"31s\""), &[]).unwrap();
    assert_eq!(explicit.destinations["retail"].lease, SignedDuration::from_secs(31));
}

#[test]
fn the_environment_overrides_the_file_and_its_types_fit() {
    let config = load(
        SMALLEST,
        &[
            "ENVIRONMENT=staging",
            "LEDGER__AUTO_MIGRATE=false",
            "RUN__MAX_IN_FLIGHT=50",
            "ROLLOUT__MODE=enforce",
            "ROLLOUT__COHORT=100%",
            "DIGEST__WEEKLY_ACTIVITY__CONTENT_VERSION=2026",
            "DESTINATION__RETAIL__RATE=300/min",
            "DESTINATION__RETAIL__PATH=out",
            "KEYRING=text",
            "TEST_CLOCK_OFFSET=-3600",
        ],
    )
    .unwrap();
    assert_eq!(config.environment, "staging");
    assert!(!config.ledger.auto_migrate);
    assert_eq!(config.run.max_in_flight, 50);
    assert_eq!((config.rollout.mode, config.rollout.cohort), (Mode::Enforce, 1.0));
    assert_eq!(config.digests.values().next().unwrap().content_version.as_str(), "2026");
    let retail = &config.destinations["retail"];
    assert_eq!(retail.rate, Some(Rate { interval: SignedDuration::from_millis(200), burst: 5 }));
    assert_eq!(retail.settings.text("path").unwrap(), Some("out"));
    assert_eq!(retail.settings.section, "destination.retail");
    assert!(matches!(config.keyring, KeyringSource::Environment(_)));
    assert_eq!(config.clock_offset, SignedDuration::from_hours(-1));
}

#[test]
fn the_test_clock_is_refused_in_production() {
    let refused = refusal(&with("", "environment = \"production\""), &["TEST_CLOCK_OFFSET=0"]);
    assert!(refused.contains("COUNTERFOIL_TEST_CLOCK_OFFSET") && refused.contains("production"), "{refused}");
    let refused = refusal(SMALLEST, &["ENVIRONMENT=production", "TEST_CLOCK_OFFSET=0"]);
    assert!(refused.contains("production"), "{refused}");
    for text in ["1.5", "", "1h", "99999999999"] {
        assert!(refusal(SMALLEST, &[&format!("TEST_CLOCK_OFFSET={text}")]).contains("whole number of seconds"));
    }
}

#[test]
fn a_configuration_shows_no_secret_in_debug_output() {
    let config = load(
        SMALLEST,
        &["LEDGER__URL=postgres://u:canary@h/d", "KEYRING=canary", "DESTINATION__RETAIL__PASSWORD=canary"],
    )
    .unwrap();
    assert!(!format!("{config:?}").contains("canary"));
}

#[test]
fn a_missing_file_says_how_to_make_one() {
    let error = Config::load_with(Path::new("/nowhere/c.toml"), &BTreeMap::new(), KINDS).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/c.toml: ") && error.contains("counterfoil init"), "{error}");
}
