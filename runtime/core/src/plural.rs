//! Counts with their nouns, for warnings and notes.

/// Returns "1 zone", "2 zones".
pub fn counted(count: u64, what: &str) -> String {
    counted_as(count, what, &format!("{what}s"))
}

/// Returns "1 kernel or copy", "2 kernels and copies": for words whose plural is not formed with a final `s`.
pub fn counted_as(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Returns "1 zone is", "2 zones are".
pub fn counted_are(count: u64, what: &str) -> String {
    format!("{} {}", counted(count, what), if count == 1 { "is" } else { "are" })
}
