//! A small export about invented customers, to see everything work before real data is near.
//!
//! Balances add up; locales, currencies, decimals and time zones differ; one customer had an empty week.

use jiff::ToSpan as _;
use serde_json::{Value, json};

use crate::identity::IsoWeek;

/// An invented customer and the week's movements, in the currency's smallest unit.
struct Customer {
    id: &'static str,
    address: &'static str,
    name: &'static str,
    locale: &'static str,
    time_zone: &'static str,
    currency: &'static str,
    decimals: usize,
    opening: i64,
    /// Day of the week from 0, description, amount.
    movements: &'static [(i8, &'static str, i64)],
}

const CUSTOMERS: &[Customer] = &[
    Customer {
        id: "customer_1001",
        address: "mira.talbot@example.test",
        name: "Mira Talbot",
        locale: "en-GB",
        time_zone: "Europe/London",
        currency: "GBP",
        decimals: 2,
        opening: 120_450,
        movements: &[
            (0, "Salary", 285_000),
            (1, "Rent", -98_000),
            (3, "Corner Bakery", -1_280),
            (5, "Tram ticket", -260),
        ],
    },
    Customer {
        id: "customer_1002",
        address: "jonas.birk@example.test",
        name: "Jonas Birk",
        locale: "de-DE",
        time_zone: "Europe/Berlin",
        currency: "EUR",
        decimals: 2,
        opening: 4_210,
        movements: &[(2, "Buchladen am Markt", -2_499), (4, "Gutschrift Strom", 6_315)],
    },
    Customer {
        id: "customer_1003",
        address: "aiko.tanabe@example.test",
        name: "田辺 愛子",
        locale: "ja-JP",
        time_zone: "Asia/Tokyo",
        currency: "JPY",
        decimals: 0,
        opening: 350_000,
        movements: &[(1, "スーパー", -4_820), (6, "カフェ", -950)],
    },
    Customer {
        id: "customer_1004",
        address: "layla.noor@example.test",
        name: "ليلى نور",
        locale: "ar-BH",
        time_zone: "Asia/Bahrain",
        currency: "BHD",
        decimals: 3,
        opening: 812_750,
        movements: &[(0, "مكتبة", -12_500), (2, "تحويل وارد", 40_000)],
    },
    Customer {
        id: "customer_1005",
        address: "rafael.nunes@example.test",
        name: "Rafael Nunes",
        locale: "pt-BR",
        time_zone: "America/Sao_Paulo",
        currency: "BRL",
        decimals: 2,
        opening: -15_390,
        movements: &[(3, "Pix recebido", 20_000), (4, "", -1_999)],
    },
    Customer {
        id: "customer_1006",
        address: "zoe.o'neil@example.test",
        name: "Zoë O'Neil",
        locale: "en-US",
        time_zone: "America/New_York",
        currency: "USD",
        decimals: 2,
        opening: 1_000_000,
        movements: &[(2, "Smith & Daughters <Tools>", -3_450)],
    },
    Customer {
        id: "customer_1007",
        address: "sven.aebi@example.test",
        name: "Sven Aebi",
        locale: "de-CH",
        time_zone: "Europe/Zurich",
        currency: "CHF",
        decimals: 2,
        opening: 77_705,
        movements: &[],
    },
];

/// The export of a week, as JSON Lines.
pub(super) fn export(week: IsoWeek) -> String {
    CUSTOMERS.iter().map(|customer| format!("{}\n", row(customer, week))).collect()
}

fn row(customer: &Customer, week: IsoWeek) -> Value {
    let closing = customer.movements.iter().fold(customer.opening, |balance, (_, _, amount)| balance + amount);
    let money = |amount| money(amount, customer.decimals);
    let transactions: Vec<Value> = customer
        .movements
        .iter()
        .map(|(day, description, amount)| {
            let date = week.first_day().saturating_add(i64::from(*day).days());
            json!({ "date": date.to_string(), "description": description, "amount": money(*amount) })
        })
        .collect();
    json!({
        "customer_id": customer.id,
        "email": customer.address,
        "name": customer.name,
        "locale": customer.locale,
        "time_zone": customer.time_zone,
        "data": {
            "period_start": week.first_day().to_string(),
            "period_end": week.last_day().to_string(),
            "currency": customer.currency,
            "opening_balance": money(customer.opening),
            "closing_balance": money(closing),
            "transactions": transactions,
        },
    })
}

/// An amount of smallest units as a decimal string.
fn money(amount: i64, decimals: usize) -> String {
    let sign = if amount < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", amount.unsigned_abs(), width = decimals + 1);
    match digits.split_at_checked(digits.len() - decimals) {
        Some((whole, fraction)) if !fraction.is_empty() => format!("{sign}{whole}.{fraction}"),
        _ => format!("{sign}{digits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_the_decimals_of_its_currency() {
        assert_eq!(money(120_450, 2), "1204.50");
        assert_eq!(money(-5, 2), "-0.05");
        assert_eq!(money(-950, 0), "-950");
        assert_eq!(money(12_500, 3), "12.500");
        assert_eq!(money(0, 0), "0");
    }

    #[test]
    fn the_export_is_about_its_week_and_reads_as_strict_json() {
        let export = export("2026-W53".parse().unwrap());
        let rows: Vec<Value> =
            export.lines().map(|line| crate::identity::canonical_json::parse(line).unwrap()).collect();
        assert_eq!(rows.len(), CUSTOMERS.len());
        assert_eq!(rows[0]["data"]["period_start"], "2026-12-28");
        assert_eq!(rows[0]["data"]["period_end"], "2027-01-03");
        assert_eq!(rows[0]["data"]["closing_balance"], "3059.10");
        assert_eq!(rows[6]["data"]["transactions"], json!([]));
        assert!(rows.iter().all(|row| row["email"].as_str().unwrap().ends_with("@example.test")));
    }
}
