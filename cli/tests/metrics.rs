//! `--metrics`: Prometheus text while a job runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use support::{highwater, start};

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The page, or nothing while nobody serves it.
fn page(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

/// The sum of a metric over its labels.
fn sum(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[test]
fn a_demo_shows_its_checkpoints_while_it_runs() {
    let address = free_address();
    let demo = start(highwater("demo --seconds 6 --json --metrics").arg(address.to_string()));
    let began = Instant::now();
    let mut last = String::new();
    loop {
        last = page(address).unwrap_or(last);
        // The second life begins with a restore.
        let figures = ["highwater_checkpoints_completed_total", "highwater_restore_seconds_count"];
        if figures.iter().all(|name| sum(&last, name) > 0.0) && sum(&last, "highwater_recovery_seconds") > 0.0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{last}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(sum(&last, "highwater_state_bytes") > 0.0, "{last}");
    assert!(last.contains("# TYPE highwater_checkpoint_sync_seconds histogram"), "{last}");
    assert!(last.contains("highwater_checkpoint_sync_seconds_bucket{operator=\""), "{last}");
    demo.wait().expect(0);
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_happens() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = start(highwater("demo --seconds 3 --metrics").arg(&address)).wait().expect(2);
    assert!(ended.stderr.contains(&address) && ended.stdout.is_empty(), "{ended:?}");
}
