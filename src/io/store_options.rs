//! How a store is reached: settings and credentials, how long requests are repeated, how fast uploads go.

use std::collections::BTreeMap;
use std::time::Duration;

/// What to reach a store with, beside its URL. [`Default`]: settings and credentials from the process's environment,
/// requests repeated for 30 seconds, no bound on bandwidth.
///
/// A setting is named as the environment variable for it, in either case: `AWS_ENDPOINT_URL`, `AZURE_STORAGE_ACCOUNT_KEY`,
/// `GOOGLE_SERVICE_ACCOUNT`, `HADOOP_CONF_DIR`, ... (those of the `object_store` crate). Neither [`Debug`] nor an error shows a
/// setting's value.
#[derive(Clone)]
pub struct StoreOptions {
    settings: BTreeMap<String, String>,
    environment: bool,
    pub(super) retry_for: Duration,
    pub(super) upload_bytes_per_second: Option<u64>,
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreOptions")
            .field("settings", &self.settings.keys())
            .field("environment", &self.environment)
            .field("retry_for", &self.retry_for)
            .field("upload_bytes_per_second", &self.upload_bytes_per_second)
            .finish()
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            settings: BTreeMap::new(),
            environment: true,
            retry_for: Duration::from_secs(30),
            upload_bytes_per_second: None,
        }
    }
}

impl StoreOptions {
    /// A setting that goes before the environment's variable of that name.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.insert(name.to_ascii_lowercase(), value.into());
        self
    }

    /// Whether settings and credentials that aren't [set](Self::set) are taken from the process's environment and the files
    /// that lie where it says. Default true.
    #[must_use]
    pub fn environment(mut self, environment: bool) -> Self {
        self.environment = environment;
        self
    }

    /// How long a request to a cloud that failed in a way that may pass is repeated, with pauses that grow from 0.1 to 5
    /// seconds and are drawn at random. Zero: never. Uploads and the root log are repeated beyond that by who makes them.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Self {
        self.retry_for = retry_for;
        self
    }

    /// Bound on the bytes of segments that go to the store in a second, over all of an environment's backends; zero counts as
    /// one. What is urgent and small (manifests, entries of the log) counts, but isn't held up. Default none.
    #[must_use]
    pub fn upload_bytes_per_second(mut self, bytes: u64) -> Self {
        self.upload_bytes_per_second = Some(bytes.max(1));
        self
    }

    /// Names, lower-case, of the settings that were set here.
    #[cfg(any(feature = "aws", feature = "gcp", feature = "azure", feature = "http"))]
    pub(super) fn own(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    /// The setting called `name` (lower-case), wherever it comes from.
    #[cfg(any(feature = "aws", feature = "hdfs"))]
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let of_environment = || std::env::var_os(name.to_ascii_uppercase())?.into_string().ok();
        self.settings.get(name).cloned().or_else(|| of_environment().filter(|_| self.environment))
    }

    /// All settings whose names begin with `prefix` (lower-case), with lower-case names.
    #[cfg(any(feature = "aws", feature = "gcp", feature = "azure", feature = "http"))]
    pub(super) fn beginning(&self, prefix: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        // Not `vars`, which panics at a variable of somebody else's that isn't Unicode.
        for (name, value) in std::env::vars_os().filter(|_| self.environment) {
            if let (Some(name), Ok(value)) = (name.to_str(), value.into_string()) {
                found.insert(name.to_ascii_lowercase(), value);
            }
        }
        found.extend(self.settings.clone());
        found.retain(|name, _| name.starts_with(prefix));
        found
    }

    /// The user's directory, where credentials may lie.
    #[cfg(feature = "aws")]
    pub(super) fn home(&self) -> Option<std::path::PathBuf> {
        std::env::home_dir().filter(|_| self.environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_no_values() {
        let options = StoreOptions::default().set("AWS_SECRET_ACCESS_KEY", "marked-secret");
        let shown = format!("{options:?}");
        assert!(shown.contains("aws_secret_access_key") && !shown.contains("marked-secret"), "{shown}");
    }
}
