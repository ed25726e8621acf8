//! Whether one line of an export is an acceptable row: text, JSON, members, and what each may hold. The first fault
//! of a row is reported; no reason repeats what the row holds.

use std::collections::BTreeSet;

use jiff::tz::TimeZoneDatabase;
use serde_json::{Map, Value};

use super::row::{Row, RowFault};
use super::{address, locale};
use crate::identity::CustomerId;
use crate::identity::canonical_json::{self, JsonError};

/// The greatest length of a name in bytes.
const MAX_NAME: usize = 512;
/// The greatest length of an unsubscribe URL in bytes: it stands in a header line, which ends at 998 (RFC 5322).
const MAX_URL: usize = 900;

const MEMBERS: [&str; 8] =
    ["customer_id", "email", "name", "locale", "time_zone", "destination", "unsubscribe_url", "data"];

/// What else a row must satisfy to become a message: the bundle's schema for `data`, money that fits its currency,
/// headers without control characters. Called from several threads at once.
pub trait ContentCheck: Sync {
    /// Judges a row whose members all passed. The row is the one that is read back from the sealed part later.
    ///
    /// # Errors
    /// The first fault, with the full path of the member. Neither may repeat the row's content.
    fn check(&self, row: &Row) -> Result<(), RowFault>;
}

/// Everything that is asked of a row.
pub struct RowChecks<'a> {
    destinations: &'a BTreeSet<String>,
    content: &'a dyn ContentCheck,
    zones: TimeZoneDatabase,
}

impl<'a> RowChecks<'a> {
    /// Checks rows against the configured destinations' names and a bundle's own rules.
    pub fn new(destinations: &'a BTreeSet<String>, content: &'a dyn ContentCheck) -> Self {
        // Not the host's data: the same export must be good or bad everywhere.
        Self { destinations, content, zones: TimeZoneDatabase::bundled() }
    }

    /// Checks one line without its line feed. A good row's canonical form is appended to `sealed`, without a line
    /// feed; a bad row leaves `sealed` as it was.
    ///
    /// # Errors
    /// The row's first fault.
    pub fn check(&self, line: &[u8], sealed: &mut Vec<u8>) -> Result<Row, RowFault> {
        let before = sealed.len();
        let result = self.accept(line, sealed);
        if result.is_err() {
            sealed.truncate(before);
        }
        result
    }

    fn accept(&self, line: &[u8], sealed: &mut Vec<u8>) -> Result<Row, RowFault> {
        let mut members = parse_object(line)?;
        if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            let known = MEMBERS.join(", ");
            return Err(RowFault::new(canonical_json::shown_name(unknown), format!("is unknown; known are {known}")));
        }
        let customer_id = CustomerId::new(required(&members, "customer_id")?)
            .map_err(|error| RowFault::new("customer_id", error.to_string()))?;
        let email = address::parse(required(&members, "email")?).map_err(|reason| RowFault::new("email", reason))?;
        let name = optional(&members, "name", check_name)?;
        let locale = optional(&members, "locale", locale::known)?;
        let time_zone = optional(&members, "time_zone", |text| self.known_zone(text))?;
        let destination = self.known_destination(&members)?;
        let unsubscribe_url = optional(&members, "unsubscribe_url", check_url)?;
        check_data(members.get("data"))?;
        if let Some(Value::String(id)) = members.get_mut("customer_id") {
            customer_id.as_str().clone_into(id);
        }
        let whole = Value::Object(members);
        canonical_json::write_canonical(&whole, sealed);
        let data = match whole {
            Value::Object(mut members) => members.remove("data").unwrap_or_default(),
            _ => Value::Null,
        };
        let row = Row { customer_id, email, name, locale, time_zone, destination, unsubscribe_url, data };
        self.content.check(&row)?;
        Ok(row)
    }

    fn known_zone(&self, text: &str) -> Result<String, &'static str> {
        // Placeholders of the database, which no place on earth uses.
        if matches!(text, "Factory" | "Etc/Unknown") {
            return Err("is a placeholder, not a time zone; expected an IANA name such as Europe/Zurich");
        }
        let zone = self.zones.get(text).map_err(|_| "is no time zone; expected an IANA name such as Europe/Zurich")?;
        match zone.iana_name() {
            Some(name) if name == text => Ok(name.to_owned()),
            _ => Err("differs from the IANA name in upper and lower case; expected one such as Europe/Zurich"),
        }
    }

    fn known_destination(&self, members: &Map<String, Value>) -> Result<Option<String>, RowFault> {
        let Some(name) = text(members, "destination")? else { return Ok(None) };
        if self.destinations.contains(name) {
            return Ok(Some(name.to_owned()));
        }
        let known: Vec<&str> = self.destinations.iter().map(String::as_str).collect();
        Err(RowFault::new("destination", format!("is not configured; configured: {}", known.join(", "))))
    }
}

