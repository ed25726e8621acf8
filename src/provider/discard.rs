//! `discard`: accepts every message and drops it, for rehearsals and measurements. Nothing leaves the process, so
//! it is refused where mail is meant to arrive.

use std::time::Duration;

use async_trait::async_trait;

use super::{Build, Kind, Outgoing, Provider};
use crate::config::ConfigError;
use crate::receipt::{Capabilities, Outcome, Replay};

/// The environment in which nothing may be dropped.
const PRODUCTION: &str = "production";

const SEND_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) const KIND: Kind = Kind {
    name: "discard",
    summary: "accepts and drops; for rehearsals and measurements, refused in production",
    send_timeout: SEND_TIMEOUT,
    build,
};

fn build(build: Build<'_>) -> Result<Box<dyn Provider>, ConfigError> {
    let Build { settings, environment, send_timeout, .. } = build;
    settings.refuse_unknown(&[])?;
    if environment.trim().eq_ignore_ascii_case(PRODUCTION) {
        return Err(ConfigError::setting(
            settings.name("provider"),
            "`discard` drops every message and is refused where `environment` is `production`; name a provider that \
             delivers",
        ));
    }
    Ok(Box::new(Discard { send_timeout: send_timeout.unwrap_or(SEND_TIMEOUT) }))
}

#[derive(Debug)]
struct Discard {
    send_timeout: Duration,
}

#[async_trait]
impl Provider for Discard {
    fn capabilities(&self) -> Capabilities {
        Capabilities { replay: Replay::Always, lookup: None }
    }

    fn account(&self) -> String {
        "discard".to_owned()
    }

    async fn check(&self) -> Result<String, String> {
        Ok("accepts every message and drops it".to_owned())
    }

    async fn send(&self, outgoing: Outgoing<'_>) -> Outcome {
        if !outgoing.lease.covers(self.send_timeout) {
            return Outcome::NotStarted;
        }
        Outcome::Accepted { reference: format!("discarded-{}", outgoing.key.short()) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Settings;
    use crate::provider::fixtures;

    fn built(environment: &str, settings: Settings) -> Result<Box<dyn Provider>, ConfigError> {
        build(Build { destination: "retail", settings, send_timeout: None, directory: Path::new("."), environment })
    }

    #[test]
    fn is_refused_in_production_with_the_setting_to_change() {
        let settings = fixtures::settings("");
        let error = built("production", settings).err().unwrap().to_string();
        assert!(error.starts_with("setting `destination.retail.provider`: `discard` drops every message"), "{error}");
        assert!(built("Production ", fixtures::settings("")).is_err());
    }

    #[test]
    fn refuses_settings_that_it_does_not_have() {
        assert!(built("staging", fixtures::settings("path = 'outbox'")).is_err());
    }

    #[tokio::test]
    async fn accepts_the_same_key_again_under_the_same_reference() {
        let discard = built("staging", fixtures::settings("")).unwrap();
        let message = fixtures::message(7);
        let lease = fixtures::long_lease();
        let outgoing = Outgoing { key: &message.key, message: &message, lease: &lease };
        let first = discard.send(outgoing).await;
        assert_eq!(first, Outcome::Accepted { reference: "discarded-070707070707".to_owned() });
        assert_eq!(discard.send(outgoing).await, first);
        assert_eq!(discard.capabilities().replay, Replay::Always);
    }

    #[tokio::test]
    async fn does_not_start_on_a_lease_that_is_too_short() {
        let discard = built("staging", fixtures::settings("")).unwrap();
        let message = fixtures::message(7);
        let lease = fixtures::lease_of(Duration::from_secs(10));
        let outgoing = Outgoing { key: &message.key, message: &message, lease: &lease };
        assert_eq!(discard.send(outgoing).await, Outcome::NotStarted);
    }
}
