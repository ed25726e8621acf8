//! Strict JSON for rows: no duplicate member, no number that loses digits, one canonical form (RFC 8785).
//!
//! Two texts with the same canonical form are the same content. What cannot be told apart safely, such as
//! an integer beyond ±(2^53−1), is refused here instead of being rounded.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text is not an acceptable JSON value. No message repeats the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON (RFC 8259), or not in the form that the parser takes (lone surrogate, nested too deep).
    #[error("is not valid JSON at column {column}: {reason}")]
    Syntax {
        /// Byte of the line, from 1.
        column: usize,
        /// The parser's words, which never quote the input.
        reason: String,
    },
    /// A member name twice in one object.
    #[error("has the member twice")]
    Duplicate {
        /// Path of the second one, such as `data.currency`.
        path: String,
    },
    /// A number that would not survive: too many digits or too great an exponent.
    #[error("{reason}")]
    Number {
        /// Path of the number, such as `data.transactions[3].amount`.
        path: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
}

const INTEGER_RULE: &str = "is an integer beyond ±9007199254740991, which JSON readers round; write it as a string";
const DIGITS_RULE: &str = "has more than 15 significant digits, which JSON readers round; write it as a string";
const EXPONENT_RULE: &str = "has an exponent beyond ±300; write it as a string";

/// Parses one JSON value under the rules of this module.
///
/// # Errors
/// The first rule that the text breaks.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    let failure = std::cell::RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let strict = Strict { path: Path::Root, failure: &failure };
    let value = strict.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    match (value, failure.into_inner()) {
        (Ok(value), None) => {
            check_numbers(text)?;
            Ok(value)
        }
        (_, Some(found)) => Err(found),
        (Err(error), None) => Err(JsonError::Syntax { column: error.column(), reason: bare_reason(&error) }),
    }
}

/// The canonical form (RFC 8785) of a value that [`parse`] returned.
pub fn canonical(value: &Value) -> Vec<u8> {
    // Fails only for numbers that are not finite, which a parsed value cannot hold.
    serde_json_canonicalizer::to_vec(value).unwrap_or_default()
}

/// `serde_json` ends its messages with a place in the text, which the caller gives in its own words.
fn bare_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text).to_owned()
}

/// Where in the value we are, as a list linked towards the root: costs nothing until an error needs it.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Member(Path::Root, name) => f.write_str(name),
            Path::Member(parent, name) => write!(f, "{parent}.{name}"),
            Path::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A `Value` whose objects have no member twice.
#[derive(Clone, Copy)]
struct Strict<'a> {
    path: Path<'a>,
    failure: &'a std::cell::RefCell<Option<JsonError>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict { path: Path::Item(&self.path, list.len()), ..self })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let path = Path::Member(&self.path, &name);
            if map.contains_key(&name) {
                *self.failure.borrow_mut() = Some(JsonError::Duplicate { path: path.to_string() });
                return Err(de::Error::custom("duplicate member"));
            }
            let value = members.next_value_seed(Strict { path, ..self })?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// Walks a text that is known to be JSON and checks how each number is written; a parsed number no longer
/// knows its digits.
fn check_numbers(text: &str) -> Result<(), JsonError> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'-' | b'0'..=b'9' => {
                let length = bytes.get(at..).map_or(0, |rest| {
                    rest.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count()
                });
                let number = text.get(at..at + length).unwrap_or_default();
                if let Some(reason) = number_fault(number) {
                    return Err(JsonError::Number { path: path_at(text, at), reason });
                }
                at += length.max(1);
            }
            _ => at += 1,
        }
    }
    Ok(())
}

/// The place behind a string that begins at `start` with its quotation mark.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Which rule a JSON number breaks as it is written.
fn number_fault(number: &str) -> Option<&'static str> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let unsigned = mantissa.trim_start_matches('-');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let Ok(exponent) = exponent.parse::<i64>() else { return Some(EXPONENT_RULE) };
    if significant.is_empty() {
        return (exponent.abs() > 300).then_some(EXPONENT_RULE);
    }
    let leading = i64::try_from(digits.len() - significant.len()).unwrap_or(i64::MAX);
    let whole_digits = i64::try_from(whole.len()).unwrap_or(i64::MAX);
    let scientific = exponent.saturating_add(whole_digits).saturating_sub(leading).saturating_sub(1);
    if exponent.abs() > 300 || scientific.abs() > 300 {
        return Some(EXPONENT_RULE);
    }
    let is_integer = !number.contains(['.', 'e', 'E']);
    if is_integer {
        let fits = unsigned.parse::<u64>().is_ok_and(|value| value < 1 << 53);
        return (!fits).then_some(INTEGER_RULE);
    }
    (significant.len() > 15).then_some(DIGITS_RULE)
}

/// The path of the value that begins at `offset`. Only for errors: it walks the text again.
fn path_at(text: &str, offset: usize) -> String {
    enum Frame {
        Object(String),
        Array(usize),
    }
    let bytes = text.as_bytes();
    let mut frames: Vec<Frame> = Vec::new();
    let mut at = 0;
    while at < offset {
        match bytes.get(at) {
            Some(b'{') => frames.push(Frame::Object(String::new())),
            Some(b'[') => frames.push(Frame::Array(0)),
            Some(b'}' | b']') => drop(frames.pop()),
            Some(b',') => {
                if let Some(Frame::Array(index)) = frames.last_mut() {
                    *index += 1;
                }
            }
            Some(b'"') => {
                let end = string_end(bytes, at);
                let is_name = text.get(end..).is_some_and(|rest| rest.trim_start().starts_with(':'));
                if let (true, Some(Frame::Object(name))) = (is_name, frames.last_mut()) {
                    *name = text.get(at..end).and_then(|quoted| serde_json::from_str(quoted).ok()).unwrap_or_default();
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for frame in frames {
        match frame {
            Frame::Object(name) if path.is_empty() => path = name,
            Frame::Object(name) => path = format!("{path}.{name}"),
            Frame::Array(index) => path = format!("{path}[{index}]"),
        }
    }
    path
}
