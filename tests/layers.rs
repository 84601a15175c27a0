//! House rules about the shape of the source, held by a test: which room may import which, which room
//! may use which dependency, how long files and functions may be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Rooms by floor, lowest first. A room imports itself and rooms of lower floors, nothing else: rooms of
/// one floor don't know one another.
const FLOORS: [&[&str]; 7] = [
    &["base"],
    &["io", "cache", "block", "version"],
    &["segment", "memtable", "manifest"],
    &["read"],
    &["flush", "compaction", "checkpoint"],
    &["engine", "inspect"],
    &["state"],
];

/// The rooms that may use a dependency that has a door.
const DOORS: [(&str, &[&str]); 7] = [
    ("hdfs_native", &["io"]),
    ("memmap2", &["base", "io"]),
    ("metrics", &["base"]),
    ("object_store", &["io"]),
    ("tokio", &["io"]),
    ("zstd", &["base"]),
    ("xxhash_rust", &["base"]),
];

/// What the crate root exports, with the room it comes from: `crate::Error` is `crate::base::Error`.
const ROOT_EXPORTS: [(&str, &str); 3] = [("Error", "base"), ("ErrorKind", "base"), ("Result", "base")];

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;
const BANNED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// The source without comments, strings and inline test modules, line for line.
fn code_of(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#\"") => raw_string_length(rest),
            '"' => string_length(rest),
            '\'' => char_length(rest),
            _ => {
                code.push(next);
                rest = &rest[next.len_utf8()..];
                continue;
            }
        };
        code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        rest = &rest[length..];
    }
    match code.find("#[cfg(test)]\nmod tests {") {
        Some(tests) => code[..tests].to_string(),
        None => code,
    }
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    text[hashes + 2..].find(&end).map_or(text.len(), |at| hashes + 2 + at + end.len())
}

/// A character literal, or just the quote of a lifetime.
fn char_length(text: &str) -> usize {
    let inner: Vec<char> = text.chars().skip(1).take(12).collect();
    let close = match inner.as_slice() {
        ['\\', _, rest @ ..] => rest.iter().position(|c| *c == '\'').map(|at| at + 2),
        [_, '\'', ..] => Some(1),
        _ => None,
    };
    close.map_or(1, |close| 2 + inner[..close].iter().map(|c| c.len_utf8()).sum::<usize>())
}

