//! The template engine: strict variables, escaping by place, and the filters and functions that bundles have.
//!
//! | filter or function | gives |
//! |---|---|
//! | `x \| money(currency)`, `money(currency, signed=true)` | an amount in the row's locale, with `+` where signed |
//! | `x \| minus(y, currency)` | an exact difference, as a decimal string |
//! | `list \| money_in(currency)`, `list \| money_out(currency)` | the exact sum of what is positive or negative in a list of decimal strings |
//! | `x is negative`, `x is positive` | the sign of a decimal string |
//! | `x \| number`, `x \| percent` | a decimal string in the row's locale |
//! | `x \| date`, `date("day")`, `("weekday")`, `("long")` | a date in the text's language |
//! | `x \| date_span(y)` | `3–9 August 2026` |
//! | `x \| url` | the URL itself, if it is https; anything else is an error |
//! | `x \| query` | percent-encoded, for a part of a URL |
//! | `x \| isolate` | for plain text: right-to-left text between direction isolates |
//! | `x \| fill(name=…)` | a text of `strings.json` with its `{places}` filled |
//! | `columns(left, right, width=72, hang=2)` | two columns in plain text |
//! | `cid("logo.png")` | the URL of an image of the bundle |
//!
//! Besides these there are the engine's own filters that are pure and leave escaping alone ([`BUILT_IN`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior};

use super::amount::Amount;
use super::columns::columns;
use super::dates::DateStyle;
use super::error::refusal;
use super::locale::Formats;
use super::numbers::{MoneyPattern, Sign};
use super::schema::parse_date;
use super::strings;
use super::unsubscribe::{encoded, is_https_url};

/// Filters of the engine that change, evade or double escaping. They are taken out, so that not even `map("safe")`
/// finds them.
const UNSAFE: [&str; 6] = ["safe", "escape", "e", "tojson", "urlencode", "pprint"];

/// Filters of the engine that templates may use.
pub(super) const BUILT_IN: [&str; 14] = [
    "default", "first", "join", "last", "length", "lower", "map", "reject", "replace", "reverse", "select", "sort",
    "trim", "upper",
];

/// Our own filters.
pub(super) const OWN: [&str; 12] = [
    "date",
    "date_span",
    "fill",
    "isolate",
    "minus",
    "money",
    "money_in",
    "money_out",
    "number",
    "percent",
    "query",
    "url",
];

/// Functions, which count as known variables.
pub(super) const FUNCTIONS: [&str; 2] = ["cid", "columns"];

/// An environment without templates. `images` maps an image's name to its content id.
pub(super) fn environment(images: BTreeMap<String, String>) -> Environment<'static> {
    let mut engine = Environment::new();
    for filter in UNSAFE {
        engine.remove_filter(filter);
    }
    engine.remove_global("debug");
    // A file's last line end stays: a text part ends in one. Building fails only for delimiters, which stay as they are.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        engine.set_syntax(syntax);
    }
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    // Debug information would carry values of the row into errors.
    engine.set_debug(false);
    engine.set_auto_escape_callback(|name| if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::None });
    engine.set_formatter(write_value);
    engine.add_filter("money", money);
    engine.add_filter("minus", minus);
    engine.add_filter("money_in", |state: &State<'_, '_>, list: Value, code: String| total(state, &list, &code, false));
    engine.add_filter("money_out", |state: &State<'_, '_>, list: Value, code: String| total(state, &list, &code, true));
    engine.add_filter("number", |state: &State<'_, '_>, text: String| {
        formats(state)?.number(&text).ok_or_else(|| refusal("`number` takes a decimal number in a text"))
    });
    engine.add_filter("percent", |state: &State<'_, '_>, text: String| {
        formats(state)?.percent(&text).ok_or_else(|| refusal("`percent` takes a decimal number in a text"))
    });
    engine.add_filter("date", date);
    engine.add_filter("date_span", date_span);
    engine.add_filter(
        "url",
        |text: String| if is_https_url(&text) { Ok(text) } else { Err(refusal("a link is not an https URL")) },
    );
    engine.add_filter("query", |text: String| encoded(&text));
    engine.add_filter("isolate", isolate);
    engine.add_filter("fill", fill);
    engine.add_test("negative", |text: String| text.starts_with('-') && has_value(&text));
    engine.add_test("positive", |text: String| !text.starts_with('-') && has_value(&text));
    engine.add_function("columns", columns_call);
    engine.add_function("cid", move |name: &str| {
        let id = images.get(name).map(|id| format!("cid:{id}"));
        id.ok_or_else(|| {
            let known: Vec<&str> = images.keys().map(String::as_str).collect();
            refusal(format!("`cid` asks for an image that is not in images/; there are: {}", known.join(", ")))
        })
    });
    engine
}

/// Writes a value where it lands: escaped in HTML, as it stands in plain text. What has no text of its own (null, a
/// list, an object) is an error instead of a surprise.
fn write_value(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => return Err(Error::from(minijinja::ErrorKind::UndefinedError)),
        ValueKind::String | ValueKind::Number | ValueKind::Bool => {}
        _ => return Err(refusal("a value has no text: it is null, a list or an object")),
    }
    match value.as_str() {
        Some(text) if *state.auto_escape() == AutoEscape::Html && !value.is_safe() => write_escaped(out, text)?,
        Some(text) => out.write_str(text)?,
        None => write!(out, "{value}")?,
    }
    Ok(())
}

