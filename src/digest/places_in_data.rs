//! Places inside a row's `data`: how a schema names them and how an error does, without ever showing content.

use serde_json::Value;

use crate::identity::canonical_json::shown_name;

/// A member's place, such as `currency` or `transactions[].amount`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlaceInData(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Items,
}

/// A value at a place, with the path that an error names.
pub(super) struct Found<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl PlaceInData {
    /// Reads the notation of a schema; `None` where it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let name = part.trim_end_matches("[]");
            is_plain_name(name).then_some(())?;
            steps.push(Step::Member(name.to_owned()));
            steps.extend(std::iter::repeat_n(Step::Items, (part.len() - name.len()) / 2));
        }
        Some(Self(steps))
    }

    /// Every value at this place.
    pub(super) fn all<'a>(&self, data: &'a Value) -> Vec<Found<'a>> {
        let mut found = vec![Found { path: "data".to_owned(), value: data }];
        for step in &self.0 {
            found = found.into_iter().flat_map(|at| step.from(&at)).collect();
        }
        found
    }

    /// The first value at this place.
    pub(super) fn first<'a>(&self, data: &'a Value) -> Option<Found<'a>> {
        self.all(data).into_iter().next()
    }
}

impl Step {
    fn from<'a>(&self, at: &Found<'a>) -> Vec<Found<'a>> {
        match (self, at.value) {
            (Self::Member(name), Value::Object(members)) => members
                .get(name)
                .map(|value| Found { path: format!("{}.{name}", at.path), value })
                .into_iter()
                .collect(),
            (Self::Items, Value::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, value)| Found { path: format!("{}[{index}]", at.path), value })
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// A JSON pointer into `data` as the path that errors show. A member whose name could be content is
/// not shown; nor is a number that is long enough for an account's instead of an index.
pub(super) fn path_of(pointer: &str) -> String {
    let mut path = String::from("data");
    for part in pointer.split('/').skip(1) {
        if (1..=5).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()) {
            path.push('[');
            path.push_str(part);
            path.push(']');
        } else {
            path.push('.');
            path.push_str(shown_name(part));
        }
    }
    path
}

/// What a schema may name: `[A-Za-z_][A-Za-z0-9_-]{0,63}`
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PlaceInData, path_of};

    #[test]
    fn a_place_finds_every_value_with_its_path() {
        let data = json!({"a": [{"b": 1}, {"c": 2}, {"b": 3}], "d": {"e": 4}});
        let paths = |text: &str| {
            let place = PlaceInData::parse(text).expect("a place");
            place.all(&data).into_iter().map(|found| found.path).collect::<Vec<_>>()
        };
        assert_eq!(paths("a[].b"), ["data.a[0].b", "data.a[2].b"]);
        assert_eq!(paths("d.e"), ["data.d.e"]);
        assert!(paths("x.y[]").is_empty());
        assert!(["", "a..b", "a[", "[]", "a b", "a[0]"].iter().all(|text| PlaceInData::parse(text).is_none()));
    }

    #[test]
    fn names_that_could_be_content_are_not_shown() {
        assert_eq!(path_of("/transactions/3/amount"), "data.transactions[3].amount");
        assert_eq!(path_of("/Mr X's account/amount"), "data.(not shown).amount");
        assert_eq!(path_of("/accounts/84210007/amount"), "data.accounts.(not shown).amount");
        assert_eq!(path_of(""), "data");
    }
}
