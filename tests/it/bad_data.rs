//! What the bundle that ships refuses in `data`, through sealing as it is in use: each row with its field and reason,
//! and no word of what it holds.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use counterfoil::digest::{Bundle, BundleSettings, UnsubscribePattern};
use counterfoil::snapshot::{OnBadRow, RowChecks, SealError, SealOptions, Sealed, Store, seal};
use serde_json::{Value, json};

/// Stands for a customer's data: no message may repeat it.
const CANARY: &str = "CANARY";

fn bundle() -> Bundle {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/weekly_activity/v1");
    let unsubscribe = UnsubscribePattern::parse("https://example.test/u/{customer}/{token}").unwrap();
    Bundle::load(&directory, &BundleSettings { from: "Bank <digest@example.test>".parse().unwrap(), unsubscribe })
        .unwrap()
}

fn sealed(rows: &[String], on_bad_row: OnBadRow) -> Result<Sealed, SealError> {
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export.jsonl");
    fs::write(&export, rows.join("\n")).unwrap();
    let store = Store::open(&directory.path().join("snapshots")).unwrap();
    let sealed_at = "2026-08-10T06:00:00Z".parse().unwrap();
    let options = SealOptions { on_bad_row, rejects: None, expect_rows: None, expect_sha256: None, sealed_at };
    seal(&export, &store, &RowChecks::new(&BTreeSet::new(), &bundle()), &options, &|_| {})
}

fn row(number: usize) -> Value {
    json!({
        "customer_id": format!("{CANARY}_{number}"), "email": "canary@example.test", "name": CANARY,
        "data": {
            "period_start": "2026-08-03", "period_end": "2026-08-09", "currency": "EUR",
            "opening_balance": "100.00", "closing_balance": "87.50",
            "transactions": [
                {"date": "2026-08-04", "description": CANARY, "amount": "-10.00"},
                {"date": "2026-08-05", "description": CANARY, "amount": "-2.5"},
            ],
        },
    })
}

/// A row with one place of `data` replaced; a raw text, because JSON values would not keep `1.0` and `1e2` as written.
fn with(number: usize, place: &str, raw: &str) -> String {
    let mut row = row(number);
    *row.pointer_mut(&format!("/data{place}")).unwrap() = json!("@@");
    row.to_string().replace("\"@@\"", raw)
}

fn without(number: usize, within: &str, member: &str) -> String {
    let mut row = row(number);
    row.pointer_mut(&format!("/data{within}")).unwrap().as_object_mut().unwrap().remove(member).unwrap();
    row.to_string()
}

/// Place, raw JSON there, the field that is named and a part of the reason.
const BAD: &[(&str, &str, &str, &str)] = &[
    ("/opening_balance", "100.00", "data.opening_balance", "type string, not a number"),
    ("/opening_balance", "100", "data.opening_balance", "type string, not a number"),
    ("/closing_balance", "1e2", "data.closing_balance", "type string, not a number"),
    ("/closing_balance", "null", "data.closing_balance", "type string, not null"),
    ("/closing_balance", "true", "data.closing_balance", "type string, not true or false"),
    ("/transactions/1/amount", "-2.5", "data.transactions[1].amount", "type string, not a number"),
    ("/transactions/1/amount", "\"-2.505\"", "data.transactions[1].amount", "more decimals than its currency"),
    ("/transactions/1/amount", "\"2,50\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\"1.000,00\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\"+2.50\"", "data.transactions[1].amount", "no plus sign"),
    ("/transactions/1/amount", "\"2.50-\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\" 2.50\"", "data.transactions[1].amount", "no spaces"),
    ("/transactions/1/amount", "\"1e2\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\"\u{2212}2.50\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\"٢٫٥\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\"CANARY\"", "data.transactions[1].amount", "a decimal number such as"),
    ("/transactions/1/amount", "\"1234567890123456789.00\"", "data.transactions[1].amount", "more than 18 digits"),
    ("/currency", "\"eur\"", "data.currency", "ISO 4217 in capital letters"),
    ("/currency", "\"CANARY\"", "data.currency", "ISO 4217"),
    ("/currency", "\"JPY\"", "data.opening_balance", "more decimals than its currency, which has 0"),
    ("/currency", "978", "data.currency", "type string, not a number"),
    ("/period_start", "\"2026-02-29\"", "data.period_start", "a date that exists"),
    ("/period_start", "\"03/08/2026\"", "data.period_start", "a date that exists"),
    ("/period_start", "\"2026-08-03T00:00:00Z\"", "data.period_start", "a date that exists"),
    ("/period_start", "\"2026-08-10\"", "data.period_end", "is before data.period_start"),
    ("/transactions", "{}", "data.transactions", "type array, not an object"),
    ("/transactions/0", "\"CANARY\"", "data.transactions[0]", "type object, not a text"),
    ("/transactions/0/date", "\"CANARY\"", "data.transactions[0].date", "a date that exists"),
    ("/transactions/0/description", "null", "data.transactions[0].description", "type string, not null"),
];