/// The rooms named after `crate::` or, in a nested list, directly within `crate::{..}`.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let after = &code[at + "crate::".len()..];
        match after.strip_prefix('{') {
            Some(list) => found.extend(first_names(list)),
            None => found.push(identifier(after)),
        }
    }
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first names of the parts of a `{..}` list whose opening brace is gone.
fn first_names(list: &str) -> Vec<String> {
    let mut depth = 0;
    let mut names = vec![identifier(list.trim_start())];
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(identifier(list[at + 1..].trim_start())),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// What is wrong with the imports of a file of `room`.
fn import_faults(room: &str, source: &str) -> Vec<String> {
    let code = code_of(source);
    let Some(own) = floor(room) else { return vec![format!("room `{room}` stands on no floor")] };
    let mut faults = Vec::new();
    for name in imports(&code) {
        let target = ROOT_EXPORTS.iter().find(|(export, _)| *export == name).map_or(name.as_str(), |(_, room)| room);
        match floor(target) {
            _ if target == room => {}
            None => faults.push(format!("`crate::{name}` is no room (import from the room, not from the root)")),
            Some(theirs) if theirs >= own => {
                faults.push(format!("`{room}` on floor {own} imports `{target}` on floor {theirs}"));
            }
            Some(_) => {}
        }
    }
    for (dependency, rooms) in DOORS {
        let used = code
            .match_indices(&format!("{dependency}::"))
            .any(|(at, _)| !code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_'));
        if used && !rooms.contains(&room) {
            faults.push(format!("`{room}` uses `{dependency}`, whose door is {rooms:?}"));
        }
    }
    faults
}

/// What is wrong with the size of a file and its functions, or was left unfinished.
fn shape_faults(source: &str) -> Vec<String> {
    let code = code_of(source);
    let mut faults = Vec::new();
    let lines = code.lines().count();
    if lines > MAX_FILE_LINES {
        faults.push(format!("{lines} lines, inline tests not counted, of at most {MAX_FILE_LINES}"));
    }
    for (name, lines) in functions(&code) {
        if lines > MAX_FUNCTION_LINES {
            faults.push(format!("function `{name}` has {lines} lines of at most {MAX_FUNCTION_LINES}"));
        }
    }
    let banned = BANNED.iter().filter(|banned| code.contains(**banned));
    faults.extend(banned.map(|banned| format!("`{banned}..)`")));
    faults
}

/// Names and lengths in lines, from signature to closing brace, of the functions that have a body.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name = identifier(&code[at + 3..]);
        if name.is_empty() {
            continue;
        }
        let (mut depth, mut brackets) = (0, 0);
        for (offset, c) in code[at..].char_indices() {
            match c {
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets -= 1,
                ';' if depth == 0 && brackets == 0 => break,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        found.push((name, code[at..at + offset].matches('\n').count() + 1));
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    found
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn sources(folder: &str) -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join(folder), &mut files);
    let relative = |path: &PathBuf| path.strip_prefix(root).unwrap().to_path_buf();
    files.iter().map(|path| (relative(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// The room of a file below `src`; `None` for the crate root.
fn room_of(path: &Path) -> Option<String> {
    let mut parts = path.components().skip(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
    let first = parts.next()?;
    match parts.next() {
        Some(_) => Some(first),
        None if first == "lib.rs" => None,
        None => Some(first.trim_end_matches(".rs").to_string()),
    }
}

#[test]
fn rooms_import_strictly_downward_and_dependencies_keep_to_their_doors() {
    let mut faults = Vec::new();
    for (path, source) in sources("src") {
        if let Some(room) = room_of(&path) {
            faults
                .extend(import_faults(&room, &source).into_iter().map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn files_and_functions_are_short_and_finished() {
    let mut faults = Vec::new();
    for (path, source) in sources("src").into_iter().chain(sources("cli/src")).chain(sources("benches/compare/src")) {
        faults.extend(shape_faults(&source).into_iter().map(|fault| format!("{}: {fault}", path.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_planted_upward_or_sideways_import_is_found() {
    assert!(import_faults("read", "use crate::engine::backend::Backend;").len() == 1);
    assert!(import_faults("flush", "use crate::compaction::Plan;").len() == 1);
    assert!(import_faults("block", "use crate::{\n    base::ids::SegmentId,\n    cache::{Cache, Key},\n};").len() == 1);
    assert!(import_faults("segment", "fn f() { crate::state::list::g(); }").len() == 1);
    assert!(import_faults("segment", "use crate::Backend;").len() == 1);
    assert!(import_faults("attic", "").len() == 1);
    let allowed =
        "use crate::{Error, Result};\nuse crate::base::wire;\nuse crate::block::reader;\nuse crate::segment::x;";
    assert!(import_faults("segment", allowed).is_empty());
    let unseen =
        "// crate::engine\n/// [`crate::engine::backend`]\nconst S: &str = \"crate::engine\"; const C: char = '\"';";
    assert!(import_faults("base", unseen).is_empty());
    let after_strings = "const C: char = '\"'; const L: &'static str = \"\\\"\"; use crate::engine::X;";
    assert!(import_faults("base", after_strings).len() == 1);
    let in_tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::engine::X;\n}";
    assert!(import_faults("base", in_tests).is_empty());
}

#[test]
fn a_planted_dependency_outside_its_door_is_found() {
    assert!(import_faults("engine", "let rt = tokio::runtime::Builder::new();").len() == 1);
    assert!(import_faults("memtable", "use memmap2::MmapMut;").len() == 1);
    assert!(import_faults("io", "use object_store::path::Path; use memmap2::Mmap;").is_empty());
}

#[test]
fn planted_length_and_leftovers_are_found() {
    let long_function = format!("fn long() {{\n{}}}\n", "    call();\n".repeat(80));
    assert_eq!(shape_faults(&long_function), ["function `long` has 82 lines of at most 70"]);
    assert!(shape_faults("trait T {\n    fn short(&self) -> [u8; 4];\n}\n").is_empty());
    assert_eq!(shape_faults(&"x\n".repeat(601)).len(), 1);
    let tests = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(900));
    assert!(shape_faults(&tests).is_empty());
    assert_eq!(shape_faults("fn f() { todo!() }").len(), 1);
}
