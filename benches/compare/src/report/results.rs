//! The measured part of `RESULTS.md`, put between two marks of the page; what people wrote around it stays.

use std::fmt::Write;
use std::path::Path;

use super::targets::{Measure, TARGETS, Target, Verdict};
use super::{Report, json, plots, table};
use crate::Result;

const BEGIN: &str = "<!-- measured: what stands from here to the end mark is written by the comparison -->";
const END: &str = "<!-- end of what was measured -->";

/// Writes the measured part of `page`, and the plots and the JSON into the folder `results` beside it.
pub fn write(page: &Path, report: &Report) -> Result<()> {
    let text = std::fs::read_to_string(page)?;
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| format!("{} has no line `{BEGIN}`", page.display()))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{} has no line `{END}`", page.display()))?;
    let folder = page.with_file_name("results");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    plots::write(&folder, &report.rows, &report.remembered)?;
    std::fs::write(folder.join("rows.json"), json::of(&report.rows, &report.notes)?)?;
    let mut names: Vec<String> = std::fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".svg"))
        .collect();
    names.sort();
    std::fs::write(page, format!("{before}{BEGIN}\n\n{}\n{END}{after}", measured(report, &names)))?;
    Ok(())
}

fn measured(report: &Report, plots: &[String]) -> String {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let mut out = format!(
        "Commit {}; {}; `cargo run --release -p highwater-compare -- {}`; load {} at the start.\n\n",
        json::commit(),
        json::machine(),
        command.join(" "),
        report.load
    );
    out.push_str("### Against the targets\n\n");
    out.push_str(
        "The worst interval and the better RocksDB count. Ratios are medians (least to greatest of the pairs).\n\n",
    );
    out.push_str("| Work | Measure | Every | Measured | Target | Floor | |\n|---|---|---|---|---|---|---|\n");
    for target in TARGETS {
        for title in target.titles {
            line(&mut out, target, title, report);
        }
    }
    out.push_str("\n### All rows\n\n");
    out.push_str(&table::of(&report.rows, &report.notes));
    out.push_str("\n### Plots\n\n");
    for name in plots {
        let _ = writeln!(out, "![{}](results/{name})", name.trim_end_matches(".svg"));
    }
    out
}

fn line(out: &mut String, target: &Target, title: &str, report: &Report) {
    let Some((spread, row)) = target.of(title, &report.rows) else {
        let _ = writeln!(out, "| {title} | {} | | not run | | | |", target.metric);
        return;
    };
    let bound = |value: f64| match target.measure {
        _ if value.is_infinite() => String::new(),
        Measure::AtMost => format!("at most {}", table::amount(value)),
        _ => table::amount(value),
    };
    let beside = match target.measure {
        Measure::AtLeast | Measure::AtMost => String::new(),
        _ => format!(" beside {}", row.opponent),
    };
    let measured = match target.measure {
        Measure::AtLeast | Measure::AtMost => table::amount(spread.median),
        _ => format!("{:.2} ({:.2} to {:.2})", spread.median, spread.min, spread.max),
    };
    let verdict = match target.verdict(spread.median) {
        Verdict::Met => "met",
        Verdict::Floor => "floor",
        Verdict::Short => "**short**",
    };
    let every = if row.interval_s > 0.0 { format!("{} s", row.interval_s) } else { String::new() };
    let (metric, wanted, floor) = (target.metric, bound(target.target), bound(target.floor));
    let _ = writeln!(out, "| {title} | {metric}{beside} | {every} | {measured} | {wanted} | {floor} | {verdict} |");
}