fn parse_object(line: &[u8]) -> Result<Map<String, Value>, RowFault> {
    let line = std::str::from_utf8(line)
        .map_err(|error| RowFault::new("", format!("is not valid UTF-8 at byte {}", error.valid_up_to() + 1)))?;
    if line.starts_with('\u{feff}') {
        return Err(RowFault::new(
            "",
            "begins with a byte order mark, which only the first line of an export may have",
        ));
    }
    match canonical_json::parse(line).map_err(json_fault)? {
        Value::Object(members) => Ok(members),
        other => Err(RowFault::new("", format!("must be one JSON object, not {}", kind(&other)))),
    }
}

fn json_fault(error: JsonError) -> RowFault {
    let reason = error.to_string();
    match error {
        JsonError::Syntax { .. } => RowFault::new("", reason),
        JsonError::Duplicate { path } | JsonError::Number { path, .. } => RowFault::new(path, reason),
    }
}

/// The text of a member, where it is there.
fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, RowFault> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Null) => Err(RowFault::new(name, "is null; leave the member out where there is no value")),
        Some(other) => Err(RowFault::new(name, format!("must be a text, not {}", kind(other)))),
    }
}

fn required<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a str, RowFault> {
    match members.get(name) {
        Some(Value::Null) => Err(RowFault::new(name, "must be a text, not null")),
        _ => text(members, name)?.ok_or_else(|| RowFault::new(name, "is missing")),
    }
}

fn optional(
    members: &Map<String, Value>,
    name: &str,
    check: impl Fn(&str) -> Result<String, &'static str>,
) -> Result<Option<String>, RowFault> {
    text(members, name)?.map(|text| check(text).map_err(|reason| RowFault::new(name, reason))).transpose()
}

fn check_data(data: Option<&Value>) -> Result<(), RowFault> {
    match data {
        Some(Value::Object(_)) => Ok(()),
        Some(other) => Err(RowFault::new("data", format!("must be an object, not {}", kind(other)))),
        None => Err(RowFault::new("data", "is missing")),
    }
}

/// A name becomes part of a header.
fn check_name(name: &str) -> Result<String, &'static str> {
    if name.trim().is_empty() {
        return Err("is empty; leave the member out where there is no name");
    }
    if name.len() > MAX_NAME {
        return Err("is longer than 512 bytes");
    }
    if name.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err("holds a control character or a line break");
    }
    Ok(name.to_owned())
}

/// An unsubscribe URL becomes a header as it stands, between angle brackets.
fn check_url(text: &str) -> Result<String, &'static str> {
    if text.len() > MAX_URL {
        return Err("is longer than 900 bytes");
    }
    if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'<' | b'>' | b'"' | b'\\' | b'`')) {
        return Err("holds a character that must not stand in a URL; percent-encode it");
    }
    if !text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        return Err("must begin with https://");
    }
    let url = url::Url::parse(text).map_err(|_| "is not a URL; expected one such as https://example.test/u/1")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password");
    }
    match url.host_str() {
        Some(host) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err("names no host"),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
