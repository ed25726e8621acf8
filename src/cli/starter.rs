//! The files of a new installation and how they are written: all of them or, where one would be overwritten, none.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::{Exit, Failure, bundled, keys, sample};
use crate::identity::IsoWeek;
use crate::ledger::Mode;

/// The configuration, complete, with every default shown.
pub(super) const CONFIGURATION: &str = include_str!("starter_files/counterfoil.toml");

/// The line that decides whether anything is sent.
const OBSERVE_LINE: &str = "mode   = \"observe\"                     # observe sends nothing; enforce sends";
const ENFORCE_LINE: &str = "mode   = \"enforce\"                     # observe sends nothing; enforce sends";

const KEYRING_NAME: &str = "keyring.toml";

/// What a directory was filled with.
#[derive(Debug)]
pub(super) struct Starter {
    /// The directory.
    pub(super) directory: PathBuf,
    /// The week that the sample export is about.
    pub(super) week: IsoWeek,
    /// Files that were written now, relative to the directory.
    pub(super) written: Vec<String>,
    /// Files that stood there already, as they would have been written.
    pub(super) kept: Vec<String>,
}

impl Starter {
    /// The configuration file.
    pub(super) fn configuration(&self) -> PathBuf {
        self.directory.join("counterfoil.toml")
    }

    /// The sample export.
    pub(super) fn export(&self) -> PathBuf {
        self.directory.join(export_name(self.week))
    }
}

/// Fills a directory. A keyring that stands there is kept: receipts may depend on it. Anything else that stands
/// there must be what would be written.
///
/// # Errors
/// A file with another content, by name, before anything is written; a directory that cannot be written.
pub(super) fn fill(directory: &Path, mode: Mode, this_week: IsoWeek) -> Result<Starter, Failure> {
    let week = this_week.previous().map_err(Failure::refused)?;
    let files = files(mode, week);
    let (kept, missing) = compare(directory, &files)?;
    std::fs::create_dir_all(directory).map_err(|error| cannot_write(directory, error))?;
    let mut starter = Starter { directory: directory.to_owned(), week, written: Vec::new(), kept };
    for file in missing {
        write(&directory.join(&file.name), &file.bytes)?;
        starter.written.push(file.name.clone());
    }
    if directory.join(KEYRING_NAME).exists() {
        starter.kept.push(KEYRING_NAME.to_owned());
    } else {
        keys::write_private(&directory.join(KEYRING_NAME), &fresh_keyring(this_week)?)?;
        starter.written.push(KEYRING_NAME.to_owned());
    }
    Ok(starter)
}

fn fresh_keyring(this_week: IsoWeek) -> Result<SecretString, Failure> {
    let first = keys::first_week_of_new_keyring(this_week)?;
    keys::fresh_keyring(&first.to_string(), first)
}

struct File {
    name: String,
    bytes: Vec<u8>,
}

fn files(mode: Mode, week: IsoWeek) -> Vec<File> {
    let configuration = match mode {
        Mode::Enforce => CONFIGURATION.replace(OBSERVE_LINE, ENFORCE_LINE),
        _ => CONFIGURATION.to_owned(),
    };
    let templates = bundled::files().map(|(name, text)| File { name, bytes: text.as_bytes().to_vec() });
    let mut files = vec![
        File { name: "counterfoil.toml".to_owned(), bytes: configuration.into_bytes() },
        File { name: export_name(week), bytes: sample::export(week).into_bytes() },
    ];
    files.extend(templates);
    files
}

fn export_name(week: IsoWeek) -> String {
    format!("sample-{week}.jsonl")
}

/// The names of files that stand there alike, and the files that are missing.
fn compare<'a>(directory: &Path, files: &'a [File]) -> Result<(Vec<String>, Vec<&'a File>), Failure> {
    let (mut kept, mut missing, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        match std::fs::read(directory.join(&file.name)) {
            Ok(bytes) if bytes == file.bytes => kept.push(file.name.clone()),
            Ok(_) => others.push(file.name.as_str()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing.push(file),
            Err(error) => {
                let error = anyhow::Error::new(error)
                    .context(format!("{} cannot be read", directory.join(&file.name).display()));
                return Err(Failure { exit: Exit::CouldNotRun, error, hint: None });
            }
        }
    }
    if others.is_empty() {
        return Ok((kept, missing));
    }
    let reason = format!("{} exists already with other content: {}", directory.display(), others.join(", "));
    Err(Failure::refused_because(reason)
        .with_hint("nothing was written; choose an empty directory, or move these files away"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = parent.and_then(|()| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| cannot_write(path, error))
}

fn cannot_write(path: &Path, error: std::io::Error) -> Failure {
    Failure::could_not_run(anyhow::Error::new(error).context(format!("{} cannot be written", path.display())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::{Config, load_keyring};

    fn week() -> IsoWeek {
        "2026-W33".parse().unwrap()
    }

    #[test]
    fn a_filled_directory_is_a_configuration_that_loads() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, name) in [(Mode::Observe, "a"), (Mode::Enforce, "b")] {
            let starter = fill(&directory.path().join(name), mode, week()).unwrap();
            assert!(starter.kept.is_empty());
            assert!(starter.export().ends_with("sample-2026-W32.jsonl"));
            if crate::provider::KINDS.is_empty() {
                continue;
            }
            let config = Config::load(&starter.configuration(), &BTreeMap::new()).unwrap();
            assert_eq!(config.rollout.mode, mode);
            assert!(load_keyring(&config.keyring).unwrap().for_week(starter.week).is_ok());
        }
    }

    #[test]
    fn filling_twice_writes_nothing_and_keeps_the_keyring() {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), Mode::Observe, week()).unwrap();
        let keyring = std::fs::read(directory.path().join(KEYRING_NAME)).unwrap();
        let again = fill(directory.path(), Mode::Observe, week()).unwrap();
        assert!(again.written.is_empty(), "{:?}", again.written);
        assert_eq!(std::fs::read(directory.path().join(KEYRING_NAME)).unwrap(), keyring);
    }

    #[test]
    fn a_changed_file_is_named_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("counterfoil.toml"), "mine").unwrap();
        let failure = fill(directory.path(), Mode::Observe, week()).unwrap_err();
        assert!(failure.error.to_string().ends_with("with other content: counterfoil.toml"), "{}", failure.error);
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_readme_shows_the_configuration_that_is_written() {
        let readme = include_str!("../../README.md");
        assert!(readme.contains(&format!("```toml\n{CONFIGURATION}```")));
    }

    #[test]
    fn the_mode_is_the_only_difference_between_the_two_configurations() {
        let enforce = CONFIGURATION.replace(OBSERVE_LINE, ENFORCE_LINE);
        let different = CONFIGURATION.lines().zip(enforce.lines()).filter(|(a, b)| a != b).count();
        assert_eq!(different, 1);
    }
}
