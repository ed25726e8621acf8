//! From the files of a bundle to compiled templates, one set a language. Everything that can be known to be wrong
//! before a row is seen is refused here, by file and line.

use std::collections::BTreeMap;
use std::path::Path;

use icu::locale::LanguageIdentifier;
use minijinja::Environment;
use minijinja::value::Value;

use super::context::{BODY_NAMES, SUBJECT_NAMES};
use super::engine::{BUILT_IN, FUNCTIONS, OWN};
use super::error::{BundleError, reason_of};
use super::files::{self, Files, HTML, LOCALES, STRINGS, SUBJECT, TEXT};
use super::places;
use super::scan::{Segment, Token, filter_names, segments};
use super::strings::{self, LANGUAGE, Strings};

/// The language of a bundle that does not tell.
const DEFAULT_LANGUAGE: &str = "en";

/// The templates and words of one language.
#[derive(Debug)]
pub(super) struct Language {
    pub(super) id: LanguageIdentifier,
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) html: String,
    pub(super) strings: Value,
}

/// All languages of a bundle, the bundle's own apart from the others, which go by their tags.
#[derive(Debug)]
pub(super) struct Languages {
    pub(super) own: Language,
    pub(super) others: BTreeMap<String, Language>,
}

/// Adds every template to the engine and answers which language has which.
pub(super) fn compile(
    directory: &Path,
    files: &Files,
    engine: &mut Environment<'static>,
) -> Result<Languages, BundleError> {
    for (inner, bytes) in files {
        if is_template(inner) {
            add_template(engine, directory, inner, &files::text(directory, inner, bytes)?)?;
        }
    }
    let words = |inner: &str| match files.get(inner) {
        Some(bytes) => strings::parse(&directory.join(inner), &files::text(directory, inner, bytes)?),
        None => Ok(Strings::new()),
    };
    let own = words(STRINGS)?;
    let tag = own.get(LANGUAGE).map_or(DEFAULT_LANGUAGE, String::as_str);
    let id = language_id(tag, &directory.join(STRINGS))?;
    let mut by_tag: BTreeMap<String, Strings> = BTreeMap::new();
    let mut others = BTreeMap::new();
    // A shorter tag comes before those that it stands in for.
    for tag in locale_tags(files) {
        let path = directory.join(LOCALES).join(&tag);
        let id = language_id(&tag, &path)?;
        let inner = format!("{LOCALES}{tag}/{STRINGS}");
        let base = stand_ins(&tag).find_map(|tag| by_tag.get(tag)).unwrap_or(&own);
        let mine = strings::overlaid(&directory.join(&inner), base, words(&inner)?)?;
        let named = |name| nearest(files, &tag, name);
        let strings = value_of(&mine);
        others.insert(
            tag.clone(),
            Language { id, subject: named(SUBJECT), text: named(TEXT), html: named(HTML), strings },
        );
        by_tag.insert(tag, mine);
    }
    let named = str::to_owned;
    let strings = value_of(&own);
    Ok(Languages {
        own: Language { id, subject: named(SUBJECT), text: named(TEXT), html: named(HTML), strings },
        others,
    })
}