/// Every bad row with its field and a part of its reason.
fn table() -> Vec<(String, String, String)> {
    let replaced = BAD.iter().enumerate();
    let mut table: Vec<(String, String, String)> = replaced
        .map(|(number, (place, raw, field, reason))| {
            (with(number, place, raw), (*field).to_owned(), (*reason).to_owned())
        })
        .collect();
    for member in ["period_start", "period_end", "currency", "opening_balance", "closing_balance", "transactions"] {
        table.push((without(table.len(), "", member), format!("data.{member}"), "is missing".to_owned()));
    }
    for member in ["date", "description", "amount"] {
        let field = format!("data.transactions[0].{member}");
        table.push((without(table.len(), "/transactions/0", member), field, "is missing".to_owned()));
    }
    let mut unknown = row(table.len());
    unknown["data"]["iban"] = json!(CANARY);
    table.push((unknown.to_string(), "data.iban".to_owned(), "not known to the template's schema".to_owned()));
    let mut by_customer = row(table.len());
    by_customer["data"]["customer_8421"] = json!(CANARY);
    table.push((by_customer.to_string(), "data.(not shown)".to_owned(), "not known".to_owned()));
    let mut long = row(table.len());
    long["data"]["transactions"][0]["description"] = json!(CANARY.repeat(200));
    let field = "data.transactions[0].description".to_owned();
    table.push((long.to_string(), field, "longer than 1000 characters".to_owned()));
    table
}

#[test]
fn every_row_that_the_shipped_bundle_cannot_show_is_named_by_field_and_reason() {
    for (text, field, reason) in table() {
        let bad = match sealed(&[row(9_999).to_string(), text.clone()], OnBadRow::Refuse) {
            Err(SealError::BadRows(bad)) => bad,
            other => panic!("{text}: {other:?}"),
        };
        let found = &bad.first[0];
        assert_eq!((bad.total, found.line, found.field.as_str()), (1, 2, field.as_str()), "{text}: {found}");
        assert!(found.reason.contains(&reason), "{text}: {found}");
        assert!(!bad.to_string().contains(CANARY), "{bad}");
    }
}

#[test]
fn the_good_rows_among_them_are_sealed_alone_and_every_other_one_is_listed() {
    let table = table();
    let mut rows: Vec<String> = table.iter().map(|(text, ..)| text.clone()).collect();
    rows.insert(0, row(9_999).to_string());
    let sealed = sealed(&rows, OnBadRow::SetAside).unwrap();
    assert_eq!((sealed.manifest.rows, sealed.rejected), (1, table.len() as u64));
}

#[test]
fn awkward_amounts_that_are_good_are_sealed() {
    let good = [
        ("/currency", "\"DEM\""),
        ("/opening_balance", "\"0\""),
        ("/opening_balance", "\"-0.00\""),
        ("/opening_balance", "\"123456789012345678.99\""),
        ("/transactions", "[]"),
        ("/transactions/0/description", "\"\""),
        ("/transactions/0/description", "\"\\u202eevil\\u0000\\u200d👩‍👩‍👧\""),
        ("/transactions/0/date", "\"2020-02-29\""),
    ];
    let rows: Vec<String> = good.iter().enumerate().map(|(number, (place, raw))| with(number, place, raw)).collect();
    assert_eq!(sealed(&rows, OnBadRow::Refuse).unwrap().manifest.rows, good.len() as u64);
}
