//! The one HTTP client of every adapter that speaks HTTP: connections, TLS, time limits, and on which side of the
//! request's last byte a failure fell. It knows neither JSON nor what a status means, and it never logs.
//!
//! What must not happen is a second request that nobody asked for. So redirects are not followed, retries are switched
//! off, and besides, the body of a request can be handed out only once (`decisive`), whatever a library below decides
//! to do about a connection that was gone. A proxy is not taken from the environment: who sees a bank's messages is a
//! matter of configuration.
//!
//! | file | lives there |
//! |---|---|
//! | `decisive` | the last byte of a request, and who may let it out |
//! | `failure` | from an error to what it proves |
//! | `retry_after` | `Retry-After` |

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Body, Client, Method, Request, Response, Url, redirect, retry};
use tokio::time::timeout_at;

use super::trust::{self, TrustError};
use crate::ledger::Lease;
use crate::receipt::RetryAfter;

mod decisive;
mod failure;
mod retry_after;

use decisive::{DecisiveBody, Fate, Gate};
pub(super) use failure::Unanswered;
pub(super) use retry_after::retry_after;

/// Longest answer that is read; a gateway's takes a few hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Longest wait for a connection with TLS, where the time limit of the exchange allows as much.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Common servers close a connection that idles for 5 s or more. Closing it before they do avoids the request that
/// crosses with the server's goodbye, of which nobody knows whether it was read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Connections kept between requests. At most as many are open as requests are on their way, which the destination's
/// `concurrency` bounds.
const MAX_IDLE: usize = 256;

/// An HTTP/2 connection whose peer does not answer a ping is given up, or every request would run into its limit on a
/// connection that a firewall has forgotten.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransportError {
    /// No certificate authorities.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The library refuses.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// The HTTP client of one destination.
#[derive(Debug)]
pub(super) struct Transport {
    client: Client,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status, 100 to 999.
    pub(super) status: u16,
    /// What `Retry-After` asks for; `None` where there is no such header.
    pub(super) retry_after: Option<RetryAfter>,
    /// `None` where it broke off, took too long or is longer than what is read.
    pub(super) body: Option<Bytes>,
    /// Whether the answer came although the request's last byte never went out: nothing can have been accepted.
    pub(super) is_early: bool,
}

impl Transport {
    /// A client that trusts the authorities of this machine, and those in `ca_file` besides. `limit` is the longest
    /// time that an exchange may take. Connects to nothing.
    ///
    /// # Errors
    /// A `ca_file` without usable certificates, or no authorities at all.
    pub(super) fn new(ca_file: Option<&Path>, limit: Duration) -> Result<Self, TransportError> {
        let mut tls = trust::client_config(ca_file)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .default_headers(usual_headers())
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT.min(limit))
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .resolve_to_addrs("localhost", &this_machine())
            .build()?;
        Ok(Self { client })
    }

    /// Posts `body`, which must not be empty, as one attempt that ends within `limit`. The last byte goes out only
    /// where the lease covers the rest of that time.
    ///
    /// # Errors
    /// No answer, and what that proves.
    pub(super) async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        lease: Lease,
        limit: Duration,
    ) -> Result<Answer, Unanswered> {
        let deadline = Instant::now() + limit;
        let gate = Arc::new(Gate::new(lease, deadline));
        let mut request = Request::new(Method::POST, url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(Body::wrap(DecisiveBody::new(body, Arc::clone(&gate))));
        let answered = timeout_at(deadline.into(), self.client.execute(request)).await;
        // From here on the last byte has passed, or never will.
        let fate = gate.close();
        match answered {
            Ok(Ok(response)) => Ok(read(response, fate != Fate::Passed, deadline).await),
            Ok(Err(error)) => Err(failure::unanswered(fate, &error)),
            Err(_) => Err(failure::timed_out(fate)),
        }
    }

    /// Asks something that changes nothing, within `limit`.
    ///
    /// # Errors
    /// A short class of what went wrong: no answer.
    pub(super) async fn ask(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        limit: Duration,
    ) -> Result<Answer, String> {
        let deadline = Instant::now() + limit;
        let mut request = Request::new(method, url.clone());
        *request.headers_mut() = headers;
        match timeout_at(deadline.into(), self.client.execute(request)).await {
            Ok(Ok(response)) => Ok(read(response, false, deadline).await),
            Ok(Err(error)) => Err(failure::class(&error).unwrap_or("no_answer").to_owned()),
            Err(_) => Err("timeout".to_owned()),
        }
    }
}

fn usual_headers() -> HeaderMap {
    let program = concat!("counterfoil/", env!("CARGO_PKG_VERSION"));
    HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("application/json")),
        (USER_AGENT, HeaderValue::from_static(program)),
    ])
}

/// What `localhost` means, whatever a name server says; port 0 stands for the URL's own.
fn this_machine() -> [SocketAddr; 2] {
    [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)].map(|address| SocketAddr::new(address, 0))
}

async fn read(response: Response, is_early: bool, deadline: Instant) -> Answer {
    let status = response.status().as_u16();
    let retry_after = asked_wait(response.headers());
    let body = timeout_at(deadline.into(), content(response)).await.ok().flatten();
    Answer { status, retry_after, body, is_early }
}

fn asked_wait(headers: &HeaderMap) -> Option<RetryAfter> {
    headers.contains_key(RETRY_AFTER).then(|| {
        let values = headers.get_all(RETRY_AFTER).iter().map(HeaderValue::as_bytes);
        retry_after(values, jiff::Timestamp::now())
    })
}

/// The whole body, where it is not too long.
async fn content(mut response: Response) -> Option<Bytes> {
    let mut read = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        if read.len().saturating_add(piece.len()) > MAX_ANSWER_BYTES {
            return None;
        }
        read.extend_from_slice(&piece);
    }
    Some(read.into())
}

/// Every cause of an error, itself included.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
