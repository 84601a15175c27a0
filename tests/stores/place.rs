//! The stores that the cases run on, and why one of them is left out.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use highwater::StoreOptions;
use highwater::base::clock::SystemClock;
use highwater::io::open_store::open_store_with;
use highwater::io::store::Store;

/// As `tests/stores/servers` has them.
pub const ACCESS_KEY: &str = "highwater-tests";
pub const SECRET_KEY: &str = "not-a-secret-of-anybody";
const AZURE_ACCOUNT: &str = "devstoreaccount1";
/// No tokens are asked for with it, and so nobody but the server.
const GOOGLE_KEY: &str =
    r#"{"private_key": "none", "private_key_id": "none", "client_email": "none", "disable_oauth": true}"#;
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A root of its own in a store.
pub struct Place {
    /// `memory`, `local`, `s3`, `azure`, `gcs` or `hdfs`.
    pub kind: &'static str,
    pub url: String,
    pub options: StoreOptions,
    /// Of what a process keeps for itself.
    shared: Option<Arc<dyn Store>>,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    /// The root, as a process of its own opens it.
    pub fn open(&self) -> Arc<dyn Store> {
        let open = || open_store_with(&self.url, true, Arc::new(SystemClock), &self.options).unwrap();
        self.shared.clone().unwrap_or_else(open)
    }

    /// The root `name` beside or below it.
    pub fn other(&self, name: &str) -> Arc<dyn Store> {
        let url = format!("{}{name}", self.url);
        match self.kind {
            "memory" => open_store_with("memory:///", true, Arc::new(SystemClock), &self.options).unwrap(),
            _ => open_store_with(&url, true, Arc::new(SystemClock), &self.options).unwrap(),
        }
    }

    /// True where requests cross a wire.
    pub fn is_remote(&self) -> bool {
        !matches!(self.kind, "memory" | "local")
    }
}

/// Runs `case` on the store of that kind, or says once why not.
pub fn run(kind: &'static str, case: impl FnOnce(&Place)) {
    match place(kind) {
        Ok(place) => case(&place),
        Err(why) => {
            let required = std::env::var("HIGHWATER_TEST_STORES_REQUIRED").unwrap_or_default();
            assert!(!required.split(',').any(|required| required == kind), "no {kind}: {why}");
            static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
            if SAID.lock().unwrap().insert(kind) {
                // Straight to the stream: the test harness keeps what is printed.
                let _ = writeln!(std::io::stderr(), "skipped on {kind}: {why}");
            }
        }
    }
}

fn place(kind: &'static str) -> Result<Place, String> {
    static PLACES: AtomicU64 = AtomicU64::new(0);
    let root = format!("root-{}-{}", std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
    let bare = StoreOptions::default().environment(false);
    let mut place = Place { kind, url: String::new(), options: bare.clone(), shared: None, _directory: None };
    match kind {
        "memory" => {
            place.url = "memory:///".into();
            place.shared = Some(place.other(""));
        }
        "local" => {
            let directory = tempfile::tempdir().unwrap();
            place.url = directory.path().join(root).display().to_string();
            place._directory = Some(directory);
        }
        "s3" => {
            place.options = bare
                .set("AWS_ENDPOINT_URL", server("HIGHWATER_TEST_S3", "aws", cfg!(feature = "aws"))?)
                .set("AWS_ALLOW_HTTP", "true")
                .set("AWS_REGION", "us-east-1")
                .set("AWS_ACCESS_KEY_ID", ACCESS_KEY)
                .set("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
            place.url = format!("s3://highwater/{root}");
        }
        "azure" => {
            place.options = bare
                .set("AZURE_STORAGE_ENDPOINT", server("HIGHWATER_TEST_AZURE", "azure", cfg!(feature = "azure"))?)
                .set("AZURE_ALLOW_HTTP", "true")
                .set("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
                .set("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY);
            place.url = format!("az://highwater/{root}");
        }
        "gcs" => {
            place.options = bare
                .set("GOOGLE_BASE_URL", server("HIGHWATER_TEST_GCS", "gcp", cfg!(feature = "gcp"))?)
                .set("GOOGLE_ALLOW_HTTP", "true")
                .set("GOOGLE_SERVICE_ACCOUNT_KEY", GOOGLE_KEY);
            place.url = format!("gs://highwater/{root}");
        }
        _ => {
            let cluster = server("HIGHWATER_TEST_HDFS", "hdfs", cfg!(feature = "hdfs"))?;
            place.url = format!("{cluster}/highwater/{root}");
        }
    }
    Ok(place)
}

/// The address of a server, or why there is none.
fn server(variable: &str, feature: &str, built: bool) -> Result<String, String> {
    if !built {
        return Err(format!("built without the cargo feature `{feature}`"));
    }
    std::env::var(variable).map_err(|_| {
        let missing = std::env::var("HIGHWATER_TEST_STORES_MISSING").unwrap_or_default();
        match missing.trim() {
            "" => format!("{variable} isn't set; run this by `tests/stores/servers run`"),
            why => why.to_owned(),
        }
    })
}
