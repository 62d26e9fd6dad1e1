//! Who called what, in which order: exact counts for ever, the lines themselves up to a bound.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;

use crate::thread;

/// Lines that are kept; later ones are only counted.
const MAX_LINES: usize = 100_000;

/// The calls since the last reset.
#[derive(Default)]
pub struct Journal {
    counts: HashMap<(&'static str, i32), u64>,
    /// The last call of each thread, and the call before it.
    last: HashMap<i32, [&'static str; 2]>,
    lines: Vec<Line>,
    more: u64,
    file: Option<File>,
}

enum Line {
    Call(&'static str, i32),
    Mark(String),
}

impl Journal {
    /// Notes a call of this thread.
    pub fn call(&mut self, symbol: &'static str) {
        let tid = thread::tid();
        *self.counts.entry((symbol, tid)).or_default() += 1;
        let last = self.last.entry(tid).or_default();
        *last = [symbol, last[0]];
        self.line(Line::Call(symbol, tid));
    }

    /// What this thread called before the call that it is in; nothing where that is its first.
    pub fn before(&self) -> &'static str {
        self.last.get(&thread::tid()).map_or("", |last| last[1])
    }

    /// Puts a line of the test's own among the calls.
    pub fn mark(&mut self, text: String) {
        self.line(Line::Mark(text));
    }

    /// Appends every line to a file from now on, at once: for what comes while the process ends.
    pub fn write_to(&mut self, file: File) {
        self.file = Some(file);
    }

    /// How often it was called; on one thread, or on all. No symbol stands for all of them.
    pub fn count(&self, symbol: Option<&str>, tid: Option<i32>) -> u64 {
        self.counts
            .iter()
            .filter(|((name, _), _)| symbol.is_none_or(|symbol| symbol == *name))
            .filter(|((_, on), _)| tid.is_none_or(|tid| tid == *on))
            .map(|(_, count)| count)
            .sum()
    }

    /// All lines: `symbol tid`, `# mark`, and how many more there were.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            line.write(&mut text);
        }
        if self.more > 0 {
            let _ = writeln!(text, "and {} more", self.more);
        }
        text
    }

    fn line(&mut self, line: Line) {
        if let Some(file) = &mut self.file {
            let mut text = String::new();
            line.write(&mut text);
            let _ = file.write_all(text.as_bytes());
        }
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }
}

impl Line {
    fn write(&self, text: &mut String) {
        let _ = match self {
            Line::Call(symbol, tid) => writeln!(text, "{symbol} {tid}"),
            Line::Mark(mark) => writeln!(text, "# {mark}"),
        };
    }
}