fn value_of(strings: &Strings) -> Value {
    Value::from_pairs(strings.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

fn is_template(inner: &str) -> bool {
    let name = inner.rsplit('/').next().unwrap_or(inner);
    matches!(name, SUBJECT | TEXT | HTML)
}

/// The tags that have a directory, shorter ones first.
fn locale_tags(files: &Files) -> Vec<String> {
    let tag = |inner: &String| Some(inner.strip_prefix(LOCALES)?.split_once('/')?.0.to_owned());
    let mut tags: Vec<String> = files.keys().filter_map(tag).collect();
    tags.sort_by_key(|tag| (tag.len(), tag.clone()));
    tags.dedup();
    tags
}

/// The tags that stand in for `tag`, the nearest first: itself, then shorter ones.
fn stand_ins(tag: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(tag), |tag| tag.rfind('-').and_then(|end| tag.get(..end)))
}

/// The template that a language uses: its own, or that of the nearest stand-in.
fn nearest(files: &Files, tag: &str, name: &str) -> String {
    let candidates = stand_ins(tag).map(|tag| format!("{LOCALES}{tag}/{name}"));
    candidates.into_iter().find(|inner| files.contains_key(inner)).unwrap_or_else(|| name.to_owned())
}

/// A language tag in its canonical form: `de`, `de-CH`, `zh-Hant`.
fn language_id(tag: &str, path: &Path) -> Result<LanguageIdentifier, BundleError> {
    let id = tag
        .parse::<LanguageIdentifier>()
        .map_err(|_| BundleError::file(path, "is no language tag; write it like de, de-CH or zh-Hant"))?;
    if id.to_string() != tag {
        return Err(BundleError::file(path, format!("write the language tag as {id}")));
    }
    Ok(id)
}

fn add_template(
    engine: &mut Environment<'static>,
    directory: &Path,
    inner: &str,
    source: &str,
) -> Result<(), BundleError> {
    let path = directory.join(inner);
    engine.add_template_owned(inner.to_owned(), source.to_owned()).map_err(|error| at_line(&path, &error))?;
    let pieces = segments(source).map_err(|line| BundleError::Line {
        path: path.clone(),
        line,
        reason: "a brace that is opened here is not closed".to_owned(),
    })?;
    check_names(&path, &pieces)?;
    check_variables(engine, &path, inner, &pieces)?;
    if inner.ends_with(HTML) {
        places::check(&pieces).map_err(|found| BundleError::Line {
            path,
            line: found.line,
            reason: found.reason.to_owned(),
        })?;
    }
    Ok(())
}

fn at_line(path: &Path, error: &minijinja::Error) -> BundleError {
    // A template's own words may be quoted: they are no row's content.
    let detail = error.detail().map_or_else(|| reason_of(error), str::to_owned);
    BundleError::Line {
        path: path.to_owned(),
        line: error.line().unwrap_or(1),
        reason: format!("is no valid template: {detail}"),
    }
}

/// Refuses filters that do not exist, which the engine would find out only when it comes across them.
fn check_names(path: &Path, pieces: &[Segment<'_>]) -> Result<(), BundleError> {
    for piece in pieces {
        let (Token::Value(code) | Token::Statement(code)) = piece.token else { continue };
        let unknown = |name: &&str| !OWN.contains(name) && !BUILT_IN.contains(name);
        if let Some(name) = filter_names(code).into_iter().find(unknown) {
            let known = [OWN.as_slice(), BUILT_IN.as_slice()].concat().join(", ");
            return Err(BundleError::Line {
                path: path.to_owned(),
                line: piece.line,
                reason: format!("there is no filter `{name}`; known are {known}"),
            });
        }
        let statement = code.split_whitespace().next().unwrap_or_default();
        let loads = matches!(statement, "include" | "import" | "from" | "extends");
        if matches!(piece.token, Token::Statement(_)) && loads {
            return Err(BundleError::Line {
                path: path.to_owned(),
                line: piece.line,
                reason: format!(
                    "`{statement}` is not available: a template stands by itself; use a macro or strings.json"
                ),
            });
        }
    }
    Ok(())
}

/// Refuses variables that no row ever has.
fn check_variables(
    engine: &Environment<'static>,
    path: &Path,
    inner: &str,
    pieces: &[Segment<'_>],
) -> Result<(), BundleError> {
    let template = engine.get_template(inner).map_err(|error| at_line(path, &error))?;
    let is_subject = inner.ends_with(SUBJECT);
    let known = |name: &str| {
        SUBJECT_NAMES.contains(&name)
            || FUNCTIONS.contains(&name)
            || matches!(name, "range" | "dict" | "namespace" | "loop")
            || (BODY_NAMES.contains(&name) && !is_subject)
    };
    let mut unknown: Vec<String> =
        template.undeclared_variables(false).into_iter().filter(|name| !known(name)).collect();
    unknown.sort_unstable();
    let Some(name) = unknown.first() else { return Ok(()) };
    let holds = |piece: &&Segment<'_>| matches!(piece.token, Token::Value(code) | Token::Statement(code) if code.contains(name.as_str()));
    let names =
        if is_subject { SUBJECT_NAMES.join(", ") } else { [SUBJECT_NAMES.as_slice(), &BODY_NAMES].concat().join(", ") };
    Err(BundleError::Line {
        path: path.to_owned(),
        line: pieces.iter().find(holds).map_or(1, |piece| piece.line),
        reason: format!("there is no variable `{name}`; known here are {names}; what the row says is under `data`"),
    })
}
