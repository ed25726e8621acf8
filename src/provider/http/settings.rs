//! The settings of an `http` destination, checked before anything is connected.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};

use crate::config::quantity::print_duration;
use crate::config::{ConfigError, Settings};
use crate::identity::{ReceiptKey, hex_text};
use crate::provider::secret_file;
use crate::receipt::{Lookup, Replay};

const KNOWN: &[&str] = &[
    "url",
    "lookup_url",
    "headers",
    "token_file",
    "ca_file",
    "replay_window",
    "lookup_settle",
    "lookup_misses",
    "lookup_retention",
];

const LOOKUP_SETTLE: SignedDuration = SignedDuration::from_mins(2);
const LOOKUP_MISSES: u32 = 2;

/// Where the receipt key goes in `lookup_url`.
const PLACE: &str = "{key}";

/// The least that is taken off `replay_window`; the shortest lease that is chosen without being asked for.
const LEAST_MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// Headers that belong to the exchange or to HTTP itself, with what to do instead.
const REFUSED_HEADERS: &[(&str, &str)] = &[
    ("authorization", "put the token into a file of its own and name it in `token_file`"),
    ("proxy-authorization", "no proxy is used"),
    ("cookie", "put a token into a file of its own and name it in `token_file`"),
    ("idempotency-key", "it is the receipt key"),
    ("content-type", "it is application/json"),
    ("content-length", "it follows from the message"),
    ("content-encoding", "nothing is compressed"),
    ("transfer-encoding", "the length of a message is always told"),
    ("host", "it follows from `url`"),
    ("connection", "it is the connection's own"),
    ("upgrade", "it is the connection's own"),
    ("keep-alive", "it is the connection's own"),
    ("te", "it is the connection's own"),
    ("trailer", "there are none"),
    ("expect", "the answer is waited for in any case"),
];

/// Everything that is needed to reach a gateway, and what it promises.
#[derive(Debug)]
pub(super) struct Gateway {
    /// Full name of the destination's table, for messages.
    section: String,
    pub(super) url: Url,
    /// With `{key}` in it, once.
    lookup_pattern: Option<String>,
    /// The credentials among them; every value is marked as sensitive, so that none is ever printed.
    pub(super) headers: HeaderMap,
    pub(super) replay: Replay,
    pub(super) lookup: Option<Lookup>,
}

impl Gateway {
    /// Reads and checks the settings; paths are relative to `directory`.
    ///
    /// # Errors
    /// The first setting that is unknown, missing, or has a value that cannot be used.
    pub(super) fn from_settings(
        settings: &Settings,
        directory: &Path,
        send_timeout: Duration,
    ) -> Result<Self, ConfigError> {
        settings.refuse_unknown(KNOWN)?;
        let mut headers = headers(settings)?;
        if let Some(token) = token(settings, directory)? {
            headers.insert(AUTHORIZATION, token);
        }
        Ok(Self {
            section: settings.section.clone(),
            url: url("url", settings.required_text("url")?, settings)?,
            lookup_pattern: lookup_pattern(settings)?,
            headers,
            replay: replay(settings, send_timeout)?,
            lookup: lookup(settings)?,
        })
    }

    /// Where to ask about a key; `None` where the gateway cannot be asked.
    pub(super) fn lookup_url(&self, key: &ReceiptKey) -> Option<Url> {
        Url::parse(&self.lookup_pattern.as_ref()?.replace(PLACE, &key.to_string())).ok()
    }

    /// Host and port, for messages.
    pub(super) fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// What tells this account from another: where it is and, hashed, who we are there. Another token, header or
    /// query may mean another account, which knows nothing of what was sent under the first.
    pub(super) fn account(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"counterfoil/v1/http-credentials");
        let mut add = |text: &[u8]| {
            hash.update(text.len().to_be_bytes());
            hash.update(text);
        };
        add(self.url.query().unwrap_or_default().as_bytes());
        let mut pairs: Vec<(&str, &[u8])> = self.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        pairs.sort_unstable();
        for (name, value) in pairs {
            add(name.as_bytes());
            add(value);
        }
        let mut who = hex_text(&hash.finalize());
        who.truncate(32);
        let origin = self.url.origin().ascii_serialization();
        format!("http {origin}{} {who}", self.url.path())
    }

    /// Full name of a setting, for messages.
    pub(super) fn name_of(&self, setting: &str) -> String {
        format!("setting `{}.{setting}`", self.section)
    }

    /// What to do about an answer that refuses us, whatever the message.
    pub(super) fn refuses_credentials(&self, status: u16) -> String {
        format!(
            "the gateway at {} does not accept the credentials ({status}); look at {} and at what this account may send",
            self.host(),
            self.name_of("token_file"),
        )
    }

    /// What to do about an answer that concerns the place, whatever the message.
    pub(super) fn refuses_url(&self, status: u16) -> String {
        format!("{} answers {status} to every message alike; look at {}", self.host(), self.name_of("url"))
    }
}

