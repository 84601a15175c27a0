//! From a URL and options to a store in a cloud, by `object_store`.
//!
//! Credentials, in this order:
//!
//! | Store | From |
//! |---|---|
//! | S3 | `AWS_ACCESS_KEY_ID` and the rest; a web identity or a container's role, as its variables say; static keys of a profile (`AWS_PROFILE`, `~/.aws`); instance metadata |
//! | Google | `GOOGLE_SERVICE_ACCOUNT` or `GOOGLE_SERVICE_ACCOUNT_KEY`; application default credentials; instance metadata |
//! | Azure | `AZURE_STORAGE_ACCOUNT_KEY`, a token, a SAS, a client secret, a workload identity, as variables say; managed identity |
//!
//! Plain HTTP is refused unless `AWS_ALLOW_HTTP`, `GOOGLE_ALLOW_HTTP` or `AZURE_ALLOW_HTTP` is true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use super::open_store::shown;
use super::remote_store::{RemoteStore, masked, redact};
use super::store::Store;
use super::store_options::StoreOptions;
use crate::{Error, ErrorKind, Result};

type Opened = Result<Arc<dyn ObjectStore>>;

/// A cloud as this build may know it.
struct Cloud {
    /// The cargo feature that brings it.
    feature: &'static str,
    /// What its settings begin with.
    prefix: &'static str,
    /// The settings that name another place than the cloud's own.
    endpoints: &'static [&'static str],
}

/// What a setting's name holds whose value is a secret.
const SECRET: [&str; 9] =
    ["secret", "token", "key", "sas", "password", "credential", "service_account", "client_id", "authorization"];

/// Opens the root that `url` names.
///
/// # Errors
/// `Unsupported` when this build lacks the cargo feature; `InvalidArgument` for a URL, setting or credentials that make no
/// sense, and for plain HTTP that nobody asked for.
pub(super) fn open(url: &str, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    let root = shown(url);
    let root = root.trim_end_matches('/');
    let bad = |why: &str| Error::invalid(format!("store `{root}`: {why}"));
    let parsed = Url::parse(url).map_err(|e| bad(&e.to_string()))?;
    let (scheme, path) = ObjectStoreScheme::parse(&parsed).map_err(|_| bad("not the URL of a store"))?;
    let cloud = cloud_of(&scheme).ok_or_else(|| bad("not the URL of a store"))?;
    let user_is_name = matches!(parsed.scheme(), "abfs" | "abfss") && parsed.password().is_none();
    if parsed.query().is_some() || (!parsed.username().is_empty() && !user_is_name) {
        return Err(bad("credentials and settings belong in the environment or in the options, not in the URL"));
    }
    let settings = options.beginning(cloud.prefix);
    #[cfg(feature = "aws")]
    let settings = if cloud.feature == "aws" { with_profile(settings, options)? } else { settings };
    if let Some(unknown) = options.own().find(|name| name.starts_with(cloud.prefix) && !knows(&cloud, name)) {
        return Err(bad(&format!("unknown setting `{unknown}`")));
    }
    check_http(root, &cloud, parsed.scheme(), &settings)?;
    let secrets: Vec<String> = settings
        .iter()
        .filter(|(name, value)| value.len() >= 4 && SECRET.iter().any(|part| name.contains(part)))
        .map(|(_, value)| value.clone())
        .collect();
    let store = build(&cloud, &parsed, settings, retries(options.retry_for)).map_err(|error| {
        let why = masked(redact(error.message()), &secrets);
        Error::new(error.kind(), format!("store `{root}`: {why}"))
    })?;
    let prefix = Path::parse(path).map_err(|_| bad("a path that no object can have"))?;
    let rooted = object_store::prefix::PrefixStore::new(store, prefix);
    Ok(Arc::new(RemoteStore::new(Arc::new(rooted), root)?.with_secrets(secrets)))
}

fn cloud_of(scheme: &ObjectStoreScheme) -> Option<Cloud> {
    let (feature, prefix, endpoints): (_, _, &[&str]) = match scheme {
        ObjectStoreScheme::AmazonS3 => ("aws", "aws_", &["aws_endpoint", "aws_endpoint_url", "aws_endpoint_url_s3"]),
        ObjectStoreScheme::GoogleCloudStorage => ("gcp", "google_", &["google_base_url"]),
        ObjectStoreScheme::MicrosoftAzure => ("azure", "azure_", &["azure_endpoint", "azure_storage_endpoint"]),
        ObjectStoreScheme::Http => ("http", "http_", &[]),
        _ => return None,
    };
    Some(Cloud { feature, prefix, endpoints })
}

/// Settings that are ours, not `object_store`'s.
const OURS: [&str; 3] = ["aws_profile", "aws_shared_credentials_file", "aws_config_file"];

