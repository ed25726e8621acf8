//! The settings of an `smtp` destination, checked before anything is connected.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use secrecy::SecretString;

use super::socket::Trust;
use crate::config::{ConfigError, Settings};
use crate::provider::secret_file;

const KNOWN: &[&str] =
    &["host", "port", "tls", "username", "password_file", "ca_file", "hello_name", "command_timeout"];

/// Longest wait for anything but the reply to the final dot, unless `command_timeout` says otherwise.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    /// From the first byte.
    Implicit,
    /// After `STARTTLS`, which the server must offer.
    StartTls,
    /// Not at all; to this machine only.
    None,
}

/// An account at the server.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) password: SecretString,
}

/// Everything that is needed to reach the server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Encryption,
    /// Where there is TLS.
    pub(super) trust: Option<Trust>,
    pub(super) credentials: Option<Credentials>,
    /// What the client calls itself; its own address where this is not set.
    pub(super) hello_name: Option<String>,
    pub(super) command_timeout: Duration,
}

impl Server {
    /// Reads and checks the settings; paths are relative to `directory`.
    ///
    /// # Errors
    /// The first setting that is unknown, missing, or has a value that cannot be used.
    pub(super) fn from_settings(settings: &Settings, directory: &Path) -> Result<Self, ConfigError> {
        settings.refuse_unknown(KNOWN)?;
        let host = settings.required_text("host")?.to_ascii_lowercase();
        let tls = tls(settings)?;
        if tls == Encryption::None && !is_loopback(&host) {
            return Err(ConfigError::setting(
                settings.name("tls"),
                "\"none\" is only for a server on this machine (localhost, 127.0.0.1, ::1); use \"starttls\" or \
                 \"implicit\"",
            ));
        }
        let trust = match tls {
            Encryption::None => None,
            Encryption::Implicit | Encryption::StartTls => Some(trust(settings, directory, &host)?),
        };
        Ok(Self {
            port: port(settings, tls)?,
            credentials: credentials(settings, directory)?,
            hello_name: hello_name(settings)?,
            command_timeout: command_timeout(settings)?,
            host,
            tls,
            trust,
        })
    }

    /// What tells this account from another.
    pub(super) fn account(&self) -> String {
        let username = self.credentials.as_ref().map_or("", |credentials| credentials.username.as_str());
        format!("smtp {} {} {username}", self.host, self.port)
    }
}

fn tls(settings: &Settings) -> Result<Encryption, ConfigError> {
    match settings.text("tls")? {
        None | Some("starttls") => Ok(Encryption::StartTls),
        Some("implicit") => Ok(Encryption::Implicit),
        Some("none") => Ok(Encryption::None),
        Some(_) => Err(ConfigError::setting(
            settings.name("tls"),
            "must be \"implicit\", \"starttls\" or, for a server on this machine, \"none\"",
        )),
    }
}