/// A URL that a message may be sent to.
fn url(name: &str, text: &str, settings: &Settings) -> Result<Url, ConfigError> {
    let refuse = |reason: &str| ConfigError::setting(settings.name(name), reason);
    let url: Url =
        text.parse().map_err(|_| refuse("is no URL; expected such as \"https://mail.example.test/send\""))?;
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return Err(refuse("names no host; expected such as \"https://mail.example.test/send\""));
    };
    if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(host)) {
        return Err(refuse("must be https; http is only for a server on this machine (localhost, 127.0.0.1, [::1])"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("must not hold credentials; put the token into a file and name it in `token_file`"));
    }
    if url.fragment().is_some() {
        return Err(refuse("must not hold a fragment, which is never sent; remove it from `#` on"));
    }
    Ok(url)
}

/// Whether a host can only mean this machine.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `lookup_url` with its place for the key; it is a URL whatever the key.
fn lookup_pattern(settings: &Settings) -> Result<Option<String>, ConfigError> {
    let Some(pattern) = settings.text("lookup_url")? else { return Ok(None) };
    let refuse = |reason: &str| ConfigError::setting(settings.name("lookup_url"), reason);
    let example = "must hold {key} exactly once, in path or query, such as \"https://mail.example.test/sent/{key}\"";
    if pattern.matches(PLACE).count() != 1 {
        return Err(refuse(example));
    }
    let placed = "0".repeat(64);
    let url = url("lookup_url", &pattern.replace(PLACE, &placed), settings)?;
    if !url.path().contains(&placed) && !url.query().unwrap_or_default().contains(&placed) {
        return Err(refuse(example));
    }
    Ok(Some(pattern.to_owned()))
}

fn headers(settings: &Settings) -> Result<HeaderMap, ConfigError> {
    let table = settings.section("headers")?;
    let mut headers = HeaderMap::new();
    for name in table.table.keys() {
        let refuse = |reason: String| ConfigError::setting(table.name(name), reason);
        let header: HeaderName = name.parse().map_err(|_| refuse("is no name of a header".to_owned()))?;
        if let Some((_, advice)) = REFUSED_HEADERS.iter().find(|(refused, _)| *refused == header.as_str()) {
            return Err(refuse(format!("cannot be set; {advice}")));
        }
        let mut value = HeaderValue::from_str(table.required_text(name)?)
            .ok()
            .filter(|value| value.to_str().is_ok_and(|text| text.trim() == text))
            .ok_or_else(|| refuse("must be visible ASCII in one line, without white space at either end".to_owned()))?;
        value.set_sensitive(true);
        if headers.insert(header, value).is_some() {
            return Err(refuse("stands twice, in another spelling".to_owned()));
        }
    }
    Ok(headers)
}

/// The value of `Authorization`.
fn token(settings: &Settings, directory: &Path) -> Result<Option<HeaderValue>, ConfigError> {
    let Some(path) = settings.text("token_file")? else { return Ok(None) };
    let path = directory.join(path);
    let token = secret_file::read(&path, "token")?;
    let token = token.expose_secret();
    let refuse = || ConfigError::File {
        path: path.clone(),
        reason: "must hold the token alone, in visible ASCII characters without spaces".to_owned(),
    };
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refuse());
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| refuse())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// The window is the gateway's and counts from when it first saw the key, which is not before we began. A repeat that
/// is decided on inside it may go out as late as its lease allows, so a lease's usual length is taken off.
fn replay(settings: &Settings, send_timeout: Duration) -> Result<Replay, ConfigError> {
    let Some(window) = settings.duration("replay_window")? else { return Ok(Replay::Never) };
    let timeout = SignedDuration::try_from(send_timeout).unwrap_or(SignedDuration::MAX);
    let margin = timeout.saturating_mul(3).max(LEAST_MARGIN);
    match window.checked_sub(margin).filter(|left| left.is_positive()) {
        Some(left) => Ok(Replay::Within(left)),
        None => Err(ConfigError::setting(
            settings.name("replay_window"),
            format!(
                "must be longer than {}, which is taken off as a margin: three times send_timeout, at least 5m",
                print_duration(margin)
            ),
        )),
    }
}

