//! The ledger's URL: which kinds there are, what a relative path is relative to, where a password may stand.

use std::path::Path;

use secrecy::SecretString;

/// What a ledger URL should look like.
const FORM: &str = "expected sqlite://PATH, such as \"sqlite://counterfoil.db\", or postgres://HOST/DATABASE";

/// Checks a URL and makes the path of an SQLite file absolute. `exposed` says that the URL stands in a file that
/// everyone on the machine may read; it must hold no password then.
///
/// # Errors
/// What is wrong, never with the URL itself.
pub(super) fn checked(url: &str, directory: &Path, exposed: bool) -> Result<SecretString, String> {
    if let Some(path) = url.strip_prefix("sqlite:") {
        return sqlite(path.strip_prefix("//").unwrap_or(path), directory).map(SecretString::from);
    }
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(FORM.to_owned());
    }
    let parsed = url::Url::parse(url).map_err(|error| format!("{FORM}: {error}"))?;
    let in_query = parsed.query_pairs().any(|(name, _)| name == "password");
    if exposed && (parsed.password().is_some() || in_query) {
        return Err(
            "holds a password, but everyone on this machine may read the file; type `chmod o-r` and the file's \
                    name, or set COUNTERFOIL_LEDGER__URL in the environment, or leave the password out and use \
                    PGPASSFILE"
                .to_owned(),
        );
    }
    Ok(SecretString::from(url))
}

fn sqlite(rest: &str, directory: &Path) -> Result<String, String> {
    let (path, options) = rest.split_once('?').map_or((rest, None), |(path, options)| (path, Some(options)));
    let in_memory = path.contains(":memory:") || options.is_some_and(|options| options.contains("mode=memory"));
    if path.is_empty() || in_memory {
        return Err(format!("{FORM}; a ledger must outlive the process"));
    }
    let absolute = if path.starts_with('/') { path.to_owned() } else { joined(directory, path)? };
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    Ok(format!("sqlite://{absolute}{options}"))
}

/// The path behind the directory. In a URL's path a question mark and a percent sign are written as escapes.
fn joined(directory: &Path, path: &str) -> Result<String, String> {
    let directory = directory.to_str().ok_or("the directory of the configuration file must have a name in UTF-8")?;
    let directory = directory.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let path = path.strip_prefix("./").unwrap_or(path);
    Ok(format!("{}/{path}", directory.trim_end_matches('/')))
}

/// Whether others than owner and group may read a file.
pub(super) fn readable_by_everyone(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn at(url: &str, exposed: bool) -> Result<String, String> {
        checked(url, Path::new("/etc/counter foil"), exposed).map(|url| url.expose_secret().to_owned())
    }

    #[test]
    fn a_relative_sqlite_path_is_relative_to_the_file() {
        assert_eq!(at("sqlite://counterfoil.db", false).unwrap(), "sqlite:///etc/counter foil/counterfoil.db");
        assert_eq!(at("sqlite:./a/b.db?mode=rwc", false).unwrap(), "sqlite:///etc/counter foil/a/b.db?mode=rwc");
        assert_eq!(at("sqlite:///var/lib/c.db", false).unwrap(), "sqlite:///var/lib/c.db");
    }

    #[test]
    fn a_directory_with_url_characters_keeps_its_name() {
        let url = checked("sqlite://c.db", Path::new("/a%b?c"), false).unwrap();
        assert_eq!(url.expose_secret(), "sqlite:///a%25b%3Fc/c.db");
    }

    #[test]
    fn a_ledger_in_memory_is_refused() {
        for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite://", "sqlite://x?mode=memory"] {
            assert!(at(url, false).unwrap_err().contains("outlive"), "{url}");
        }
    }

    #[test]
    fn other_kinds_of_url_are_refused_without_repeating_them() {
        for url in ["", "counterfoil.db", "mysql://u:canary@h/d", "postgres://u:canary@[h/d"] {
            let error = at(url, false).unwrap_err();
            assert!(error.contains("sqlite://") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_password_may_not_stand_where_everyone_reads_it() {
        for url in ["postgres://u:canary@h/d", "postgresql://h/d?password=canary"] {
            let error = at(url, true).unwrap_err();
            assert!(error.contains("chmod") && !error.contains("canary"), "{error}");
            assert!(at(url, false).is_ok());
        }
        assert!(at("postgres://u@h/d", true).is_ok());
    }
}
