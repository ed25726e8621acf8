//! What templates see of a row, converted once for all three templates.
//!
//! | name | is |
//! |---|---|
//! | `data` | the row's `data`, its texts without control characters and direction overrides |
//! | `name` | the recipient's name, or null |
//! | `locale` | `tag` (the row's), `language` and `direction` (the text's) |
//! | `text` | the words of `strings.json` in that language |
//! | `sender` | the sender's name, or its domain |
//! | `digest_type` | the type, in the bodies only |
//! | `unsubscribe_url` | https, in the bodies only |

use std::borrow::Cow;
use std::collections::BTreeMap;

use minijinja::value::Value;

use super::plain_text::{has_control, neutralised};

/// Names that a subject may use.
pub(super) const SUBJECT_NAMES: [&str; 5] = ["data", "locale", "name", "sender", "text"];
/// Names that only the bodies may use besides.
pub(super) const BODY_NAMES: [&str; 2] = ["digest_type", "unsubscribe_url"];

/// A row's `data` as the template engine's, with every text neutralised (names of members too: a template may show
/// them), and whether a control character went in doing so.
pub(super) fn data_of(json: &serde_json::Value) -> (Value, bool) {
    let mut conversion = Conversion { keep_controls: false, met_control: false };
    let value = conversion.value(json);
    (value, conversion.met_control)
}

/// The same with control characters left in, for a subject to find them.
pub(super) fn data_with_controls(json: &serde_json::Value) -> Value {
    Conversion { keep_controls: true, met_control: false }.value(json)
}

struct Conversion {
    keep_controls: bool,
    met_control: bool,
}

impl Conversion {
    fn value(&mut self, json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Value::from(()),
            serde_json::Value::Bool(value) => Value::from(*value),
            serde_json::Value::Number(number) => number_of(number),
            serde_json::Value::String(text) => Value::from(self.text(text).as_ref()),
            serde_json::Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            serde_json::Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (self.text(name).into_owned(), self.value(value)));
                Value::from_pairs(members.collect::<BTreeMap<String, Value>>())
            }
        }
    }

    fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let neutral = neutralised(text);
        if matches!(neutral, Cow::Owned(_)) && has_control(text) {
            self.met_control = true;
            if self.keep_controls {
                return Cow::Borrowed(text);
            }
        }
        neutral
    }
}

fn number_of(number: &serde_json::Number) -> Value {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(value), _, _) => Value::from(value),
        (_, Some(value), _) => Value::from(value),
        (_, _, value) => Value::from(value.unwrap_or_default()),
    }
}

/// The context of the subject: what is known of a row before there is a receipt.
pub(super) fn subject_context(data: Value, name: Option<&str>, locale: Value, text: Value, sender: Value) -> Context {
    let name = name.map_or_else(|| Value::from(()), |name| Value::from(neutralised(name).as_ref()));
    Context(vec![("data", data), ("name", name), ("locale", locale), ("text", text), ("sender", sender)])
}

/// Names and values for a template.
#[derive(Clone)]
pub(super) struct Context(Vec<(&'static str, Value)>);

impl Context {
    /// The same with one value more.
    pub(super) fn with(mut self, name: &'static str, value: Value) -> Self {
        self.0.push((name, value));
        self
    }

    pub(super) fn into_value(self) -> Value {
        Value::from_pairs(self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{data_of, data_with_controls};

    #[test]
    fn texts_are_neutralised_at_every_depth() {
        let data = json!({"a": [{"b\u{202e}": "c\u{202e}d"}], "n": 9_007_199_254_740_991_i64});
        let (value, met_control) = data_of(&data);
        assert_eq!(value.to_string(), "{'a': [{'b': 'cd'}], 'n': 9007199254740991}");
        assert!(!met_control);
    }

    #[test]
    fn control_characters_are_told_of_and_kept_only_where_asked() {
        let (value, met_control) = data_of(&json!(["a\nb"]));
        assert!(met_control);
        assert_eq!(value.get_item_by_index(0).expect("an item").as_str(), Some("a b"));
        let kept = data_with_controls(&json!(["a\nb"]));
        assert_eq!(kept.get_item_by_index(0).expect("an item").as_str(), Some("a\nb"));
    }
}
