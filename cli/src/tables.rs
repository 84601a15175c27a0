//! What `highwater checkpoints` prints for people: the reports as text.

use std::fmt::Write;

use crate::report::{ListReport, ShowReport, VerifyReport};
use crate::units::format_size;

/// How many key groups are listed: the heaviest tell whether keys are skewed.
const KEY_GROUPS_SHOWN: usize = 10;

/// Aligns cells in columns; the first row is the heading.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter().fold(String::new(), |mut text, row| {
        let line = row.iter().zip(&widths).fold(String::new(), |mut line, (cell, width)| {
            // Writing to a string can't fail.
            let _ = write!(line, "{cell:width$}  ");
            line
        });
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}

fn row<const N: usize>(cells: [&dyn std::fmt::Display; N]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

/// `checkpoints list`.
pub fn list(report: &ListReport) -> String {
    if report.checkpoints.is_empty() {
        return "no completed checkpoint\n".to_owned();
    }
    let mut rows = vec![row([&"ID", &"COMPLETED", &"SUBTASKS", &"BYTES", &"PINNED BY"])];
    rows.extend(report.checkpoints.iter().map(|c| {
        let id = format!("{}/{}", c.epoch, c.id);
        row([&id, &c.completed, &c.parallelism, &format_size(c.bytes), &c.pins.join(", ")])
    }));
    let mut text = table(&rows);
    if let Some(origin) = &report.forked_from {
        let listed = |id: &str| report.checkpoints.iter().any(|c| format!("{}/{}", c.epoch, c.id) == id);
        let state = match &origin.pin {
            _ if origin.needed && !listed(&origin.forked) => {
                format!(
                    "{} is not needed any more; once its grace period is over, gc here gives up the pin there",
                    origin.forked
                )
            }
            _ if origin.needed => format!("{} needs its data there", origin.forked),
            Some(pin) => format!("which isn't needed any more; the next gc here gives up its pin `{pin}`"),
            None => "which isn't needed any more".to_owned(),
        };
        let _ = writeln!(text, "forked from checkpoint {} of {}: {state}", origin.checkpoint, origin.url);
    }
    text
}

/// `checkpoints show`.
pub fn show(report: &ShowReport) -> String {
    let mut text = format!(
        "checkpoint {}/{}, completed {}, {} subtasks, {} key groups\nmetadata {}\n\n",
        report.epoch, report.id, report.completed, report.parallelism, report.max_parallelism, report.metadata
    );
    let mut rows = vec![row([&"STATE", &"KIND", &"ENTRIES", &"BYTES"])];
    rows.extend(report.states.iter().map(|s| row([&s.name, &s.kind, &s.entries, &format_size(s.bytes)])));
    text += &table(&rows);
    text.push('\n');
    let mut rows = vec![row([&"SEGMENT", &"LEVEL", &"ENTRIES", &"BYTES"])];
    rows.extend(report.segments.iter().map(|s| row([&s.name, &s.level, &s.entries, &format_size(s.bytes)])));
    text += &table(&rows);
    let mut groups = report.key_groups.clone();
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| (&a.operator, a.group).cmp(&(&b.operator, b.group))));
    if groups.len() > KEY_GROUPS_SHOWN {
        let _ = write!(text, "\nthe heaviest {KEY_GROUPS_SHOWN} of {} key groups of all operators\n", groups.len());
    } else {
        text.push('\n');
    }
    let mut rows = vec![row([&"KEY GROUP", &"BYTES", &"OPERATOR"])];
    rows.extend(groups.iter().take(KEY_GROUPS_SHOWN).map(|g| row([&g.group, &format_size(g.bytes), &g.operator])));
    text + &table(&rows)
}

/// `checkpoints verify`.
pub fn verify(report: &VerifyReport) -> String {
    let mut text = format!("{} objects, {}: ", report.objects, format_size(report.bytes));
    text += if report.bad.is_empty() { "every checksum holds\n" } else { "damaged\n" };
    for bad in &report.bad {
        let _ = writeln!(text, "  {}: {}", bad.name, bad.reason);
    }
    if report.leftovers > 0 {
        let _ = writeln!(
            text,
            "{} leftovers of interrupted writes, which are collected after the grace period",
            report.leftovers
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BadObject, KeyGroupReport, ListedCheckpoint, SegmentReport, StateReport};

    #[test]
    fn a_list_is_aligned() {
        assert_eq!(list(&ListReport { checkpoints: vec![], forked_from: None }), "no completed checkpoint\n");
        let checkpoint = |id| ListedCheckpoint {
            id,
            epoch: 1,
            completed: "2026-01-01T00:00:00Z".into(),
            parallelism: 2,
            bytes: 2048,
            pins: if id == 9 { vec!["a".into(), "b".into()] } else { vec![] },
        };
        assert_eq!(
            list(&ListReport { checkpoints: vec![checkpoint(9), checkpoint(10)], forked_from: None }),
            "ID    COMPLETED             SUBTASKS  BYTES    PINNED BY\n1/9   2026-01-01T00:00:00Z  2         2.0 KiB  a, b\n1/10  2026-01-01T00:00:00Z  2         2.0 KiB\n"
        );
    }

    #[test]
    fn a_checkpoint_shows_its_states_segments_and_heaviest_groups() {
        let report = ShowReport {
            id: 7,
            epoch: 2,
            completed: "2026-01-01T00:00:00Z".into(),
            parallelism: 2,
            max_parallelism: 128,
            metadata: serde_json::json!({"format": 1}),
            states: vec![StateReport { name: "windows".into(), kind: "map".into(), entries: 3, bytes: 100 }],
            segments: vec![SegmentReport { name: "2/1-ab".into(), bytes: 100, entries: 3, level: 0 }],
            key_groups: (0..20)
                .map(|group| KeyGroupReport { operator: "windows".into(), group, bytes: u64::from(group) })
                .collect(),
        };
        let text = show(&report);
        for part in [
            "checkpoint 2/7",
            "{\"format\":1}",
            "windows  map",
            "2/1-ab",
            "heaviest 10 of 20 key groups of all operators",
            "19         19 B   windows",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("\n9 "), "{text}");
    }

    #[test]
    fn a_damaged_object_is_named() {
        let mut report = VerifyReport { objects: 2, bytes: 10, bad: vec![], leftovers: 0 };
        assert_eq!(verify(&report), "2 objects, 10 B: every checksum holds\n");
        report.bad.push(BadObject { name: "1/2-cd".into(), reason: "checksum of block 3".into() });
        report.leftovers = 1;
        let text = verify(&report);
        assert!(text.contains("damaged\n  1/2-cd: checksum of block 3\n1 leftovers"), "{text}");
    }
}
