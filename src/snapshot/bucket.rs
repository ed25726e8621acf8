//! A snapshot store in a bucket of an object store. Names are relative to the bucket's prefix. Not what makes a
//! snapshot valid.
//!
//! The rest of `snapshot` blocks, and so do these methods: the requests run on a small runtime of their own, whose
//! thread the calling one waits for. That works from any thread, also from one that belongs to another runtime.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{
    ClientOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig, WriteMultipart,
};
use secrecy::ExposeSecret as _;
use tokio::runtime::Runtime;
use tokio_rustls::rustls::crypto::ring;

use super::BucketLocation;
use super::store::StoreError;

/// A request is repeated for so long where the store is out of reach or overloaded.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Longest time to make a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a file that are in memory at a time while it is written.
const CHUNK: usize = 8 << 20;

/// The bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    store: Arc<AmazonS3>,
    prefix: Key,
    shown: String,
    names_credentials: bool,
    runtime: Arc<Background>,
}

/// A runtime that may be dropped anywhere.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    /// Takes credentials, region and endpoint from the location's variables; asks for nothing yet.
    pub(super) fn open(location: &BucketLocation) -> Result<Self, StoreError> {
        let shown = location.to_string();
        // Without effect where another part of the program has done so.
        let _ = ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &location.variables {
            // A variable that the client does not know is another program's.
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value.expose_secret());
            }
        }
        let options = ClientOptions::new()
            .with_allow_http(location.is_plain())
            .with_connect_timeout(CONNECT_LIMIT)
            .with_timeout(REQUEST_LIMIT);
        let store = builder
            .with_client_options(options)
            .with_bucket_name(&location.bucket)
            .with_retry(RetryConfig { max_retries: 5, retry_timeout: PATIENCE, ..RetryConfig::default() })
            .build()
            .map_err(|error| refused("use", shown.clone(), &error, true))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(StoreError::io("start a thread for", Path::new(&shown)))?;
        Ok(Self {
            store: Arc::new(store),
            prefix: Key::from(location.prefix.as_str()),
            shown: shown.trim_end_matches('/').to_owned(),
            names_credentials: location.names_credentials(),
            runtime: Arc::new(Background(Some(runtime))),
        })
    }

    fn refused(&self, action: &'static str, name: &str, error: &object_store::Error) -> StoreError {
        refused(action, self.shown(name), error, self.names_credentials)
    }

    /// A name as a URL.
    pub(super) fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.shown)
    }

    fn key(&self, name: &str) -> Key {
        name.split('/').fold(self.prefix.clone(), |key, part| key.join(part))
    }

    /// Runs a request on the bucket's own thread and waits for its answer.
    fn wait<T: Send + 'static>(
        &self,
        action: &'static str,
        name: &str,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<object_store::Result<T>, StoreError> {
        let (tell, told) = mpsc::sync_channel(1);
        if let Some(runtime) = &self.runtime.0 {
            // Nobody listens any more where this thread has gone.
            runtime.spawn(async move { drop(tell.send(request.await)) });
        }
        let stopped = || StoreError::Remote { action, place: self.shown(name), reason: "the program stops".to_owned() };
        told.recv().map_err(|_| stopped())
    }

    /// Names of the folders directly below the prefix.
    pub(super) fn folders(&self) -> Result<Vec<String>, StoreError> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let listed = self.wait("list", "", async move {
            let prefix = Some(&prefix).filter(|prefix| !prefix.as_ref().is_empty());
            store.list_with_delimiter(prefix).await
        })?;
        let listed = listed.map_err(|error| self.refused("list", "", &error))?;
        Ok(listed.common_prefixes.iter().filter_map(|key| key.filename()).map(str::to_owned).collect())
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let (store, key) = (Arc::clone(&self.store), self.key(name));
        match self.wait("read", name, async move { store.get(&key).await?.bytes().await })? {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error @ object_store::Error::NotFound { .. }) if code(&error).as_deref() != Some(NO_BUCKET) => Ok(None),
            Err(error) => Err(self.refused("read", name, &error)),
        }
    }

    pub(super) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let (store, key) = (Arc::clone(&self.store), self.key(name));
        let put = self.wait("write", name, async move { store.put(&key, PutPayload::from(bytes)).await })?;
        put.map(drop).map_err(|error| self.refused("write", name, &error))
    }

    /// Writes where nothing stands; `false` where something does. Where the store cannot make that one step, it is
    /// asked first: what is written so is the same, whoever writes it.
    pub(super) fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool, StoreError> {
        let (store, key) = (Arc::clone(&self.store), self.key(name));
        let payload = PutPayload::from(bytes.clone());
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.wait("write", name, async move { store.put_opts(&key, payload, options).await })? {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(object_store::Error::NotImplemented { .. }) => self.create_in_two_steps(name, bytes),
            Err(error) if code(&error).as_deref() == Some("NotImplemented") => self.create_in_two_steps(name, bytes),
            Err(error) => Err(self.refused("write", name, &error)),
        }
    }

    fn create_in_two_steps(&self, name: &str, bytes: Vec<u8>) -> Result<bool, StoreError> {
        if self.read(name)?.is_some() {
            return Ok(false);
        }
        self.put(name, bytes).map(|()| true)
    }

    /// Writes a file, in several pieces where it is large: nobody sees it before it is whole.
    pub(super) fn put_file(&self, name: &str, from: &Path) -> Result<(), StoreError> {
        let length = fs::metadata(from).map_err(StoreError::io("read", from))?.len();
        if usize::try_from(length).is_ok_and(|length| length <= CHUNK) {
            return self.put(name, fs::read(from).map_err(StoreError::io("read", from))?);
        }
        let mut file = File::open(from).map_err(StoreError::io("read", from))?;
        let (store, key) = (Arc::clone(&self.store), self.key(name));
        let begun = self.wait("write", name, async move { store.put_multipart(&key).await })?;
        let begun = begun.map_err(|error| self.refused("write", name, &error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(begun, CHUNK);
        loop {
            let mut chunk = Vec::new();
            let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
            if read.map_err(StoreError::io("read", from))? == 0 {
                break;
            }
            let sent = self.wait("write", name, async move {
                upload.wait_for_capacity(1).await?;
                upload.put(chunk.into());
                Ok(upload)
            })?;
            upload = sent.map_err(|error| self.refused("write", name, &error))?;
        }
        let ended = self.wait("write", name, async move { upload.finish().await })?;
        ended.map(drop).map_err(|error| self.refused("write", name, &error))
    }

    /// Every name below a folder, relative to the prefix.
    pub(super) fn names(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let (store, key) = (Arc::clone(&self.store), self.key(folder));
        let listed = self.wait("list", folder, async move { store.list(Some(&key)).try_collect::<Vec<_>>().await })?;
        let listed = listed.map_err(|error| self.refused("list", folder, &error))?;
        let relative = |key: &Key| {
            let parts: Vec<_> = key.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        Ok(listed.iter().filter_map(|object| relative(&object.location)).collect())
    }
}

/// The code of a bucket that does not exist.
const NO_BUCKET: &str = "NoSuchBucket";

/// The error in our words. The client's own text is not shown: it may quote an answer that repeats credentials.
fn refused(action: &'static str, place: String, error: &object_store::Error, names_credentials: bool) -> StoreError {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    let code = code(error);
    let named = code.as_deref().map(|code| format!(" ({code})")).unwrap_or_default();
    let reason = match (error, code.as_deref()) {
        (_, Some(NO_BUCKET)) => "there is no such bucket; make it, or correct `store.url`".to_owned(),
        (_, Some("ExpiredToken" | "RequestTimeTooSkewed")) => {
            format!("the credentials are not valid now{named}; renew them, and look at this host's clock")
        }
        (PermissionDenied { .. } | Unauthenticated { .. }, _) => format!(
            "access was denied{named}; look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and \
             let this account list the bucket, read and write in it"
        ),
        (_, Some(_)) => format!("it answered with an error{named}; run again, or ask who operates it"),
        (_, None) if !names_credentials => {
            "the environment names no credentials, and this machine has none for it or is \
                                            out of reach; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                .to_owned()
        }
        (_, None) => {
            let cause = system_error(error).map(|cause| format!(" ({cause})")).unwrap_or_default();
            format!(
                "it is out of reach{cause}; look at AWS_ENDPOINT_URL, AWS_REGION, credentials and network, then run again"
            )
        }
    };
    StoreError::Remote { action, place, reason }
}

/// The word between `<Code>` and `</Code>` of an answer.
fn code(error: &object_store::Error) -> Option<String> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
        if let Some(code) = code.filter(|code| code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric())) {
            return Some(code.to_owned());
        }
        cause = error.source();
    }
    None
}

/// The operating system's error at the bottom of the chain.
fn system_error(error: &object_store::Error) -> Option<String> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    let mut found = None;
    while let Some(error) = cause {
        found = error.downcast_ref::<std::io::Error>().map(|error| error.kind().to_string()).or(found);
        cause = error.source();
    }
    found
}
