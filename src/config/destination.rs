//! `[destination.<name>]`: what is common to every kind of provider. The rest is handed on unread.

use std::time::Duration;

use jiff::SignedDuration;

use super::quantity::print_duration;
use super::settings::shown;
use super::{ConfigError, DestinationConfig, Settings, names};
use crate::provider::Kind;
use crate::receipt::OnAmbiguous;
use crate::receipt::backoff::Backoff;

type Result<T> = std::result::Result<T, ConfigError>;

/// The shortest lease that `auto` gives: a slow database must not end leases under healthy workers.
const MIN_AUTO_LEASE: SignedDuration = SignedDuration::from_mins(5);

/// Reads one destination.
pub(super) fn destination(name: &str, mut settings: Settings, kinds: &[Kind]) -> Result<DestinationConfig> {
    check_name(name, &settings)?;
    let kind = kind(&settings, kinds)?;
    let send_timeout = settings.duration("send_timeout")?.map_or(kind.send_timeout, SignedDuration::unsigned_abs);
    let read = DestinationConfig {
        name: name.to_owned(),
        provider: kind.name.to_owned(),
        rate: settings.rate("rate")?,
        concurrency: usize::try_from(settings.integer("concurrency", &(1..=10_000))?.unwrap_or(16)).unwrap_or(16),
        max_attempts: settings.integer("max_attempts", &(1..=1_000))?.unwrap_or(12),
        send_timeout,
        lease: lease(&settings, send_timeout)?,
        on_ambiguous: on_ambiguous(&settings)?,
        backoff: backoff(&settings.section("backoff")?)?,
        keep_provider_text: keep_provider_text(&settings)?,
        settings: Settings::default(),
    };
    settings.table.retain(|name, _| !names::DESTINATION.contains(&name));
    refuse_misspelt(&settings)?;
    Ok(DestinationConfig { settings, ..read })
}

fn check_name(name: &str, settings: &Settings) -> Result<()> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= 64 && name.bytes().all(allowed) {
        return Ok(());
    }
    let reason =
        "a destination's name is a letter or digit followed by up to 63 letters, digits, hyphens or underscores";
    Err(ConfigError::setting(settings.section.clone(), reason))
}

fn kind<'a>(settings: &Settings, kinds: &'a [Kind]) -> Result<&'a Kind> {
    let known = || kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let wrong = |reason| ConfigError::setting(settings.name("provider"), reason);
    let name = settings.text("provider")?.ok_or_else(|| wrong(format!("is missing; known: {}", known())))?;
    let found = kinds.iter().find(|kind| kind.name == name);
    found.ok_or_else(|| wrong(format!("there is no provider {}; known: {}", shown(name), known())))
}

fn lease(settings: &Settings, send_timeout: Duration) -> Result<SignedDuration> {
    let timeout = SignedDuration::try_from(send_timeout).unwrap_or(SignedDuration::MAX);
    if matches!(settings.text("lease")?, None | Some("auto")) {
        return Ok(timeout.saturating_mul(3).max(MIN_AUTO_LEASE));
    }
    let lease = settings.duration("lease")?.unwrap_or(MIN_AUTO_LEASE);
    if lease > timeout {
        return Ok(lease);
    }
    let reason = format!(
        "must be longer than send_timeout ({}), or nothing could ever be sent under it; `auto` is three times \
         send_timeout, at least 5m",
        print_duration(timeout)
    );
    Err(ConfigError::setting(settings.name("lease"), reason))
}

fn on_ambiguous(settings: &Settings) -> Result<OnAmbiguous> {
    match settings.text("on_ambiguous")? {
        None | Some("hold") => Ok(OnAmbiguous::Hold),
        Some("resend") => Ok(OnAmbiguous::Resend),
        Some(other) => {
            let reason = format!("expected \"hold\" or \"resend\"; found {}", shown(other));
            Err(ConfigError::setting(settings.name("on_ambiguous"), reason))
        }
    }
}

fn backoff(settings: &Settings) -> Result<Backoff> {
    settings.refuse_unknown(names::BACKOFF)?;
    let base = settings.duration("base")?.unwrap_or(SignedDuration::from_secs(2));
    let cap = settings.duration("cap")?.unwrap_or(SignedDuration::from_mins(30).max(base));
    if cap < base {
        let reason = format!("must not be shorter than base ({})", print_duration(base));
        return Err(ConfigError::setting(settings.name("cap"), reason));
    }
    Ok(Backoff { base, cap })
}

/// What is left is the provider kind's and is checked when the provider is made. A name that is one slip away from
/// a common setting is caught here, where the common settings are known.
fn refuse_misspelt(settings: &Settings) -> Result<()> {
    for name in settings.table.keys() {
        let near = |known: &&&str| strsim::damerau_levenshtein(known, name) <= (known.len() / 4).max(1);
        if let Some(known) = names::DESTINATION.iter().find(near) {
            return Err(ConfigError::setting(settings.name(name), format!("is unknown; did you mean `{known}`?")));
        }
    }
    Ok(())
}

/// A provider's words may hold an address; this version keeps its codes alone.
fn keep_provider_text(settings: &Settings) -> Result<bool> {
    match settings.boolean("keep_provider_text")? {
        Some(true) => Err(ConfigError::setting(
            settings.name("keep_provider_text"),
            "this version keeps a provider's code and never its text; expected false",
        )),
        _ => Ok(false),
    }
}
