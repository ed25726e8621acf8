//! Where a snapshot store is: what `store.url` and the usual variables of the object store say. No I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

/// A directory or a bucket.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    /// A directory.
    Directory(PathBuf),
    /// A bucket of an object store.
    Bucket(BucketLocation),
}

/// A bucket, or what lies below a prefix of it.
#[derive(Debug, Clone)]
pub struct BucketLocation {
    /// The bucket's name.
    pub bucket: String,
    /// What every name in it begins with; without slashes at its ends, possibly empty.
    pub prefix: String,
    /// The variables `AWS_…` of the environment, among them credentials.
    pub variables: BTreeMap<String, SecretString>,
}

/// Set by us alone, from the endpoint's host.
const ALLOW_HTTP: &str = "AWS_ALLOW_HTTP";
/// Variables that say where credentials come from.
const CREDENTIALS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// Variables that hold an endpoint.
const ENDPOINTS: &[&str] = &["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"];

impl StoreLocation {
    /// What the variables of an object store begin with.
    pub const VARIABLES: &str = "AWS_";

    /// Reads `store.url`. A directory is relative to `base`; an object store takes its variables from `environment`.
    ///
    /// # Errors
    /// What is wrong with it; the text ends a sentence that names the setting.
    pub fn parse(url: &str, base: &Path, environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return match url {
                "" => Err("expected a directory, such as \"snapshots\", or s3://BUCKET/PREFIX; found \"\"".to_owned()),
                _ => Ok(Self::Directory(base.join(url))),
            };
        };
        if scheme != "s3" {
            return Err(format!(
                "expected a directory or s3://BUCKET/PREFIX; there is no store of the kind {scheme}://"
            ));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_bucket(bucket) {
            return Err("expected a bucket's name behind s3://: 3 to 63 lower-case letters, digits, dots, hyphens; \
                        credentials and endpoint come from the AWS_ variables"
                .to_owned());
        }
        if !prefix.is_empty() && !prefix.split('/').all(is_segment) {
            return Err("expected letters, digits and -_.= between the slashes of the prefix".to_owned());
        }
        let variables = variables(environment)?;
        Ok(Self::Bucket(BucketLocation { bucket: bucket.to_owned(), prefix: prefix.to_owned(), variables }))
    }

    /// The directory, where it is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Bucket(_) => None,
        }
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(directory) => write!(f, "{}", directory.display()),
            Self::Bucket(bucket) => write!(f, "{bucket}"),
        }
    }
}

impl fmt::Display for BucketLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

impl BucketLocation {
    /// Whether the variables say whose credentials to use; else only the machine itself can.
    pub(super) fn names_credentials(&self) -> bool {
        CREDENTIALS.iter().any(|name| self.variables.contains_key(*name))
    }

    /// Whether its endpoint is reached without TLS; only ever a loopback address.
    pub(super) fn is_plain(&self) -> bool {
        ENDPOINTS
            .iter()
            .filter_map(|name| self.variables.get(*name))
            .any(|url| url.expose_secret().starts_with("http:"))
    }
}

fn variables(environment: &BTreeMap<String, String>) -> Result<BTreeMap<String, SecretString>, String> {
    let ours =
        |name: &str, value: &str| name.starts_with(StoreLocation::VARIABLES) && name != ALLOW_HTTP && !value.is_empty();
    for name in ENDPOINTS {
        let Some(endpoint) = environment.get(*name).filter(|endpoint| !endpoint.is_empty()) else { continue };
        let url = url::Url::parse(endpoint).map_err(|_| format!("needs {name} to be a URL such as https://HOST"))?;
        let loopback = match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            _ => return Err(format!("needs {name} to begin with https://; http:// is only for a loopback address")),
        }
    }
    let kept = environment.iter().filter(|(name, value)| ours(name, value));
    Ok(kept.map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))).collect())
}

fn is_bucket(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let end = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (3..=63).contains(&name.len())
        && name.bytes().all(inner)
        && end(name.as_bytes().first())
        && end(name.as_bytes().last())
}

fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.=".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str, variables: &[(&str, &str)]) -> Result<StoreLocation, String> {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        StoreLocation::parse(url, Path::new("/srv"), &environment)
    }

    #[test]
    fn a_directory_is_relative_to_the_file_and_a_bucket_has_a_prefix() {
        assert_eq!(parse("snapshots", &[]).unwrap().to_string(), "/srv/snapshots");
        assert_eq!(parse("s3://digests/weekly/", &[]).unwrap().to_string(), "s3://digests/weekly");
        assert_eq!(parse("s3://digests", &[]).unwrap().to_string(), "s3://digests/");
    }

    #[test]
    fn what_is_no_store_is_refused() {
        for url in [
            "",
            "gs://b",
            "s3://",
            "s3://UPPER",
            "s3://key:secret@bucket",
            "s3://abc/../x",
            "s3://abc/a//b",
            "s3://abc/a?b",
        ] {
            assert!(parse(url, &[]).is_err(), "{url}");
        }
    }

    #[test]
    fn plain_http_is_for_loopback_alone_and_no_message_or_debug_text_shows_a_secret() {
        for endpoint in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"] {
            let StoreLocation::Bucket(bucket) = parse("s3://abc", &[("AWS_ENDPOINT_URL", endpoint)]).unwrap() else {
                panic!("no bucket");
            };
            assert!(bucket.is_plain());
        }
        let elsewhere = [("AWS_ENDPOINT", "http://store.example.test"), ("AWS_ALLOW_HTTP", "true")];
        assert!(parse("s3://abc", &elsewhere).unwrap_err().contains("AWS_ENDPOINT"));
        let secret = parse("s3://abc", &[("AWS_SECRET_ACCESS_KEY", "canary"), ("AWS_ALLOW_HTTP", "true")]).unwrap();
        assert!(!format!("{secret:?}").contains("canary"));
    }
}
