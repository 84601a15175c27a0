//! The table of ratios.

use std::fmt::Write;

use crate::rows::Row;

/// All rows, then the notes.
pub fn of(rows: &[Row], notes: &[String]) -> String {
    let mut out = String::new();
    let head = "| Workload | Checkpoints | Against | Metric | Highwater | Other | Ratio | min | max |\n|---|---|---|---|---|---|---|---|---|\n";
    out.push_str(head);
    for row in rows {
        let title =
            if row.variant.is_empty() { row.workload.clone() } else { format!("{}/{}", row.workload, row.variant) };
        let interval = if row.interval_s > 0.0 { format!("{} s", row.interval_s) } else { "off".to_owned() };
        let (ours, theirs) = (amount(row.highwater), amount(row.other));
        let (ratio, opponent, metric) = (row.ratio, &row.opponent, &row.metric);
        let (median, min, max) = (factor(ratio.median), factor(ratio.min), factor(ratio.max));
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "| {title} | {interval} | {opponent} | {metric} | {ours} | {theirs} | {median} | {min} | {max} |"
        );
    }
    for note in notes {
        let _ = writeln!(out, "\nNote: {note}");
    }
    out
}

/// Three digits and a unit of a thousand.
pub fn amount(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "K"),
        _ => (value, ""),
    };
    let decimals = if scaled.abs() >= 100.0 { 0 } else { 2 - usize::from(scaled.abs() >= 10.0) };
    format!("{scaled:.decimals$}{unit}")
}

fn factor(ratio: f64) -> String {
    if ratio >= 100.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        let shown: Vec<_> = [0.5, 12.34, 999.0, 1234.0, 56_780_000.0, 2e9].into_iter().map(amount).collect();
        assert_eq!(shown, ["0.50", "12.3", "999", "1.23K", "56.8M", "2.00G"]);
    }
}
