//! A bundle's `schema.json`: JSON Schema for `data`, and two members of our own for what it cannot say.
//!
//! * `x-money`: a list of `{"currency": PLACE, "amounts": [PLACE, …]}`. The currency is an ISO 4217 code (historical
//!   ones too), each amount a decimal string with at most that currency's decimals.
//! * `x-order`: a list of `[PLACE, PLACE]`. Both are dates, and the second is not before the first.
//!
//! A place is a member's name, or names joined by dots, with `[]` behind a list: `transactions[].amount`. Other
//! readers of JSON Schema ignore both members. Formats are checked; `currency` and `https-url` are known besides
//! the standard ones. References lead inside the file only.

use std::fmt;
use std::path::Path;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::amount::Amount;
use super::currency;
use super::error::BundleError;
use super::places_in_data::{Found, PlaceInData, path_of};
use super::unsubscribe::is_https_url;
use crate::snapshot::RowFault;

/// The compiled schema.
pub(super) struct Schema {
    validator: Validator,
    money: Vec<MoneyRule>,
    order: Vec<(PlaceInData, PlaceInData)>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema(…)")
    }
}

struct MoneyRule {
    currency: PlaceInData,
    amounts: Vec<PlaceInData>,
}

impl Schema {
    /// Compiles `schema.json`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, BundleError> {
        let schema: Value = serde_json::from_str(text).map_err(|error| BundleError::Line {
            path: path.to_owned(),
            line: error.line(),
            reason: "is not JSON".to_owned(),
        })?;
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .should_ignore_unknown_formats(false)
            .with_format("currency", |text: &str| currency::decimals(text).is_some())
            .with_format("https-url", is_https_url)
            .build(&schema)
            .map_err(|error| {
                BundleError::file(path, format!("is no usable JSON Schema: {error} (at {})", error.instance_path()))
            })?;
        let rules = |name: &str, form: &'static str| {
            let list =
                schema.get(name).map_or(Ok([].as_slice()), |list| list.as_array().map(Vec::as_slice).ok_or(form));
            list.map_err(|form| BundleError::file(path, format!("`{name}` must be a list of {form}")))
        };
        let money = rules("x-money", MONEY_FORM)?.iter().map(MoneyRule::read).collect::<Option<_>>();
        let order = rules("x-order", ORDER_FORM)?.iter().map(read_order).collect::<Option<_>>();
        Ok(Self {
            validator,
            money: money.ok_or_else(|| BundleError::file(path, format!("`x-money` must be a list of {MONEY_FORM}")))?,
            order: order.ok_or_else(|| BundleError::file(path, format!("`x-order` must be a list of {ORDER_FORM}")))?,
        })
    }

    /// The first thing that is wrong with a row's `data`.
    pub(super) fn check(&self, data: &Value) -> Result<(), RowFault> {
        self.validator.validate(data).map_err(|error| fault_of(&error))?;
        self.money.iter().try_for_each(|rule| rule.check(data))?;
        self.order.iter().try_for_each(|(earlier, later)| check_order(earlier, later, data))
    }
}

const MONEY_FORM: &str = "{\"currency\": PLACE, \"amounts\": [PLACE, …]}";
const ORDER_FORM: &str = "[PLACE, PLACE]";

fn read_place(value: &Value) -> Option<PlaceInData> {
    PlaceInData::parse(value.as_str()?)
}

fn read_order(value: &Value) -> Option<(PlaceInData, PlaceInData)> {
    match value.as_array()?.as_slice() {
        [earlier, later] => Some((read_place(earlier)?, read_place(later)?)),
        _ => None,
    }
}

impl MoneyRule {
    fn read(value: &Value) -> Option<Self> {
        let amounts = value.get("amounts")?.as_array()?.iter().map(read_place).collect::<Option<_>>()?;
        Some(Self { currency: read_place(value.get("currency")?)?, amounts })
    }