/// Whether a host name can only mean this machine.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The port, from a number or, as the environment has it, a text; by default the one that is usual for `tls`.
fn port(settings: &Settings, tls: Encryption) -> Result<u16, ConfigError> {
    let given = match settings.table.get("port") {
        None => return Ok(usual_port(tls)),
        Some(toml::Value::Integer(number)) => u16::try_from(*number).ok(),
        Some(toml::Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    given
        .filter(|port| *port > 0)
        .ok_or_else(|| ConfigError::setting(settings.name("port"), "must be a number from 1 to 65535"))
}

fn usual_port(tls: Encryption) -> u16 {
    match tls {
        Encryption::Implicit => 465,
        Encryption::StartTls => 587,
        Encryption::None => 25,
    }
}

fn trust(settings: &Settings, directory: &Path, host: &str) -> Result<Trust, ConfigError> {
    let ca_file = settings.text("ca_file")?.map(|path| directory.join(path));
    Trust::new(host, ca_file.as_deref()).map_err(|problem| {
        let setting = if ca_file.is_some() && problem.is_about_ca_file() { "ca_file" } else { "host" };
        ConfigError::setting(settings.name(setting), problem.to_string())
    })
}

fn credentials(settings: &Settings, directory: &Path) -> Result<Option<Credentials>, ConfigError> {
    let pair = (settings.text("username")?, settings.text("password_file")?);
    let (username, path) = match pair {
        (None, None) => return Ok(None),
        (Some(username), Some(path)) => (username, directory.join(path)),
        (Some(_), None) => return Err(ConfigError::setting(settings.name("password_file"), "must go with `username`")),
        (None, Some(_)) => return Err(ConfigError::setting(settings.name("username"), "must go with `password_file`")),
    };
    if username.is_empty() || username.chars().any(char::is_control) {
        return Err(ConfigError::setting(settings.name("username"), "is empty or has control characters"));
    }
    Ok(Some(Credentials { username: username.to_owned(), password: secret_file::read(&path, "password")? }))
}

/// The name goes into a command as it stands.
fn hello_name(settings: &Settings) -> Result<Option<String>, ConfigError> {
    let fits = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
    };
    match settings.text("hello_name")? {
        None => Ok(None),
        Some(name) if fits(name) => Ok(Some(name.to_owned())),
        Some(_) => Err(ConfigError::setting(
            settings.name("hello_name"),
            "must be the name of this machine, such as \"mail.example.test\"",
        )),
    }
}

fn command_timeout(settings: &Settings) -> Result<Duration, ConfigError> {
    let Some(text) = settings.text("command_timeout")? else { return Ok(COMMAND_TIMEOUT) };
    let span: Option<SignedDuration> = text.parse().ok();
    span.and_then(|span| Duration::try_from(span).ok()).filter(|span| !span.is_zero()).ok_or_else(|| {
        ConfigError::setting(settings.name("command_timeout"), "must be a time such as \"30s\" or \"2m\"")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::provider::fixtures;

    /// Reads settings beside an authority of their own, so that the machine's do not matter.
    fn read(text: &str) -> Result<Server, ConfigError> {
        let home = tempfile::tempdir().unwrap();
        let authority = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        fs::write(home.path().join("ca.pem"), authority.cert.pem()).unwrap();
        let ca_file = if text.contains("ca_file") { "" } else { "\nca_file = 'ca.pem'" };
        Server::from_settings(&fixtures::settings(&format!("{text}{ca_file}")), home.path())
    }

    fn error(text: &str) -> String {
        read(text).err().unwrap().to_string()
    }

    #[test]
    fn encryption_and_its_port_are_the_default() {
        let server = read("host = 'Mail.Example.test'").unwrap();
        assert_eq!((server.host.as_str(), server.port, server.tls), ("mail.example.test", 587, Encryption::StartTls));
        assert_eq!(read("host = 'a.test'\ntls = 'implicit'").unwrap().port, 465);
        assert_eq!(read("host = '::1'\ntls = 'none'\nport = '2525'").unwrap().port, 2525);
        assert_eq!(server.account(), "smtp mail.example.test 587 ");
    }

    #[test]
    fn clear_text_stays_on_this_machine() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(read(&format!("host = '{host}'\ntls = 'none'")).is_ok(), "{host}");
        }
        for host in ["mail.example.test", "10.0.0.1", "localhost.example.test", "0.0.0.0"] {
            let error = error(&format!("host = '{host}'\ntls = 'none'"));
            assert!(error.starts_with("setting `destination.retail.tls`: \"none\" is only for a server on this"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, expected) in [
            ("", "destination.retail.host`: is missing"),
            ("host = 'a.test'\nprot = 25", "did you mean `port`?"),
            ("host = 'a b'", "destination.retail.host`:"),
            ("host = 'a.test'\nport = 70000", "must be a number from 1 to 65535"),
            ("host = 'a.test'\nport = 0", "must be a number from 1 to 65535"),
            ("host = 'a.test'\ntls = 'maybe'", "must be \"implicit\""),
            ("host = 'a.test'\nusername = 'u'", "destination.retail.password_file`: must go with `username`"),
            ("host = 'a.test'\npassword_file = 'p'", "destination.retail.username`: must go with `password_file`"),
            ("host = 'a.test'\nhello_name = \"a\\r\\nQUIT\"", "must be the name of this machine"),
            ("host = 'a.test'\ncommand_timeout = 'soon'", "must be a time such as"),
            ("host = 'a.test'\ncommand_timeout = '-3s'", "must be a time such as"),
            ("host = 'a.test'\nca_file = 'absent.pem'", "destination.retail.ca_file`:"),
        ] {
            let error = error(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_is_read_from_a_private_file_only_and_never_shown() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("password");
        fs::write(&file, "pass word\r\n").unwrap();
        let settings = fixtures::settings("host = '::1'\ntls = 'none'\nusername = 'u'\npassword_file = 'password'");
        let read = |mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            Server::from_settings(&settings, home.path())
        };
        assert!(read(0o640).err().unwrap().to_string().contains("chmod 600"));
        let server = read(0o600).unwrap();
        assert!(!format!("{server:?}").contains("pass word"));
        assert_eq!(secrecy::ExposeSecret::expose_secret(&server.credentials.unwrap().password), "pass word");
        fs::write(&file, "two\nlines\n").unwrap();
        assert!(!read(0o400).err().unwrap().to_string().contains("lines\n"));
    }
}
