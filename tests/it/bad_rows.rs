//! A table of rows and files that must be refused, each with its line, field and reason; and what sealing promises
//! about the good ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "clippy.toml allows these in tests, but not in the functions that tests share"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil::identity::canonical_json;
use counterfoil::snapshot::{
    BadRow, BadRows, ContentCheck, InputError, MAX_LINE_BYTES, OnBadRow, PART_ROWS, Row, RowChecks, RowFault,
    SealError, SealOptions, Sealed, Store, StoreError, lines, seal,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Stands for a customer's data in every table below: no message may repeat it.
const CANARY: &str = "CANARY";

/// What a bundle's schema asks, in small: money is a decimal string.
struct MoneyIsText;

impl ContentCheck for MoneyIsText {
    fn check(&self, row: &Row) -> Result<(), RowFault> {
        let transactions = row.data.get("transactions").and_then(Value::as_array);
        for (index, transaction) in transactions.into_iter().flatten().enumerate() {
            let field = format!("data.transactions[{index}].amount");
            let Some(amount) = transaction.get("amount").and_then(Value::as_str) else {
                return Err(RowFault::new(field, "must be a decimal in a string"));
            };
            if !amount.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'.')) {
                return Err(RowFault::new(field, "is not a decimal"));
            }
        }
        Ok(())
    }
}