fn knows(cloud: &Cloud, setting: &str) -> bool {
    OURS.contains(&setting)
        || match cloud.feature {
            #[cfg(feature = "aws")]
            "aws" => setting.parse::<object_store::aws::AmazonS3ConfigKey>().is_ok(),
            #[cfg(feature = "gcp")]
            "gcp" => setting.parse::<object_store::gcp::GoogleConfigKey>().is_ok(),
            #[cfg(feature = "azure")]
            "azure" => setting.parse::<object_store::azure::AzureConfigKey>().is_ok(),
            _ => setting.trim_start_matches(cloud.prefix).parse::<object_store::ClientConfigKey>().is_ok(),
        }
}

/// `settings`, and the keys of a profile where they don't say how to sign.
#[cfg(feature = "aws")]
fn with_profile(mut settings: BTreeMap<String, String>, options: &StoreOptions) -> Result<BTreeMap<String, String>> {
    const ELSEWHERE: [&str; 6] = [
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_web_identity_token_file",
        "aws_container_credentials_relative_uri",
        "aws_container_credentials_full_uri",
        "aws_skip_signature",
    ];
    if ELSEWHERE.iter().any(|name| settings.contains_key(*name)) {
        return Ok(settings);
    }
    for (name, value) in super::aws_profile::read(options)?.settings {
        let has_region = ["aws_region", "aws_default_region"].iter().any(|name| settings.contains_key(*name));
        if name != "aws_region" || !has_region {
            settings.insert(name, value);
        }
    }
    Ok(settings)
}

fn check_http(root: &str, cloud: &Cloud, scheme: &str, settings: &BTreeMap<String, String>) -> Result<()> {
    let allow = format!("{}allow_http", cloud.prefix);
    let is_true =
        |name: &str| settings.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
    if is_true(&allow) || is_true("azure_storage_use_emulator") {
        return Ok(());
    }
    let mut endpoints = cloud.endpoints.iter().filter_map(|name| settings.get(*name)).map(String::as_str);
    let plain = endpoints.find(|endpoint| endpoint.to_ascii_lowercase().starts_with("http://"));
    match plain.map(shown).or_else(|| (scheme == "http").then(|| root.to_owned())) {
        None => Ok(()),
        Some(endpoint) => {
            let allow = allow.to_ascii_uppercase();
            let message = format!("store `{root}`: `{endpoint}` is plain HTTP, not TLS; {allow}=true allows it");
            Err(Error::invalid(message))
        }
    }
}

/// How `object_store` repeats a request: pauses grow from 0.1 to 5 seconds, each drawn at random.
fn retries(retry_for: Duration) -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(5), base: 2.0 };
    let max_retries = if retry_for.is_zero() { 0 } else { usize::MAX };
    RetryConfig { backoff, max_retries, retry_timeout: retry_for }
}

fn build(cloud: &Cloud, url: &Url, mut settings: BTreeMap<String, String>, retry: RetryConfig) -> Opened {
    let lacking =
        || Error::new(ErrorKind::Unsupported, format!("this build lacks the cargo feature `{}`", cloud.feature));
    // Google's client would allow it unasked.
    settings.entry(format!("{}allow_http", cloud.prefix)).or_insert_with(|| "false".to_owned());
    match cloud.feature {
        #[cfg(feature = "aws")]
        "aws" => {
            let builder = object_store::aws::AmazonS3Builder::new().with_url(url.as_str()).with_retry(retry);
            let builder = configured(builder, settings, |builder, key, value| builder.with_config(key, value));
            Ok(Arc::new(builder.build().map_err(refused)?))
        }
        #[cfg(feature = "gcp")]
        "gcp" => {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::new().with_url(url.as_str()).with_retry(retry);
            let builder = configured(builder, settings, |builder, key, value| builder.with_config(key, value));
            Ok(Arc::new(builder.build().map_err(refused)?))
        }
        #[cfg(feature = "azure")]
        "azure" => {
            let builder = object_store::azure::MicrosoftAzureBuilder::new().with_url(url.as_str()).with_retry(retry);
            let builder = configured(builder, settings, |builder, key, value| builder.with_config(key, value));
            Ok(Arc::new(builder.build().map_err(refused)?))
        }
        #[cfg(feature = "http")]
        "http" => {
            let server = url[..url::Position::BeforePath].to_owned();
            let plain = settings.into_iter().map(|(name, value)| (name.trim_start_matches("http_").to_owned(), value));
            let builder = object_store::http::HttpBuilder::new().with_url(server).with_retry(retry);
            let builder = configured(builder, plain.collect(), |builder, key, value| builder.with_config(key, value));
            Ok(Arc::new(builder.build().map_err(refused)?))
        }
        _ => Err(lacking()),
    }
}

/// `builder` with the settings that it knows; variables of the environment for others are no business of its.
fn configured<B, K: std::str::FromStr>(
    builder: B,
    settings: BTreeMap<String, String>,
    with: impl Fn(B, K, String) -> B,
) -> B {
    settings.into_iter().fold(builder, |builder, (name, value)| match name.parse::<K>() {
        Ok(key) => with(builder, key, value),
        Err(_) => builder,
    })
}

fn refused(error: object_store::Error) -> Error {
    Error::invalid(error.to_string())
}
