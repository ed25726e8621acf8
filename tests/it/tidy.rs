//! Keeps the architecture true: what may be mentioned where, how long files and functions may grow, and that the
//! two ledgers stay twins.

use std::fs;
use std::path::{Path, PathBuf};

const MOST_FILE_LINES: usize = 500;
const MOST_FUNCTION_LINES: usize = 70;

/// Modules that must stay free of I/O, and the words that would show that they are not.
const PURE: &[&str] = &["src/identity", "src/receipt"];
const IMPURE_WORDS: &[&str] = &[
    "sqlx",
    "tokio",
    "reqwest",
    "lettre",
    "std::fs",
    "std::env",
    "std::net",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "getrandom",
    "rand::",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{ending} below {folder}");
    found
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The code of a file: without its unit tests, comments and documentation.
fn code(text: &str) -> Vec<(usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line))
        .collect()
}

#[test]
fn every_source_file_says_first_what_lives_there() {
    for path in files_below("src", "rs").into_iter().chain(files_below("tests", "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} must open with a line of //! that says what lives there", name(&path));
    }
}

#[test]
fn pure_modules_know_no_outside_world() {
    for path in PURE.iter().flat_map(|folder| files_below(folder, "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        for (line, code) in code(&text) {
            for word in IMPURE_WORDS {
                assert!(
                    !code.contains(word),
                    "{}:{line} mentions {word}; pure modules take such things as arguments",
                    name(&path)
                );
            }
        }
    }
}

#[test]
fn sql_lives_in_the_ledger_only() {
    for path in files_below("src", "rs") {
        if path.starts_with(root().join("src/ledger")) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (line, code) in code(&text) {
            assert!(
                !code.contains("sqlx::") || code.contains("\"sqlx::"),
                "{}:{line} mentions sqlx, which is at home below src/ledger",
                name(&path)
            );
        }
    }
}

#[test]
fn both_ledgers_have_the_same_migrations() {
    let names = |folder| -> Vec<String> {
        files_below(folder, "sql").iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names("migrations/sqlite"), names("migrations/postgres"));
}

#[test]
fn no_file_grows_long() {
    for path in files_below("src", "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        assert!(
            lines <= MOST_FILE_LINES || TRAITS.contains(&name(&path).as_str()),
            "{} has {lines} lines",
            name(&path)
        );
    }
}

/// Files that are mostly the documentation of one contract.
const TRAITS: &[&str] = &["src/ledger/mod.rs"];

#[test]
fn no_function_grows_long() {
    for path in files_below("src", "rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut begun: Option<(usize, usize)> = None;
        for (index, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let words = line.trim_start();
            let is_function = [
                "fn ",
                "pub fn ",
                "async fn ",
                "pub async fn ",
                "pub(crate) fn ",
                "pub(super) fn ",
                "pub(super) async fn ",
                "const fn ",
                "pub const fn ",
            ]
            .iter()
            .any(|start| words.starts_with(start));
            if is_function && begun.is_none() {
                begun = Some((index, indent));
            }
            if let Some((start, depth)) = begun
                && indent == depth
                && (words == "}" || (index == start && words.ends_with('}')) || words.ends_with(';'))
            {
                let length = index - start + 1;
                assert!(length <= MOST_FUNCTION_LINES, "{}:{} a function of {length} lines", name(&path), start + 1);
                begun = None;
            }
        }
    }
}

#[test]
fn modules_are_named_for_what_they_hold() {
    for path in files_below("src", "rs") {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        for vague in ["util", "utils", "common", "helper", "helpers", "types", "core", "manager", "misc"] {
            assert_ne!(stem, vague, "{} says nothing", name(&path));
        }
    }
}

#[test]
fn a_dependency_says_why_it_is_there_or_is_known_to_everyone() {
    let known = ["serde", "serde_json", "sha2", "thiserror", "tokio", "toml", "tracing", "tracing-subscriber", "url"];
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let mut section = "";
    let mut previous = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && line.contains('=') && !line.starts_with('#') {
            let crate_name = line.split('=').next().unwrap().trim();
            assert!(
                previous.starts_with('#') || known.contains(&crate_name),
                "Cargo.toml: {crate_name} has no line of why"
            );
        }
        previous = line;
    }
}