struct Fixture {
    directory: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("snapshots")).unwrap();
        Self { directory, store }
    }

    fn store_directory(&self) -> PathBuf {
        self.directory.path().join("snapshots")
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join("export.jsonl");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn seal_with(&self, bytes: &[u8], options: &SealOptions) -> Result<Sealed, SealError> {
        let destinations = BTreeSet::from(["retail".to_owned(), "private".to_owned()]);
        seal(&self.file(bytes), &self.store, &RowChecks::new(&destinations, &MoneyIsText), options, &|_| {})
    }

    fn seal(&self, bytes: &[u8]) -> Result<Sealed, SealError> {
        self.seal_with(bytes, &options(OnBadRow::Refuse))
    }

    fn set_aside(&self, bytes: &[u8]) -> Result<Sealed, SealError> {
        self.seal_with(bytes, &options(OnBadRow::SetAside))
    }

    fn bad_rows(&self, bytes: &[u8]) -> BadRows {
        match self.seal(bytes) {
            Err(SealError::BadRows(bad)) => bad,
            other => panic!("{other:?}"),
        }
    }

    /// The sealed rows, read back part by part.
    fn sealed_lines(&self, id: &str) -> Vec<Vec<u8>> {
        let manifest = self.store.manifest(id).unwrap();
        let parts = (0..).take(manifest.part_rows.len()).map(|number| self.store.part(id, number).unwrap());
        parts.flat_map(|part| lines(&part).map(<[u8]>::to_vec).collect::<Vec<_>>()).collect()
    }

    fn assert_holds_nothing(&self) {
        assert_eq!(self.store.list().unwrap(), []);
        assert_eq!(self.entries(), [".lock"]);
    }

    fn entries(&self) -> Vec<String> {
        let names = fs::read_dir(self.store_directory()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn options(on_bad_row: OnBadRow) -> SealOptions {
    let sealed_at = "2026-08-10T06:00:00Z".parse().unwrap();
    SealOptions { on_bad_row, rejects: None, expect_rows: None, expect_sha256: None, sealed_at }
}

fn row(customer: &str) -> Value {
    json!({
        "customer_id": customer, "email": "c@example.test", "name": "Ada Example", "locale": "de-CH",
        "time_zone": "Europe/Zurich", "destination": "retail", "unsubscribe_url": "https://example.test/u/1",
        "data": {"transactions": [{"amount": "1.00"}, {"amount": "-2.50"}]}
    })
}

/// A good row with one member replaced.
fn with(member: &str, value: impl Into<Value>) -> Vec<u8> {
    let mut row = row("customer_bad");
    row[member] = value.into();
    row.to_string().into_bytes()
}

/// A good row without one member.
fn without(member: &str) -> Vec<u8> {
    let mut row = row("customer_bad");
    row.as_object_mut().unwrap().remove(member).unwrap();
    row.to_string().into_bytes()
}

/// A good row with raw JSON text as the member `x` of `data`.
fn with_raw(text: &str) -> Vec<u8> {
    format!(r#"{{"customer_id":"customer_bad","email":"c@example.test","data":{{"list":[0,{{"x":{text}}}]}}}}"#)
        .into_bytes()
}

fn export(rows: &[&[u8]]) -> Vec<u8> {
    rows.iter().flat_map(|row| [*row, b"\n"].concat()).collect()
}

fn good(customers: &[&str]) -> Vec<u8> {
    customers.iter().flat_map(|customer| format!("{}\n", row(customer)).into_bytes()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn utf_16(text: &str, to_bytes: impl Fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(to_bytes).collect()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Bad texts with the reason that each must get.
type Texts<'a> = &'a [(&'a str, &'a str)];

const IDS: Texts<'_> = &[
    ("", "is empty"),
    (" CANARY", "white space"),
    ("CANARY\u{a0}", "white space"),
    ("CANARY\u{3000}", "white space"),
    ("CANARY\n", "control character"),
    ("CAN\u{0}ARY", "control character"),
    ("CANARY\u{7f}", "control character"),
    ("CANARY\u{85}x", "control character"),
];

const ADDRESSES: Texts<'_> = &[
    ("", "is empty"),
    ("CANARY", "has no @"),
    ("CANARY.example.test", "has no @"),
    ("@CANARY.test", "nothing before the @"),
    ("CANARY@", "nothing behind the @"),
    ("CANARY@@example.test", "exactly one address"),
    ("CANARY@a@example.test", "exactly one address"),
    ("CANARY@example.test,b@example.test", "exactly one address"),
    ("CANARY@example.test;b@example.test", "exactly one address"),
    ("Ada <CANARY@example.test>", "bare address"),
    ("\"CANARY x\"@example.test", "quoted local part"),
    ("CAN ARY@example.test", "white space"),
    (" CANARY@example.test", "white space"),
    ("CANARY@example.test ", "white space"),
    ("CANARY@example.test\r\nBcc: x@example.test", "control character or a line break"),
    ("CANARY@exam\u{0}ple.test", "control character"),
    (".CANARY@example.test", "dot at an end"),
    ("CANARY.@example.test", "dot at an end"),
    ("CAN..ARY@example.test", "two in a row"),
    ("CANARY(x)@example.test", "must not stand there"),
    ("CAN\\ARY@example.test", "must not stand there"),
    ("CANÄRY@example.test", "beyond ASCII"),
    ("CANARY@localhost", "domain that cannot exist"),
    ("CANARY@example..test", "domain that cannot exist"),
    ("CANARY@.example.test", "domain that cannot exist"),
    ("CANARY@example.test.", "domain that cannot exist"),
    ("CANARY@-example.test", "domain that cannot exist"),
    ("CANARY@example-.test", "domain that cannot exist"),
    ("CANARY@exam_ple.test", "domain that cannot exist"),
    ("CANARY@exam!ple.test", "domain that cannot exist"),
    ("CANARY@xn--a.test", "domain that cannot exist"),
    ("CANARY@192.0.2.1", "domain that cannot exist"),
    ("CANARY@example.123", "domain that cannot exist"),
    ("CANARY@[192.0.2.1]", "IP address"),
    ("CANARY@exam\u{200b}ple.test", "invisible character"),
    ("CANARY\u{202e}@example.test", "invisible character"),
];

const NAMES: Texts<'_> = &[
    ("", "is empty"),
    ("  ", "is empty"),
    ("CANARY\r\nBcc: x@example.test", "control character or a line break"),
    ("CANARY\nx", "control character or a line break"),
    ("CANARY\u{2028}x", "control character or a line break"),
    ("CANARY\u{1b}[31m", "control character or a line break"),
];

const LOCALES: Texts<'_> = &[
    ("xx-XX", "language that is not known"),
    ("de-XX", "region that is not known"),
    ("zh-Abcd", "script that is not known"),
    ("de_CH", "not a BCP 47 locale"),
    ("CANARY-CANARY", "not a BCP 47 locale"),
    ("", "not a BCP 47 locale"),
];

const ZONES: Texts<'_> = &[
    ("Mars/CANARY", "is no time zone"),
    ("", "is no time zone"),
    ("UTC+1", "is no time zone"),
    ("../etc/passwd", "is no time zone"),
    ("europe/zurich", "upper and lower case"),
    ("Factory", "placeholder"),
    ("Etc/Unknown", "placeholder"),
];

const URLS: Texts<'_> = &[
    ("http://example.test/CANARY", "must begin with https://"),
    ("mailto:CANARY@example.test", "must begin with https://"),
    ("javascript:alert(1)", "must begin with https://"),
    ("//example.test/CANARY", "must begin with https://"),
    ("", "must begin with https://"),
    ("https://", "not a URL"),
    ("https://exa%mple.test/", "not a URL"),
    ("https://CANARY:x@example.test/", "user name or password"),
    ("https://CANARY@example.test/", "user name or password"),
    ("https://example.test/\r\nBcc: CANARY", "must not stand in a URL"),
    ("https://example.test/CAN ARY", "must not stand in a URL"),
    ("https://example.test/>CANARY", "must not stand in a URL"),
    ("https://example.test/zoë", "must not stand in a URL"),
];

/// Every bad row: its bytes, the field and a part of the reason.
fn bad_rows() -> Vec<(Vec<u8>, &'static str, String)> {
    let mut table: Vec<(Vec<u8>, &'static str, String)> = Vec::new();
    let members = [
        ("customer_id", IDS),
        ("email", ADDRESSES),
        ("name", NAMES),
        ("locale", LOCALES),
        ("time_zone", ZONES),
        ("unsubscribe_url", URLS),
        ("destination", &[("CANARY", "is not configured; configured: private, retail"), ("", "is not configured")]),
    ];
    for (member, texts) in members {
        table.extend(texts.iter().map(|(text, reason)| (with(member, *text), member, (*reason).to_owned())));
        table.push((with(member, 8421), member, "must be a text, not a number".to_owned()));
        table.push((with(member, json!([CANARY])), member, "must be a text, not an array".to_owned()));
        table.push((with(member, Value::Null), member, "null".to_owned()));
    }
    for member in ["customer_id", "email", "data"] {
        table.push((without(member), member, "is missing".to_owned()));
    }
    table.extend(bad_lengths());
    table.extend(
        bad_data()
            .into_iter()
            .chain(bad_members())
            .chain(bad_lines())
            .map(|(row, field, reason)| (row, field, reason.to_owned())),
    );
    table
}

fn bad_lengths() -> Vec<(Vec<u8>, &'static str, String)> {
    let long = |count: usize| CANARY.repeat(count / CANARY.len() + 1);
    [
        (with("customer_id", "C".repeat(300)), "customer_id", "longer than 256 bytes"),
        (with("customer_id", "é".repeat(129)), "customer_id", "longer than 256 bytes"),
        (with("email", format!("{}@example.test", "C".repeat(65))), "email", "more than 64 bytes before the @"),
        (with("email", format!("c@{}.test", "d.".repeat(130))), "email", "cannot exist"),
        (with("email", format!("{}@{}.test", "c".repeat(64), ["d"; 120].join("."))), "email", "longer than 254 bytes"),
        (with("email", format!("c@{}.test", "d".repeat(64))), "email", "cannot exist"),
        (with("email", format!("{}@example.test", long(2_000))), "email", "longer than 254 bytes"),
        (with("name", long(512)), "name", "longer than 512 bytes"),
        (with("locale", format!("de-{}", "a1b2c3-".repeat(30))), "locale", "not a BCP 47 locale"),
        (
            with("unsubscribe_url", format!("https://example.test/{}", long(900))),
            "unsubscribe_url",
            "longer than 900 bytes",
        ),
    ]
    .map(|(row, field, reason)| (row, field, reason.to_owned()))
    .into()
}

type Case = (Vec<u8>, &'static str, &'static str);

fn bad_data() -> Vec<Case> {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    vec![
        (with("data", CANARY), "data", "must be an object, not a text"),
        (with("data", json!([CANARY])), "data", "must be an object, not an array"),
        (with("data", Value::Null), "data", "must be an object, not null"),
        (
            with("data", json!({"transactions": [{"amount": "1"}, {"amount": 1.5}]})),
            "data.transactions[1].amount",
            "decimal in a string",
        ),
        (with("data", json!({"transactions": [{"amount": CANARY}]})), "data.transactions[0].amount", "not a decimal"),
        (with_raw("1e400"), "data.list[1].x", "exponent beyond ±300"),
        (with_raw("-1e400"), "data.list[1].x", "exponent beyond ±300"),
        (with_raw("1e-400"), "data.list[1].x", "exponent beyond ±300"),
        (with_raw("1e301"), "data.list[1].x", "exponent beyond ±300"),
        (with_raw("9007199254740992"), "data.list[1].x", "integer beyond ±9007199254740991"),
        (with_raw("-9007199254740992"), "data.list[1].x", "integer beyond"),
        (with_raw("12345678901234567"), "data.list[1].x", "integer beyond"),
        (with_raw("123456789.12345678"), "data.list[1].x", "more than 15 significant digits"),
        (with_raw(r#""\ud800CANARY""#), "", "not valid JSON at column"),
        (with_raw(r#""\udc00\ud800""#), "", "not valid JSON at column"),
        (with_raw("\"CANARY\u{1}\""), "", "control character"),
        (with_raw("\"CANARY\u{0}\""), "", "control character"),
        (with_raw("NaN"), "", "not valid JSON"),
        (with_raw("Infinity"), "", "not valid JSON"),
        (with_raw("01"), "", "not valid JSON"),
        (with_raw("'CANARY'"), "", "not valid JSON"),
        (with_raw("1,"), "", "not valid JSON"),
        (with_raw(&nested(200)), "", "nested more than 127 levels deep"),
        (with_raw(&"[".repeat(100_000)), "", "nested more than 127 levels deep"),
        (with_raw(r#"{"a":1,"b":2,"a":1}"#), "data.list[1].x.a", "twice"),
    ]
}

fn bad_members() -> Vec<Case> {
    let text = r#"{"customer_id":"CANARY","email":"c@example.test","data":{}"#;
    let ending = |rest: &str| format!("{text}{rest}").into_bytes();
    vec![
        (with("customer", CANARY), "customer", "is unknown; known are customer_id, email, name"),
        (with("Email", CANARY), "Email", "is unknown"),
        (with("CANARY@example.test", 1), "(not shown)", "is unknown"),
        (with("", 1), "(not shown)", "is unknown"),
        (with("customer_8421", 1), "(not shown)", "is unknown"),
        (ending(r#","email":"d@example.test"}"#), "email", "twice"),
        (ending(r#","\u0065mail":"c@example.test"}"#), "email", "twice"),
        (ending(r#","data":{}}"#), "data", "twice"),
    ]
}

fn bad_lines() -> Vec<Case> {
    let whole = row("CANARY").to_string();
    let mut not_utf_8 = with("name", "CANARY");
    let at = not_utf_8.iter().position(|b| *b == b'C').unwrap();
    not_utf_8[at] = 0xff;
    let long = with("data", json!({"x": "x".repeat(MAX_LINE_BYTES)}));
    vec![
        (format!("[{whole}]").into_bytes(), "", "must be one JSON object, not an array"),
        (b"\"CANARY\"".to_vec(), "", "must be one JSON object, not a text"),
        (b"null".to_vec(), "", "must be one JSON object, not null"),
        (b"8421".to_vec(), "", "must be one JSON object, not a number"),
        (b"CANARY,c@example.test".to_vec(), "", "not valid JSON at column 1"),
        (format!("{whole}{whole}").into_bytes(), "", "not valid JSON"),
        (format!("{whole},").into_bytes(), "", "not valid JSON"),
        (format!("{whole}\0").into_bytes(), "", "not valid JSON"),
        (whole.as_bytes()[..whole.len() / 2].to_vec(), "", "the text ends too early"),
        (format!("\u{feff}{whole}").into_bytes(), "", "byte order mark"),
        (not_utf_8, "", "not valid UTF-8 at byte "),
        (long, "", "longer than 1048576 bytes"),
    ]
}

#[test]
fn every_bad_row_is_named_by_line_field_and_reason_and_nothing_is_sealed() {
    let fixture = Fixture::new();
    let table = bad_rows();
    assert!(table.len() > 150, "{}", table.len());
    for (bad, field, reason) in table {
        let text = String::from_utf8_lossy(&bad[..bad.len().min(200)]).into_owned();
        let before = row("customer_1").to_string();
        let after = row("customer_2").to_string();
        let found = fixture.bad_rows(&export(&[before.as_bytes(), b"", &bad, after.as_bytes()]));
        assert_eq!(found.total, 1, "{text}");
        let [BadRow { line: 3, field: found_field, reason: found_reason }] = found.first.as_slice() else {
            panic!("{text}: {found:?}");
        };
        assert_eq!(found_field, field, "{text}: {found_reason}");
        assert!(found_reason.contains(&reason), "{text}: {found_reason}");
        assert!(!found.to_string().contains(CANARY), "{found}");
        assert!(found.to_string().lines().all(|line| !line.contains(char::is_control)));
    }
    fixture.assert_holds_nothing();
}

#[test]
fn a_file_that_is_no_export_is_refused_as_a_whole() {
    let fixture = Fixture::new();
    let rows = good(&["CANARY", "customer_2", "customer_3"]);
    let text = String::from_utf8(rows.clone()).unwrap();
    let compressed = gzip(&rows);
    let mut damaged = compressed.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let frames = zstd(&rows);
    let mut wrong_sum = compressed.clone();
    let end = wrong_sum.len();
    wrong_sum[end - 6] ^= 1;
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "holds no rows"),
        (b"\n \r\n\t\n".to_vec(), "holds no rows"),
        (b"\xef\xbb\xbf".to_vec(), "holds no rows"),
        (gzip(b""), "holds no rows"),
        ([b"\xff\xfe".to_vec(), utf_16(&text, u16::to_le_bytes)].concat(), "is UTF-16"),
        ([b"\xfe\xff".to_vec(), utf_16(&text, u16::to_be_bytes)].concat(), "is UTF-16"),
        (utf_16(&text, u16::to_le_bytes), "is UTF-16 text"),
        (utf_16(&text, u16::to_be_bytes), "is UTF-16 text"),
        (gzip(&utf_16(&text, u16::to_le_bytes)), "is UTF-16 text"),
        (b"PAR1\x15\x04\x15CANARY".to_vec(), "is a Parquet file"),
        (b"PK\x03\x04\x14\x00CANARY".to_vec(), "is a ZIP archive"),
        (b"\xfd7zXZ\x00CANARY".to_vec(), "is an xz file"),
        (b"BZh91AY&SYCANARY".to_vec(), "is a bzip2 file"),
        (b"%PDF-1.7 CANARY".to_vec(), "is a PDF file"),
        ([b"[".to_vec(), rows.clone(), b"]".to_vec()].concat(), "is a JSON array"),
        ([b"\xef\xbb\xbf[\n".to_vec(), rows.clone()].concat(), "is a JSON array"),
        (b"{\n  \"customer_id\": \"CANARY\"\n}\n".to_vec(), "is one JSON text over several lines"),
        (b"email;customer_id;name\nCANARY;CANARY;CANARY\n".to_vec(), "is a table with a heading"),
        (b"\x7fELF\x02\x01\x01\x00CANARY".to_vec(), "is a binary file"),
        (gzip(&compressed), "is compressed twice"),
        (compressed[..compressed.len() / 2].to_vec(), "ends in the middle of its gzip data"),
        (compressed[..compressed.len() - 3].to_vec(), "ends in the middle of its gzip data"),
        (compressed[..5].to_vec(), "ends in the middle of its gzip data"),
        ([compressed.clone(), compressed[..15].to_vec()].concat(), "ends in the middle of its gzip data"),
        (damaged, "damaged gzip data"),
        (wrong_sum, "damaged gzip data"),
        ([compressed, b"CANARY CANARY".to_vec()].concat(), "damaged gzip data"),
        (frames[..frames.len() / 2].to_vec(), "ends in the middle of its zstd data"),
        (frames[..frames.len() - 2].to_vec(), "ends in the middle of its zstd data"),
        ([frames[..4].to_vec(), vec![0xff; 60]].concat(), "damaged zstd data"),
    ];
    for (number, (bytes, reason)) in cases.iter().enumerate() {
        let error = chain(&fixture.seal(bytes).unwrap_err());
        assert!(error.contains(reason), "case {number}: {error}");
        assert!(!error.contains(CANARY), "case {number}: {error}");
    }
    fixture.assert_holds_nothing();
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let fixture = Fixture::new();
    let destinations = BTreeSet::new();
    let checks = RowChecks::new(&destinations, &MoneyIsText);
    let options = options(OnBadRow::Refuse);
    for path in [fixture.directory.path().join("absent.jsonl"), fixture.directory.path().to_owned()] {
        let error = seal(&path, &fixture.store, &checks, &options, &|_| {}).unwrap_err();
        assert!(matches!(&error, SealError::Input(InputError::Read { path: named, .. }) if *named == path), "{error}");
    }
}

#[test]
fn a_file_cut_in_its_last_row_names_that_row() {
    let fixture = Fixture::new();
    let rows = good(&["customer_1", "customer_2", "customer_3"]);
    let bad = fixture.bad_rows(&rows[..rows.len() - 20]);
    assert_eq!(bad.first.len(), 1);
    assert_eq!((bad.first[0].line, bad.first[0].field.as_str()), (3, ""));
    assert!(bad.first[0].reason.contains("the text ends too early"));
}

#[test]
fn a_byte_order_mark_crlf_blank_lines_and_a_missing_last_line_feed_change_nothing() {
    let fixture = Fixture::new();
    let rows = good(&["customer_1", "customer_2"]);
    let text = String::from_utf8(rows.clone()).unwrap();
    let id = fixture.seal(&rows).unwrap().manifest.id;
    for variant in [
        format!("\u{feff}{text}"),
        text.replace('\n', "\r\n"),
        text.replace('\n', "\n\n \t\r\n"),
        text.trim_end().to_owned(),
        format!("\n{text}"),
    ] {
        let sealed = fixture.seal(variant.as_bytes()).unwrap();
        assert_eq!((sealed.manifest.id.as_str(), sealed.found, sealed.input_rows), (id.as_str(), true, 2));
    }
}

#[test]
fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
    let fixture = Fixture::new();
    let overhead = with("data", json!({"x": ""})).len();
    let of_length = |length: usize| with("data", json!({"x": "x".repeat(length - overhead)}));
    let rows = |length| [good(&["a"]), of_length(length), b"\r\n".to_vec(), good(&["b"])].concat();
    assert_eq!(fixture.seal(&rows(MAX_LINE_BYTES)).unwrap().manifest.rows, 3);
    for beyond in [1, 2, 3, 4, 5, 3 * MAX_LINE_BYTES] {
        let bad = fixture.bad_rows(&rows(MAX_LINE_BYTES + beyond));
        assert_eq!((bad.total, bad.first[0].line), (1, 2));
        assert_eq!(bad.first[0].reason, "is longer than 1048576 bytes");
    }
}

#[test]
fn the_same_content_finds_the_same_id_however_it_is_written() {
    let fixture = Fixture::new();
    let rows = good(&["customer_1", "customer_2"]);
    let first = fixture.seal(&rows).unwrap();
    assert!(!first.found);
    let (one, two) = rows.split_at(rows.iter().position(|b| *b == b'\n').unwrap() + 1);
    let reordered: Vec<u8> = [&b"customer_1"[..], b"customer_2"]
        .iter()
        .flat_map(|id| {
            let mut text = row(std::str::from_utf8(id).unwrap()).to_string();
            let email = r#""email":"c@example.test","#;
            text = text.replace(email, "");
            format!("{{ {email} {}\n", &text[1..]).into_bytes()
        })
        .collect();
    for variant in [
        gzip(&rows),
        [gzip(one), gzip(two)].concat(),
        zstd(&rows),
        [zstd(one), zstd(two)].concat(),
        [b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip".to_vec(), zstd(&rows)].concat(),
        reordered,
    ] {
        let sealed = fixture.seal(&variant).unwrap();
        assert_eq!(sealed.manifest, first.manifest);
        assert!(sealed.found);
    }
    let other = fixture.seal(&[two, one].concat()).unwrap();
    assert_ne!(other.manifest.id, first.manifest.id, "another order of the rows is another snapshot");
    assert_eq!(fixture.store.list().unwrap().len(), 2);
}

#[test]
fn the_id_and_the_hashes_are_the_documented_ones() {
    let fixture = Fixture::new();
    let customers: Vec<String> = (0..2_345).map(|n| format!("customer_{n}")).collect();
    let rows = good(&customers.iter().map(String::as_str).collect::<Vec<_>>());
    let sealed = fixture.seal(&rows).unwrap();
    let lines = fixture.sealed_lines(&sealed.manifest.id);
    let hex = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(sealed.manifest.part_rows, [PART_ROWS as u32, PART_ROWS as u32, 345]);
    assert_eq!(sealed.manifest.rows, 2_345);
    assert_eq!(sealed.manifest.id, hex(&export(&lines.iter().map(Vec::as_slice).collect::<Vec<_>>())));
    assert_eq!(sealed.input_sha256, hex(&rows));
    for (line, customer) in lines.iter().zip(&customers) {
        assert_eq!(Row::from_sealed(line).unwrap().customer_id.as_str(), customer);
        assert_eq!(canonical_json::canonical(&row(customer)), *line);
    }
}

#[test]
fn files_and_directories_of_the_store_are_their_owners_alone() {
    let fixture = Fixture::new();
    let rows = [good(&["customer_1"]), b"{}\n".to_vec()].concat();
    let sealed = fixture.set_aside(&rows).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let directory = fixture.store_directory().join(&sealed.manifest.id);
    assert_eq!(mode(&fixture.store_directory()), 0o700);
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&sealed.rejects.unwrap()), 0o600);
    let files: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "a manifest and one part");
    assert!(files.iter().all(|file| mode(file) == 0o600));
}

#[test]
fn awkward_but_valid_rows_are_sealed_and_stay_distinct() {
    let fixture = Fixture::new();
    let ids = ["auth0|1", "auth0\\|1", "auth0\\\\|1", "a|b", "a\\b", "tenant:1/a", "ключ", "👩‍👩‍👧‍👦", "a b", "\u{200b}"];
    let mut rows: Vec<Value> = ids.iter().map(|id| row(id)).collect();
    rows.extend((0..6).map(|n| row(&format!("customer_{n}"))));
    rows[10]["name"] = json!("Renée \"Quote\" <b>, O'Neill");
    rows[11]["locale"] = json!("en-UK");
    rows[12]["email"] = json!("zoë".replace('ë', "e") + "@münchen.example");
    rows[13]["time_zone"] = json!("UTC");
    rows[14]["data"] = json!({});
    for member in ["name", "locale", "time_zone", "destination", "unsubscribe_url"] {
        rows[15].as_object_mut().unwrap().remove(member);
    }
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let sealed = fixture.seal(text.as_bytes()).unwrap();
    let read: Vec<Row> =
        fixture.sealed_lines(&sealed.manifest.id).iter().map(|l| Row::from_sealed(l).unwrap()).collect();
    let found: Vec<&str> = read.iter().map(|row| row.customer_id.as_str()).collect();
    assert_eq!(found[..ids.len()], ids);
    assert_eq!(read[11].locale.as_deref(), Some("en-GB"));
    assert_eq!(read[12].email.to_string(), "zoe@xn--mnchen-3ya.example");
    assert_eq!(read[15].name, None);
}

#[test]
fn composed_and_decomposed_ids_are_one_customer() {
    let fixture = Fixture::new();
    let alike = fixture.seal(&good(&["Zo\u{eb}", "Zoe\u{308}"])).unwrap();
    assert_eq!((alike.manifest.rows, alike.repeated), (1, 1));
    let line = &fixture.sealed_lines(&alike.manifest.id)[0];
    assert_eq!(Row::from_sealed(line).unwrap().customer_id.as_str(), "Zo\u{eb}");
    let mut other = row("Zoe\u{308}");
    other["name"] = json!("Other");
    let bad = fixture.bad_rows(&[good(&["Zo\u{eb}"]), other.to_string().into_bytes()].concat());
    assert_eq!(bad.total, 2);
}

#[test]
fn a_row_repeated_alike_is_sealed_once_and_counted() {
    let fixture = Fixture::new();
    let once = fixture.seal(&good(&["a", "b", "c"])).unwrap();
    let repeated = fixture.seal(&good(&["a", "b", "a", "c", "b", "a"])).unwrap();
    assert_eq!(repeated.manifest, once.manifest, "the same content, sealed before");
    assert_eq!((repeated.input_rows, repeated.repeated, repeated.rejected, repeated.found), (6, 3, 0, true));
    let fresh = fixture.seal(&good(&["c", "a", "a"])).unwrap();
    assert_eq!((fresh.manifest.rows, fresh.manifest.repeated), (2, 1));
    assert_eq!(fixture.sealed_lines(&fresh.manifest.id).len(), 2);
}

#[test]
fn one_customer_with_two_contents_makes_bad_rows_of_both() {
    let fixture = Fixture::new();
    let mut other = row("b");
    other["email"] = json!("CANARY@example.test");
    let rows = [good(&["a", "b", "c"]), format!("\n{other}\n").into_bytes(), good(&["c", "b"])].concat();
    let bad = fixture.bad_rows(&rows);
    let text = |line: u64, other: u64| BadRow {
        line,
        field: "customer_id".to_owned(),
        reason: format!("is the customer of line {other} too, with different content"),
    };
    assert_eq!(bad.first, [text(2, 5), text(5, 2), text(7, 5)]);
    assert_eq!(bad.total, 3);
    fixture.assert_holds_nothing();

    let sealed = fixture.set_aside(&rows).unwrap();
    assert_eq!((sealed.manifest.rows, sealed.repeated, sealed.rejected, sealed.input_rows), (2, 1, 3, 6));
    let ids: Vec<String> = fixture
        .sealed_lines(&sealed.manifest.id)
        .iter()
        .map(|line| Row::from_sealed(line).unwrap().customer_id.as_str().to_owned())
        .collect();
    assert_eq!(ids, ["a", "c"]);
}

#[test]
fn set_aside_seals_the_good_rows_and_accounts_for_every_other_one() {
    let fixture = Fixture::new();
    let mut rows = Vec::new();
    let mut expected = Vec::new();
    for number in 0..3_000_u32 {
        let id = format!("customer_{number}");
        match number % 10 {
            3 => rows.extend(b"{\"CANARY\":1}\n"),
            7 => rows.extend(good(&["twice"]).iter().copied()),
            8 => rows.extend(
                [format!("{}\n", row("torn")).into_bytes(), with("customer_id", "torn"), b"\n".to_vec()].concat(),
            ),
            _ => {
                rows.extend(good(&[&id]));
                expected.push(id);
            }
        }
    }
    // So far the rows of "torn" are all alike. A single other one at the end makes every one of them contradict it.
    rows.extend([with("customer_id", "torn"), b"\n".to_vec()].concat());
    let mut torn = row("torn");
    torn["name"] = json!("Other");
    rows.extend(torn.to_string().into_bytes());

    let sealed = fixture.set_aside(&rows).unwrap();
    assert_eq!(sealed.repeated, 299, "twice");
    assert_eq!(sealed.rejected, 300 + 602);
    assert_eq!(sealed.input_rows, sealed.manifest.rows + sealed.repeated + sealed.rejected);
    expected.insert(expected.iter().position(|id| id == "customer_6").unwrap() + 1, "twice".to_owned());
    let ids: Vec<String> = fixture
        .sealed_lines(&sealed.manifest.id)
        .iter()
        .map(|line| Row::from_sealed(line).unwrap().customer_id.as_str().to_owned())
        .collect();
    assert_eq!(ids, expected);

    let path = sealed.rejects.unwrap();
    assert_eq!(path, fixture.store_directory().join(format!("{}.rejects.jsonl", sealed.manifest.id)));
    let text = fs::read_to_string(path).unwrap();
    let rejects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rejects.len() as u64, sealed.rejected);
    let numbers: Vec<u64> = rejects.iter().map(|reject| reject["line"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "each once, by line");
    assert_eq!(rejects[0], json!({"line": 4, "field": "CANARY", "reason": rejects[0]["reason"]}));
    assert_eq!(sealed.first_rejected.len(), 20);
    assert_eq!(sealed.first_rejected.iter().map(|row| row.line).collect::<Vec<_>>(), numbers[..20]);
}

#[test]
fn a_rejects_file_that_was_asked_for_is_written_even_when_empty() {
    let fixture = Fixture::new();
    let path = fixture.directory.path().join("rejects.jsonl");
    fs::write(&path, "{\"line\":9,\"field\":\"name\",\"reason\":\"last week's\"}\n").unwrap();
    let options = SealOptions { rejects: Some(path.clone()), ..options(OnBadRow::SetAside) };
    fixture.seal_with(&good(&["a"]), &options).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    fixture.seal_with(&[good(&["a"]), b"{}".to_vec()].concat(), &options).unwrap();
    let expected = "{\"line\":2,\"field\":\"customer_id\",\"reason\":\"is missing\"}\n";
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
}

#[test]
fn a_rejects_file_never_takes_the_place_of_anything_else() {
    let fixture = Fixture::new();
    let rows = [good(&["a"]), b"{}".to_vec()].concat();
    let keyring = fixture.directory.path().join("keyring.toml");
    fs::write(&keyring, "secret").unwrap();
    for (rejects, what) in [
        (fixture.directory.path().join("snapshots/../export.jsonl"), "is the export itself"),
        (fixture.directory.path().to_owned(), "is no regular file"),
        (PathBuf::from("/dev/null"), "is no regular file"),
        (keyring.clone(), "exists and is no rejects file"),
    ] {
        let options = SealOptions { rejects: Some(rejects), ..options(OnBadRow::SetAside) };
        let error = chain(&fixture.seal_with(&rows, &options).unwrap_err());
        assert!(error.contains(what) && error.contains("--rejects"), "{error}");
        assert_eq!(fs::read(fixture.file(&rows)).unwrap(), rows);
    }
    assert_eq!(fs::read_to_string(&keyring).unwrap(), "secret");
    assert_eq!(fixture.store.list().unwrap(), []);
}

#[test]
fn an_export_without_a_good_row_is_refused_even_when_bad_rows_are_set_aside() {
    let fixture = Fixture::new();
    let error = fixture.set_aside(b"{}\n[]\n").unwrap_err();
    assert!(matches!(&error, SealError::BadRows(bad) if bad.total == 2 && !bad.others_are_good), "{error}");
    assert!(error.to_string().ends_with("it has no good row"));
    fixture.assert_holds_nothing();
}

#[test]
fn the_error_names_twenty_rows_and_the_count_of_all() {
    let fixture = Fixture::new();
    let rows = [good(&["a"]), b"{}\n".repeat(25), good(&["b"])].concat();
    let bad = fixture.bad_rows(&rows);
    assert_eq!((bad.first.len(), bad.total), (20, 25));
    let text = bad.to_string();
    assert!(
        text.contains("export.jsonl: 25 bad rows, nothing was sealed\n  line 2: `customer_id` is missing\n"),
        "{text}"
    );
    assert!(text.contains("line 21: ") && !text.contains("line 22: "), "{text}");
    assert!(
        text.ends_with("  and 5 more\ncorrect the export, or seal the good rows alone with --on-bad-row set-aside"),
        "{text}"
    );
}

#[test]
fn another_count_or_hash_than_expected_is_refused() {
    let fixture = Fixture::new();
    let rows = [good(&["a", "b", "a"]), b"\n".to_vec()].concat();
    let compressed = gzip(&rows);
    let hash: [u8; 32] = Sha256::digest(&compressed).into();
    let expecting = |rows, hash| SealOptions { expect_rows: rows, expect_sha256: hash, ..options(OnBadRow::Refuse) };
    let refused = |bytes: &[u8], options: &SealOptions| fixture.seal_with(bytes, options).unwrap_err().to_string();

    assert!(refused(&compressed, &expecting(Some(2), None)).contains("has 3 rows, but 2 were expected"));
    assert!(refused(&rows, &expecting(None, Some(hash))).contains("SHA-256"));
    let cut = &compressed[..compressed.len() - 9];
    assert!(refused(cut, &expecting(None, Some(hash))).contains("SHA-256"), "the hash explains the cut");
    assert!(refused(cut, &expecting(Some(3), None)).contains("ends in the middle of its gzip data"));
    assert!(refused(b"{}\n", &expecting(Some(1), None)).contains("1 bad row,"));
    fixture.assert_holds_nothing();

    let sealed = fixture.seal_with(&compressed, &expecting(Some(3), Some(hash))).unwrap();
    assert_eq!(sealed.input_rows, 3);
}

#[test]
fn progress_ends_at_the_number_of_rows() {
    let fixture = Fixture::new();
    let customers: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let path = fixture.file(&good(&customers.iter().map(String::as_str).collect::<Vec<_>>()));
    let destinations = BTreeSet::from(["retail".to_owned()]);
    let last = AtomicU64::new(0);
    let progress = |rows| assert!(last.swap(rows, Ordering::Relaxed) < rows);
    let checks = RowChecks::new(&destinations, &MoneyIsText);
    seal(&path, &fixture.store, &checks, &options(OnBadRow::Refuse), &progress).unwrap();
    assert_eq!(last.load(Ordering::Relaxed), 1_000);
}

#[test]
fn damage_is_noticed_and_mended_by_sealing_again() {
    let fixture = Fixture::new();
    let customers: Vec<String> = (0..1_500).map(|n| n.to_string()).collect();
    let rows = good(&customers.iter().map(String::as_str).collect::<Vec<_>>());
    let first = fixture.seal(&rows).unwrap().manifest;
    let directory = fixture.store_directory().join(&first.id);
    let part = directory.join("part-000001.jsonl");
    let original = fs::read(&part).unwrap();
    let mut damaged = original.clone();
    damaged[10] ^= 1;
    for damage in [Some(damaged), Some(original[..100].to_vec()), None] {
        match damage {
            Some(bytes) => fs::write(&part, bytes).unwrap(),
            None => fs::remove_file(&part).unwrap(),
        }
        fs::write(directory.join("marker"), "kept").unwrap();
        assert!(fixture.store.part(&first.id, 0).is_ok());
        let error = fixture.store.part(&first.id, 1).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { path } if *path == part), "{error}");
        let again = fixture.seal(&rows).unwrap();
        assert!(again.found);
        assert_eq!(again.manifest, first);
        assert_eq!(fixture.store.part(&first.id, 1).unwrap(), original);
        assert!(directory.join("marker").exists(), "what else stands there is left alone");
    }
    fs::write(directory.join("manifest.json"), "{").unwrap();
    assert!(matches!(fixture.store.manifest(&first.id), Err(StoreError::Damaged { .. })));
    assert!(matches!(fixture.store.list(), Err(StoreError::Damaged { .. })));
    assert_eq!(fixture.seal(&rows).unwrap().manifest, first);
    assert_eq!(fixture.store.list().unwrap(), [first]);
}

#[test]
fn what_is_not_there_is_told_apart_from_what_cannot_be() {
    let fixture = Fixture::new();
    let absent = "a".repeat(64);
    assert!(matches!(fixture.store.manifest(&absent), Err(StoreError::Absent { .. })));
    for id in ["", "..", "../../etc/passwd", &"A".repeat(64), &"a".repeat(63), "."] {
        assert!(matches!(fixture.store.manifest(id), Err(StoreError::Id)));
        assert!(matches!(fixture.store.part(id, 0), Err(StoreError::Id)));
    }
    let id = fixture.seal(&good(&["a"])).unwrap().manifest.id;
    assert!(matches!(fixture.store.part(&id, 1), Err(StoreError::AbsentPart { number: 1, .. })));
    assert_eq!(fixture.store.latest().unwrap().unwrap().id, id);
}

#[test]
fn the_latest_snapshot_is_the_one_sealed_last() {
    let fixture = Fixture::new();
    let mut ids = Vec::new();
    for (day, customer) in ["b", "a", "c"].into_iter().enumerate() {
        let sealed_at = format!("2026-08-1{day}T06:00:00Z").parse().unwrap();
        let options = SealOptions { sealed_at, ..options(OnBadRow::Refuse) };
        ids.push(fixture.seal_with(&good(&[customer]), &options).unwrap().manifest.id);
    }
    let listed: Vec<String> = fixture.store.list().unwrap().into_iter().map(|manifest| manifest.id).collect();
    assert_eq!(listed, ids);
    assert_eq!(fixture.store.latest().unwrap().unwrap().id, ids[2]);
}

#[test]
fn leftovers_of_a_dead_process_are_removed_and_those_of_a_living_one_are_not() {
    let fixture = Fixture::new();
    let root = fixture.store_directory();
    for name in [".sealing-dead", ".sealing-unlocked", ".sealing-alive"] {
        fs::create_dir_all(root.join(name).join("all")).unwrap();
    }
    fs::write(root.join(".sealing-dead/lock"), "").unwrap();
    fs::write(root.join(".sealing-dead/all/part-000000.jsonl"), "{").unwrap();
    let held = fs::File::create(root.join(".sealing-alive/lock")).unwrap();
    held.lock().unwrap();
    let id = fixture.seal(&good(&["a"])).unwrap().manifest.id;
    assert_eq!(fixture.entries(), [".lock", ".sealing-alive", &id]);
    drop(held);
    fixture.seal(&good(&["a"])).unwrap();
    assert_eq!(fixture.entries(), [".lock", &id]);
    assert_eq!(fixture.store.list().unwrap().len(), 1);
}

#[test]
fn many_may_seal_the_same_and_other_content_at_once() {
    let fixture = Fixture::new();
    let destinations = BTreeSet::from(["retail".to_owned()]);
    let checks = RowChecks::new(&destinations, &MoneyIsText);
    let exports: Vec<PathBuf> = ["a", "b"]
        .iter()
        .map(|customer| {
            let path = fixture.directory.path().join(format!("{customer}.jsonl"));
            fs::write(&path, good(&[customer, "c"])).unwrap();
            path
        })
        .collect();
    let sealed: Vec<Sealed> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|number| {
                let (path, store, checks) = (&exports[number % 2], &fixture.store, &checks);
                scope.spawn(move || seal(path, store, checks, &options(OnBadRow::Refuse), &|_| {}).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(sealed.iter().filter(|sealed| !sealed.found).count(), 2, "each content is sealed once");
    assert_eq!(fixture.store.list().unwrap().len(), 2);
    assert_eq!(fixture.entries().len(), 3, "two snapshots and the lock");
}

/// `data` of many shapes, with numbers inside the number rule.
fn any_data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-999_999_i64..=999_999, -20..=9_i32).prop_map(|(n, e)| canonical_json::parse(&format!("{n}e{e}")).unwrap()),
        any::<String>().prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-z]{1,8}", tree, 0..5).prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(48), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_sealed_is_read_back_as_it_was_checked(rows in prop::collection::vec(any_data(), 1..12)) {
        let fixture = Fixture::new();
        let rows: Vec<Value> = rows.into_iter().enumerate().map(|(number, data)| {
            let mut row = row(&format!("customer|{number}"));
            row["data"] = data;
            row
        }).collect();
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let sealed = fixture.seal(text.as_bytes()).unwrap();
        let destinations = BTreeSet::from(["retail".to_owned()]);
        let checks = RowChecks::new(&destinations, &MoneyIsText);
        let lines = fixture.sealed_lines(&sealed.manifest.id);
        prop_assert_eq!(lines.len(), rows.len());
        for (line, row) in lines.iter().zip(&rows) {
            prop_assert_eq!(line, &canonical_json::canonical(row));
            let mut again = Vec::new();
            let checked = checks.check(row.to_string().as_bytes(), &mut again).unwrap();
            prop_assert_eq!(&again, line);
            prop_assert!(checked == Row::from_sealed(line).unwrap());
        }
    }
}
