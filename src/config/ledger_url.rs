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
    refuse_unknown_options(&parsed)?;
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

/// What may stand behind the question mark of a PostgreSQL URL.
const OPTIONS: [&str; 11] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];
const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/// The driver would ignore an option that it does not know, and log its value, which may be a misspelt password's.
fn refuse_unknown_options(url: &url::Url) -> Result<(), String> {
    for (name, value) in url.query_pairs() {
        if !OPTIONS.contains(&name.as_ref()) {
            return Err(format!("has an unknown option behind the `?`; known: {}", OPTIONS.join(", ")));
        }
        if name == "sslmode" && !SSL_MODES.contains(&value.as_ref()) {
            return Err(format!("has an unknown `sslmode`; known: {}", SSL_MODES.join(", ")));
        }
    }
    Ok(())
}

/// The rest of an SQLite URL is a path and nothing else, as it stands.
fn sqlite(path: &str, directory: &Path) -> Result<String, String> {
    if path.is_empty() || path.contains(":memory:") {
        return Err(format!("{FORM}; a ledger must outlive the process"));
    }
    if path.contains('?') {
        return Err(format!("{FORM}; an SQLite ledger takes no options"));
    }
    let absolute = directory.join(path.strip_prefix("./").unwrap_or(path));
    match absolute.to_str() {
        Some(absolute) if !absolute.contains('?') => Ok(format!("sqlite://{absolute}")),
        _ => Err("the ledger's directory must have a name in UTF-8 without a question mark".to_owned()),
    }
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
        assert_eq!(at("sqlite:./a/b.db", false).unwrap(), "sqlite:///etc/counter foil/a/b.db");
        assert_eq!(at("sqlite:///var/lib/c.db", false).unwrap(), "sqlite:///var/lib/c.db");
    }

    #[test]
    fn a_path_is_taken_as_it_stands_and_options_are_refused() {
        let url = checked("sqlite://c d%20.db", Path::new("/a%b"), false).unwrap();
        assert_eq!(url.expose_secret(), "sqlite:///a%b/c d%20.db");
        assert!(at("sqlite://c.db?mode=rwc", false).unwrap_err().contains("no options"));
        assert!(checked("sqlite://c.db", Path::new("/a?b"), false).unwrap_err().contains("question mark"));
    }

    #[test]
    fn a_ledger_in_memory_is_refused() {
        for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite://"] {
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

    #[test]
    fn an_option_that_the_driver_would_ignore_is_refused_without_its_value() {
        for url in ["postgres://h/d?passwrd=canary", "postgres://h/d?sslmode=canary"] {
            let error = at(url, false).unwrap_err();
            assert!(error.contains("known: ") && !error.contains("canary"), "{error}");
        }
        assert!(at("postgres://h/d?sslmode=verify-full&application_name=digests", false).is_ok());
    }
}
