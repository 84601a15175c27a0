//! `--metrics`: the library's metrics as Prometheus text over HTTP.

use std::net::SocketAddr;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::console;
use crate::exit::{Failure, Outcome};

/// Buckets of times: from what a checkpoint takes of the thread that processes records to what a store that is away takes.
const SECONDS: [f64; 16] =
    [1e-6, 5e-6, 2.5e-5, 1e-4, 5e-4, 2.5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0, 60.0];

/// Buckets of sizes: from 1 KiB to 4 GiB.
const BYTES: [f64; 12] = [
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262144.0,
    1048576.0,
    4194304.0,
    16777216.0,
    67108864.0,
    268435456.0,
    1073741824.0,
    4294967296.0,
];

/// Serves metrics at `http://ADDRESS/metrics` until the process ends; comes before anything that has any.
///
/// # Errors
///
/// The address is taken or isn't ours (2).
pub fn serve(address: Option<SocketAddr>) -> Outcome<()> {
    let Some(address) = address else { return Ok(()) };
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("--metrics {address}: {error}"));
    // The exporter would only say so in a log line of its own thread.
    drop(std::net::TcpListener::bind(address).map_err(|error| failed(&error))?);
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES))
        .map_err(|error| failed(&error))?
        .with_http_listener(address)
        .install()
        .map_err(|error| failed(&error))?;
    console::note(format_args!("metrics at http://{address}/metrics"));
    Ok(())
}
