//! `http`: hands messages to a gateway over HTTP, one POST with an idempotency key for each, and looks them up by that
//! key.
//!
//! | file | lives there |
//! |---|---|
//! | `settings` | URLs, headers, token, what the gateway promises |
//! | `request` | the JSON of a message |
//! | `exchange` | the table from an answer to an outcome |
//! | `lookup` | the table from an answer to a sighting |

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::Value;

use super::transport::{Answer, Transport};
use super::{Build, Kind, Outgoing, Provider};
use crate::config::ConfigError;
use crate::identity::ReceiptKey;
use crate::receipt::{Capabilities, Outcome, Sighting};

mod exchange;
mod lookup;
mod request;
mod settings;

use settings::Gateway;

const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time for a look, where `send_timeout` allows as much.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const KIND: Kind = Kind {
    name: "http",
    summary: "posts JSON to a gateway: settings `url`, `lookup_url`, `headers`, `token_file`, `ca_file`, \
              `replay_window`, `lookup_settle`, `lookup_misses`, `lookup_retention`",
    send_timeout: SEND_TIMEOUT,
    build,
};

fn build(build: Build<'_>) -> Result<Box<dyn Provider>, ConfigError> {
    let Build { settings, directory, send_timeout, .. } = build;
    let send_timeout = send_timeout.unwrap_or(SEND_TIMEOUT);
    let gateway = Gateway::from_settings(&settings, directory, send_timeout)?;
    let ca_file = settings.text("ca_file")?.map(|path| directory.join(path));
    let transport = Transport::new(ca_file.as_deref(), send_timeout)
        .map_err(|problem| ConfigError::setting(settings.name("ca_file"), problem.to_string()))?;
    Ok(Box::new(Http { gateway, transport, send_timeout }))
}

struct Http {
    gateway: Gateway,
    transport: Transport,
    /// For the whole exchange, connecting included.
    send_timeout: Duration,
}

#[async_trait]
impl Provider for Http {
    fn capabilities(&self) -> Capabilities {
        Capabilities { replay: self.gateway.replay, lookup: self.gateway.lookup }
    }

    fn account(&self) -> String {
        self.gateway.account()
    }

    async fn check(&self) -> Result<String, String> {
        // No receipt has this key.
        let nobody = ReceiptKey::from_bytes([0; 32]);
        match self.gateway.lookup_url(&nobody) {
            Some(url) => lookup::describe(self.ask(Method::GET, &url).await, &self.gateway),
            None => exchange::describe(self.ask(Method::HEAD, &self.gateway.url).await, &self.gateway),
        }
    }

    async fn look_up(&self, key: &ReceiptKey) -> Sighting {
        let Some(url) = self.gateway.lookup_url(key) else {
            return Sighting::Unknown { code: "no_lookup".to_owned() };
        };
        match self.ask(Method::GET, &url).await {
            Ok(answer) => lookup::sighting(&answer, key),
            Err(code) => Sighting::Unknown { code },
        }
    }

    async fn send(&self, outgoing: Outgoing<'_>) -> Outcome {
        let Outgoing { key, message, lease } = outgoing;
        if !lease.covers(self.send_timeout) {
            return Outcome::NotStarted;
        }
        let Ok(body) = request::body(key, message) else {
            // Never so: texts, and maps whose keys are texts, always make JSON.
            return Outcome::Rejected { code: "not_json".to_owned(), text: None };
        };
        let mut headers = self.gateway.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(value) = HeaderValue::from_str(&key.to_string()) {
            headers.insert(IDEMPOTENCY_KEY, value);
        }
        match self.transport.post(&self.gateway.url, headers, body.into(), *lease, self.send_timeout).await {
            Ok(answer) => exchange::outcome(&answer, message, &self.gateway),
            Err(unanswered) => unanswered.into(),
        }
    }
}

/// What makes a repeated request the same request.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

impl Http {
    async fn ask(&self, method: Method, url: &reqwest::Url) -> Result<Answer, String> {
        let headers: HeaderMap = self.gateway.headers.clone();
        self.transport.ask(method, url, headers, LOOK_TIMEOUT.min(self.send_timeout)).await
    }
}

/// The JSON of an answer, where it could be read and is JSON.
fn json(answer: &Answer) -> Option<Value> {
    serde_json::from_slice(answer.body.as_ref()?).ok()
}
