//! Where the marks of this program are in its source: its own catalog, as `warpline catalog` prints it.

/// The place of a range as `file:line`, if the program has it.
pub fn place(name: &str) -> Option<String> {
    let range = warpline::catalog().find(name)?;
    let file = range.file();
    let file = file.rsplit('/').next().unwrap_or(file);
    Some(format!("{file}:{}", range.line()))
}