    /// What is absent is the schema's business (`required`), not this rule's.
    fn check(&self, data: &Value) -> Result<(), RowFault> {
        let Some(Found { path, value }) = self.currency.first(data) else { return Ok(()) };
        let decimals = value.as_str().and_then(currency::decimals).ok_or_else(|| fault(&path, NO_CURRENCY))?;
        self.amounts.iter().flat_map(|amount| amount.all(data)).try_for_each(|Found { path, value }| {
            let Some(text) = value.as_str() else { return Err(fault(&path, NO_MONEY_STRING)) };
            Amount::parse(text, decimals).map(|_| ()).map_err(|error| match error {
                super::amount::AmountError::Decimals => {
                    fault(&path, &format!("has more decimals than its currency, which has {decimals}"))
                }
                other => fault(&path, &other.to_string()),
            })
        })
    }
}

const NO_CURRENCY: &str = "must be a currency code of ISO 4217 in capital letters, such as EUR";
const NO_MONEY_STRING: &str =
    "must be a decimal number in quotation marks, such as \"-12.50\": money is never a JSON number";
const NO_DATE: &str = "must be a date that exists, such as \"2026-08-03\"";

fn check_order(earlier: &PlaceInData, later: &PlaceInData, data: &Value) -> Result<(), RowFault> {
    let date = |place: &PlaceInData| {
        place.first(data).map(|Found { path, value }| {
            let date = value.as_str().and_then(parse_date).ok_or_else(|| fault(&path, NO_DATE))?;
            Ok::<_, RowFault>((path, date))
        })
    };
    match (date(earlier).transpose()?, date(later).transpose()?) {
        (Some((first, start)), Some((second, end))) if end < start => {
            Err(fault(&second, &format!("is before {first}")))
        }
        _ => Ok(()),
    }
}

/// A date written `YYYY-MM-DD` and in no other way.
pub(super) fn parse_date(text: &str) -> Option<jiff::civil::Date> {
    let form = text.len() == 10
        && text.bytes().enumerate().all(|(at, b)| if matches!(at, 4 | 7) { b == b'-' } else { b.is_ascii_digit() });
    if form { text.parse().ok() } else { None }
}

fn fault(field: &str, reason: &str) -> RowFault {
    RowFault { field: field.to_owned(), reason: reason.to_owned() }
}

/// A schema's complaint in words that quote the schema at most, never the row.
fn fault_of(error: &ValidationError<'_>) -> RowFault {
    use ValidationErrorKind as Kind;
    let mut field = path_of(error.instance_path().as_str());
    let reason = match error.kind() {
        Kind::Required { property } => {
            field = format!("{field}.{}", property.as_str().unwrap_or_default());
            "is missing".to_owned()
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let name = unexpected.first().map(|name| path_of(&format!("/{name}")));
            field.push_str(name.as_deref().and_then(|path| path.strip_prefix("data")).unwrap_or_default());
            "is not known to the template's schema".to_owned()
        }
        Kind::Type { kind } => wrong_type(kind, error.instance()),
        Kind::Format { format } if format == "date" => NO_DATE.to_owned(),
        Kind::Format { format } if format == "currency" => NO_CURRENCY.to_owned(),
        Kind::Format { format } if format == "https-url" => "must be an https URL".to_owned(),
        Kind::Format { format } => format!("is not of the format `{format}`"),
        Kind::Pattern { pattern } => format!("does not match the pattern {pattern}"),
        Kind::MaxLength { limit } => format!("is longer than {limit} characters"),
        Kind::MinLength { limit } => format!("is shorter than {limit} characters"),
        Kind::MaxItems { limit } => format!("has more than {limit} items"),
        Kind::MinItems { limit } => format!("has fewer than {limit} items"),
        Kind::Maximum { limit } => format!("is greater than {limit}"),
        Kind::Minimum { limit } => format!("is less than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("is not less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("is not greater than {limit}"),
        Kind::Enum { .. } | Kind::Constant { .. } => "is none of the values that the schema allows".to_owned(),
        other => format!("breaks the schema's rule `{}`", other.keyword()),
    };
    RowFault { field, reason }
}

fn wrong_type(kind: &TypeKind, found: &Value) -> String {
    let name = |found: &Value| match found {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    match kind {
        TypeKind::Single(wanted) => format!("must be of the type {wanted}, not {}", name(found)),
        TypeKind::Multiple(_) => format!("is {}, which the schema does not allow", name(found)),
    }
}