/// Escapes what could end a text or an attribute in either kind of quotation marks.
fn write_escaped(out: &mut Output<'_>, text: &str) -> std::fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
        let (before, behind) = rest.split_at(at);
        out.write_str(before)?;
        out.write_str(match behind.as_bytes().first() {
            Some(b'&') => "&amp;",
            Some(b'<') => "&lt;",
            Some(b'>') => "&gt;",
            Some(b'"') => "&quot;",
            _ => "&#39;",
        })?;
        rest = behind.get(1..).unwrap_or_default();
    }
    out.write_str(rest)
}

fn formats(state: &State<'_, '_>) -> Result<Arc<Formats>, Error> {
    let locale = state.lookup("locale").and_then(|value| value.downcast_object::<Formats>());
    locale.ok_or_else(|| refusal("the template gives the name `locale` to something else"))
}

fn pattern(state: &State<'_, '_>, code: &str) -> Result<Arc<MoneyPattern>, Error> {
    formats(state)?.money(code).ok_or_else(|| refusal("a currency is no code of ISO 4217"))
}

fn amount(text: &str, decimals: u8) -> Result<Amount, Error> {
    Amount::parse(text, decimals).map_err(|error| refusal(format!("an amount {error}")))
}

#[expect(clippy::needless_pass_by_value, reason = "the engine hands keyword arguments over by value")]
fn money(state: &State<'_, '_>, text: &str, code: &str, options: Kwargs) -> Result<String, Error> {
    let signed = options.get::<Option<bool>>("signed")?.unwrap_or(false);
    options.assert_all_used()?;
    let pattern = pattern(state, code)?;
    Ok(pattern.format(amount(text, pattern.decimals())?, if signed { Sign::Both } else { Sign::Negative }))
}

fn minus(state: &State<'_, '_>, left: &str, right: &str, code: &str) -> Result<String, Error> {
    let decimals = pattern(state, code)?.decimals();
    let difference = amount(left, decimals)?.minus(amount(right, decimals)?);
    difference.map(|amount| amount.to_text(decimals)).map_err(|error| refusal(format!("a difference {error}")))
}

fn total(state: &State<'_, '_>, list: &Value, code: &str, out: bool) -> Result<String, Error> {
    let decimals = pattern(state, code)?.decimals();
    let mut sum = Amount::ZERO;
    for item in list.try_iter()? {
        let text = item.as_str().ok_or_else(|| refusal("money is a decimal number in a text"))?;
        let one = amount(text, decimals)?;
        if one.is_negative() == out {
            sum = sum.plus(one).map_err(|error| refusal(format!("a sum {error}")))?;
        }
    }
    Ok(sum.to_text(decimals))
}

fn date_of(text: &str) -> Result<jiff::civil::Date, Error> {
    parse_date(text).ok_or_else(|| refusal("a date is not of the form YYYY-MM-DD"))
}

fn date(state: &State<'_, '_>, text: &str, style: Option<&str>) -> Result<Value, Error> {
    let style = DateStyle::from_word(style.unwrap_or("medium"))
        .ok_or_else(|| refusal("`date` knows the styles day, weekday, medium and long"))?;
    formats(state)?.date(date_of(text)?, style).ok_or_else(|| refusal("a date cannot be shown"))
}

fn date_span(state: &State<'_, '_>, start: &str, end: &str) -> Result<String, Error> {
    let (start, end) = (date_of(start)?, date_of(end)?);
    formats(state)?.span(start, end).ok_or_else(|| refusal("a span of days cannot be shown"))
}

/// Whether a decimal string is other than zero.
fn has_value(text: &str) -> bool {
    text.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}' | '\u{10800}'..='\u{10FFF}' | '\u{1E800}'..='\u{1EFFF}')
}

/// Keeps right-to-left text from reordering what stands beside it in a line.
fn isolate(text: String) -> String {
    if text.chars().any(is_right_to_left) { format!("\u{2068}{text}\u{2069}") } else { text }
}

#[expect(clippy::needless_pass_by_value, reason = "the engine hands keyword arguments over by value")]
fn fill(text: &str, values: Kwargs) -> Result<String, Error> {
    let mut given = Vec::new();
    for name in values.args() {
        let value: Value = values.get(name)?;
        given.push((name, value.as_str().map(str::to_owned).ok_or_else(|| refusal("`fill` takes texts"))?));
    }
    strings::fill(text, given.into_iter()).map_err(refusal)
}

#[expect(clippy::needless_pass_by_value, reason = "the engine hands keyword arguments over by value")]
fn columns_call(left: &str, right: &str, options: Kwargs) -> Result<String, Error> {
    let width = options.get::<Option<usize>>("width")?.unwrap_or(72).clamp(20, 200);
    let hang = options.get::<Option<usize>>("hang")?.unwrap_or(2);
    options.assert_all_used()?;
    Ok(columns(left, right, width, hang))
}
