//! `strings.json`: the words that templates show, by name, so that a language needs words and no second layout.
//!
//! Names are `[a-z][a-z0-9_]*`, values are texts. The bundle's own file may name its language in `language`
//! (`en` otherwise). A language's file may leave names out that a nearer stand-in or the bundle has, but may not
//! invent any.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::BundleError;

/// Texts by name.
pub(super) type Strings = BTreeMap<String, String>;

/// The name under which the bundle's own file tells its language.
pub(super) const LANGUAGE: &str = "language";

/// Reads one `strings.json`.
pub(super) fn parse(path: &Path, text: &str) -> Result<Strings, BundleError> {
    let strings: Strings = serde_json::from_str(text).map_err(|error| BundleError::Line {
        path: path.to_owned(),
        line: error.line(),
        reason: "is not a JSON object whose members are all texts".to_owned(),
    })?;
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    match strings.keys().find(|name| !is_name(name)) {
        Some(name) => {
            Err(BundleError::file(path, format!("`{name}` is no name; use lower-case letters, digits and _")))
        }
        None => Ok(strings),
    }
}

/// A language's texts over those that stand in for it.
pub(super) fn overlaid(path: &Path, base: &Strings, own: Strings) -> Result<Strings, BundleError> {
    let mut strings = base.clone();
    for (name, text) in own {
        if name == LANGUAGE {
            return Err(BundleError::file(
                path,
                "`language` belongs into the bundle's own strings.json; here the directory's name tells it",
            ));
        }
        if strings.insert(name.clone(), text).is_none() {
            return Err(BundleError::file(
                path,
                format!("`{name}` is not in the bundle's own strings.json; add it there or remove it here"),
            ));
        }
    }
    Ok(strings)
}

/// Puts values into the `{places}` of a text; an unknown place, or a value without one, is refused.
pub(super) fn fill<'a>(text: &str, values: impl Iterator<Item = (&'a str, String)>) -> Result<String, String> {
    let values: BTreeMap<&str, String> = values.collect();
    let mut used = std::collections::BTreeSet::new();
    let (mut out, mut rest) = (String::with_capacity(text.len() + 32), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').ok_or("a text has an opening brace without its end")?;
        let (name, value) = values.get_key_value(name).ok_or_else(|| unknown_place(&values))?;
        used.insert(*name);
        out.push_str(before);
        out.push_str(value);
        rest = after;
    }
    out.push_str(rest);
    match values.keys().find(|name| !used.contains(*name)) {
        Some(name) => Err(format!("a text lacks the place {{{name}}}")),
        None => Ok(out),
    }
}

/// Names what is given and not the place: a template may fill a text of the row by mistake.
fn unknown_place(values: &BTreeMap<&str, String>) -> String {
    let given: Vec<&str> = values.keys().copied().collect();
    format!("a text has a place in braces that is not given; given are {}", given.join(", "))
}

#[cfg(test)]
mod tests {
    use super::fill;

    fn filled(text: &str, values: &[(&str, &str)]) -> Result<String, String> {
        fill(text, values.iter().map(|(name, value)| (*name, (*value).to_owned())))
    }

    #[test]
    fn places_are_filled_once_and_values_are_not_looked_at_again() {
        assert_eq!(
            filled("Your week {period}!", &[("period", "{period} 3–9")]).as_deref(),
            Ok("Your week {period} 3–9!")
        );
        assert_eq!(filled("plain", &[]).as_deref(), Ok("plain"));
    }

    #[test]
    fn places_and_values_must_match() {
        assert!(filled("a {b}", &[]).is_err());
        assert!(filled("a", &[("b", "c")]).is_err());
        assert!(filled("a {b", &[("b", "c")]).is_err());
    }
}