fn lookup(settings: &Settings) -> Result<Option<Lookup>, ConfigError> {
    let settle = settings.duration("lookup_settle")?;
    let misses = settings.integer("lookup_misses", &(1..=100))?;
    let retention = settings.duration("lookup_retention")?;
    if !settings.table.contains_key("lookup_url") {
        let set = ["lookup_settle", "lookup_misses", "lookup_retention"];
        return match set.into_iter().find(|name| settings.table.contains_key(*name)) {
            Some(name) => Err(ConfigError::setting(settings.name(name), "is of no use without `lookup_url`; set both")),
            None => Ok(None),
        };
    }
    let settle = settle.unwrap_or(LOOKUP_SETTLE);
    let misses = misses.unwrap_or(LOOKUP_MISSES);
    let needed = settle.saturating_mul(i32::try_from(misses).unwrap_or(i32::MAX));
    if retention.is_some_and(|retention| retention <= needed) {
        let reason = format!(
            "must be longer than lookup_settle times lookup_misses ({}), or no absence could ever be certain",
            print_duration(needed)
        );
        return Err(ConfigError::setting(settings.name("lookup_retention"), reason));
    }
    Ok(Some(Lookup { settle, misses, retention }))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::provider::fixtures;

    const URL: &str = "url = 'https://mail.example.test/v1/send'\n";
    const LOOKUP: &str = "lookup_url = 'https://mail.example.test/v1/sent/{key}'\n";

    /// A gateway for the tests of what its answers mean.
    pub(in crate::provider::http) fn gateway() -> Gateway {
        read(URL).unwrap()
    }

    fn read(text: &str) -> Result<Gateway, ConfigError> {
        read_in(text, Path::new("."))
    }

    fn read_in(text: &str, directory: &Path) -> Result<Gateway, ConfigError> {
        Gateway::from_settings(&fixtures::settings(text), directory, Duration::from_secs(30))
    }

    fn error(text: &str) -> String {
        read(text).err().unwrap_or_else(|| panic!("{text}")).to_string()
    }

    #[test]
    fn a_url_alone_promises_nothing() {
        let gateway = gateway();
        assert_eq!((gateway.replay, gateway.lookup), (Replay::Never, None));
        assert!(gateway.lookup_url(&ReceiptKey::from_bytes([1; 32])).is_none());
        assert!(gateway.headers.is_empty());
    }

    #[test]
    fn a_lookup_has_defaults_and_puts_the_key_in_its_place() {
        let gateway = read(&format!("{URL}{LOOKUP}")).unwrap();
        let lookup = Lookup { settle: SignedDuration::from_mins(2), misses: 2, retention: None };
        assert_eq!(gateway.lookup, Some(lookup));
        let url = gateway.lookup_url(&ReceiptKey::from_bytes([0xab; 32])).unwrap();
        assert_eq!(url.as_str(), format!("https://mail.example.test/v1/sent/{}", "ab".repeat(32)));
        let own = "lookup_settle = '30s'\nlookup_misses = 3\nlookup_retention = '7d'";
        let lookup = Lookup {
            settle: SignedDuration::from_secs(30),
            misses: 3,
            retention: Some(SignedDuration::from_hours(168)),
        };
        assert_eq!(read(&format!("{URL}{LOOKUP}{own}")).unwrap().lookup, Some(lookup));
    }

    #[test]
    fn a_margin_is_taken_off_the_replay_window() {
        let replay = |text: &str, timeout| {
            let settings = fixtures::settings(&format!("{URL}{text}"));
            Gateway::from_settings(&settings, Path::new("."), timeout).map(|gateway| gateway.replay)
        };
        let less = |margin| Replay::Within(SignedDuration::from_hours(24) - margin);
        let day = "replay_window = '24h'";
        assert_eq!(replay(day, Duration::from_secs(30)).unwrap(), less(SignedDuration::from_mins(5)));
        assert_eq!(replay(day, Duration::from_secs(200)).unwrap(), less(SignedDuration::from_mins(10)));
        let error = replay("replay_window = '5m'", Duration::from_secs(30)).unwrap_err().to_string();
        assert!(error.contains("destination.retail.replay_window`: must be longer than 5m"), "{error}");
    }

    #[test]
    fn clear_text_stays_on_this_machine() {
        for host in ["localhost", "127.0.0.1:8080", "127.8.8.8", "[::1]:1"] {
            assert!(
                read(&format!("url = 'http://{host}/send'\nlookup_url = 'http://{host}/{{key}}'")).is_ok(),
                "{host}"
            );
        }
        for host in ["mail.example.test", "10.0.0.1", "localhost.example.test", "0.0.0.0"] {
            assert!(error(&format!("url = 'http://{host}/send'")).contains("`destination.retail.url`: must be https"));
            let lookup = format!("{URL}lookup_url = 'http://{host}/{{key}}'");
            assert!(error(&lookup).contains("`destination.retail.lookup_url`: must be https"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (text, expected) in [
            ("", "destination.retail.url`: is missing"),
            ("url = 'mail'", "destination.retail.url`: is no URL"),
            ("url = 'data:x'", "destination.retail.url`: names no host"),
            ("url = 'ftp://mail.example.test'", "must be https"),
            ("url = 'https://u:canary@mail.example.test/'", "must not hold credentials"),
            ("url = 'https://mail.example.test/#canary'", "must not hold a fragment"),
        ] {
            let error = error(text);
            assert!(error.contains(expected) && !error.contains("canary"), "{error}");
        }
        for (text, expected) in [
            ("urls = 1", "did you mean `url`?"),
            ("lookup_url = 'https://a.test/'", "must hold {key} exactly once"),
            ("lookup_url = 'https://a.test/{key}?k={key}'", "must hold {key} exactly once"),
            ("lookup_url = 'https://{key}.a.test/'", "retail.lookup_url`:"),
            ("lookup_url = 'https://a.test/#{key}'", "must not hold a fragment"),
            ("lookup_settle = '1m'", "lookup_settle`: is of no use without `lookup_url`"),
            ("lookup_misses = 2", "lookup_misses`: is of no use without `lookup_url`"),
            ("lookup_retention = '7d'", "lookup_retention`: is of no use without `lookup_url`"),
            ("lookup_url = 'https://a.test/{key}'\nlookup_misses = 0", "whole number from 1 to 100"),
            ("lookup_url = 'https://a.test/{key}'\nlookup_retention = '4m'", "must be longer than lookup_settle times"),
            ("replay_window = 24", "in quotation marks"),
            ("headers = 'x'", "must be a table"),
            (
                "headers = { Authorization = 'canary' }",
                "headers.Authorization`: cannot be set; put the token into a file",
            ),
            ("headers = { idempotency-Key = 'canary' }", "it is the receipt key"),
            ("headers = { Content-Type = 'canary' }", "it is application/json"),
            ("headers = { Host = 'canary' }", "it follows from `url`"),
            ("headers = { 'a b' = 'canary' }", "is no name of a header"),
            ("headers = { x = \"canary\\r\\nInjected: 1\" }", "must be visible ASCII"),
            ("headers = { x = ' canary' }", "must be visible ASCII"),
            ("headers = { x = 'canary', X = 'canary' }", "stands twice"),
            ("headers = { x = 1 }", "must be a text"),
            ("token_file = 'nowhere'", "nowhere"),
        ] {
            let error = error(&format!("{URL}{text}"));
            assert!(error.contains(expected) && !error.contains("canary"), "{text}: {error}");
        }
    }

    fn with_token(token: &str, mode: u32) -> Result<Gateway, ConfigError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("token");
        fs::write(&path, token).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read_in(&format!("{URL}token_file = 'token'"), home.path())
    }

    #[test]
    fn a_token_is_one_word_that_nobody_else_may_read_and_nobody_sees() {
        let gateway = with_token("canary-token\n", 0o600).unwrap();
        assert_eq!(gateway.headers[AUTHORIZATION], "Bearer canary-token");
        assert!(!format!("{gateway:?} {}", gateway.account()).contains("canary"), "{gateway:?}");
        for (token, mode) in
            [("canary", 0o640), ("", 0o600), ("canary b", 0o600), ("canary\nb", 0o600), ("canäry", 0o600)]
        {
            let error = with_token(token, mode).unwrap_err().to_string();
            assert!(!error.contains("canary") && error.contains("token"), "{error}");
        }
    }

    #[test]
    fn an_account_is_a_place_and_who_we_are_there() {
        let account = |text: &str| read(text).unwrap().account();
        let first = account(URL);
        assert!(first.starts_with("http https://mail.example.test/v1/send "), "{first}");
        assert_eq!(first, account(&format!("{URL}{LOOKUP}replay_window = '24h'")));
        for other in [
            "url = 'https://mail.example.test/v1/other'",
            "url = 'https://mail.example.test:8443/v1/send'",
            "url = 'https://mail.example.test/v1/send?tenant=b'",
            "url = 'https://mail.example.test/v1/send'\nheaders = { X-Tenant = 'b' }",
        ] {
            assert_ne!(first, account(other), "{other}");
        }
        assert_ne!(with_token("one", 0o600).unwrap().account(), with_token("two", 0o600).unwrap().account());
    }
}
