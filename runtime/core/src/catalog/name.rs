//! The rules of a range name, in one place.
//!
//! Everything here is `const`: marks call it at compile time, and the catalog reader and the `warpline` command call the same
//! functions at run time. A name is segments of `[a-z0-9_]` joined by `.`, starts with its crate's namespace, has at least one
//! more segment, and is at most [`MAX_LEN`] bytes long.

/// The maximum length of a range name, in bytes.
pub const MAX_LEN: usize = 120;

/// The maximum length of a namespace, in bytes: a name needs room for `.` and one more byte.
pub const MAX_NAMESPACE_LEN: usize = MAX_LEN - 2;

/// The rule that a range name or a namespace breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameFault {
    /// The name is empty.
    Empty,
    /// The name is longer than [`MAX_LEN`] bytes, or the namespace than [`MAX_NAMESPACE_LEN`].
    TooLong,
    /// A byte is not one of `[a-z0-9_.]`.
    BadByte,
    /// The name has two adjacent dots, or begins or ends with a dot.
    EmptySegment,
    /// The name is only the namespace, or has no namespace.
    OneSegment,
    /// The name is in the namespace of another crate.
    Foreign,
}

impl NameFault {
    /// Returns the rule that the name breaks, as a sentence without its subject.
    pub const fn rule(self) -> &'static str {
        match self {
            NameFault::Empty => "is empty",
            NameFault::TooLong => "is too long: at most 120 bytes in all",
            NameFault::BadByte => "has a character that is not one of a-z, 0-9, `_`, with `.` between segments",
            NameFault::EmptySegment => "has an empty segment: one `.` between segments, none at the ends",
            NameFault::OneSegment => "has no segment of its own after the namespace",
            NameFault::Foreign => "is not in this crate's namespace",
        }
    }
}

/// Checks the namespace of a crate.
pub const fn check_namespace(namespace: &str) -> Result<(), NameFault> {
    check_segments(namespace.as_bytes(), namespace.len(), MAX_NAMESPACE_LEN)
}

/// Checks a range name against the rules and the namespace of its crate.
pub const fn check(namespace: &str, name: &str) -> Result<(), NameFault> {
    check_range(namespace.as_bytes(), name.as_bytes(), name.len())
}

/// Like [`check`], for the first `len` bytes: a caller with a NUL-terminated name need not split it, which is slow in const
/// evaluation. The loops are plain for the same reason: every mark runs this while it compiles.
pub(crate) const fn check_range(namespace: &[u8], name: &[u8], len: usize) -> Result<(), NameFault> {
    if let Err(fault) = check_segments(name, len, MAX_LEN) {
        return Err(fault);
    }
    let mut shared = 0;
    while shared < namespace.len() && shared < len && namespace[shared] == name[shared] {
        shared += 1;
    }
    if shared == namespace.len() && shared + 1 < len && name[shared] == b'.' {
        Ok(())
    } else if (shared == len && len == namespace.len()) || count(name, b'.') == 0 {
        Err(NameFault::OneSegment)
    } else {
        Err(NameFault::Foreign)
    }
}

/// Returns a valid name close to the invalid one, in the same namespace. [`check`] accepts it whenever the namespace is valid.
pub const fn suggest(namespace: &str, name: &str) -> Text<MAX_LEN> {
    let folded = fold(name);
    let own = strip_namespace(namespace, &folded);
    let mut right = Text::new();
    right.push(namespace);
    right.push_byte(b'.');
    right.push_bytes(if own.is_empty() { b"name" } else { own });
    while right.len > 0 && right.bytes[right.len - 1] == b'.' {
        right.len -= 1;
    }
    right
}

/// Returns a valid namespace close to the invalid one.
pub const fn suggest_namespace(namespace: &str) -> Text<MAX_LEN> {
    let mut right = fold(namespace);
    if right.len == 0 {
        right.push("my_crate");
    }
    while right.len > MAX_NAMESPACE_LEN || right.bytes[right.len - 1] == b'.' {
        right.len -= 1;
    }
    right
}

/// Returns the error text for a name that breaks a rule: the name, the rule, and a valid name.
pub const fn explain(namespace: &str, name: &str, fault: NameFault) -> Text<640> {
    let mut text = Text::new();
    text.push("range name `");
    text.push_clipped(name, 160);
    text.push("` ");
    text.push(fault.rule());
    if matches!(fault, NameFault::Foreign) {
        text.push(" `");
        text.push(namespace);
        text.push("`");
    }
    text.push("; write `");
    text.push(suggest(namespace, name).as_str());
    text.push("`");
    text
}

/// Returns the error text for a namespace that breaks a rule.
pub const fn explain_namespace(namespace: &str, fault: NameFault) -> Text<640> {
    let mut text = Text::new();
    text.push("namespace `");
    text.push_clipped(namespace, 160);
    text.push("` ");
    text.push(fault.rule());
    text.push("; write `");
    text.push(suggest_namespace(namespace).as_str());
    text.push("`");
    text
}

const fn check_segments(bytes: &[u8], len: usize, max_len: usize) -> Result<(), NameFault> {
    if len == 0 {
        return Err(NameFault::Empty);
    }
    if len > max_len {
        return Err(NameFault::TooLong);
    }
    let mut before = b'.';
    let mut i = 0;
    while i < len {
        match bytes[i] {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => {}
            b'.' if before != b'.' => {}
            b'.' => return Err(NameFault::EmptySegment),
            _ => return Err(NameFault::BadByte),
        }
        before = bytes[i];
        i += 1;
    }
    if before == b'.' { Err(NameFault::EmptySegment) } else { Ok(()) }
}

/// Folds a name: lower case, `::` and `/` to dots, camel humps and foreign characters to `_`, no empty segment.
const fn fold(name: &str) -> Text<MAX_LEN> {
    let bytes = name.as_bytes();
    let mut folded = Text::new();
    let mut i = 0;
    while i < bytes.len() {
        let last = if folded.len == 0 { b'.' } else { folded.bytes[folded.len - 1] };
        match bytes[i] {
            b'a'..=b'z' | b'0'..=b'9' | b'_' => folded.push_byte(bytes[i]),
            b'A'..=b'Z' => {
                if i > 0 && bytes[i - 1].is_ascii_lowercase() {
                    folded.push_byte(b'_');
                }
                folded.push_byte(bytes[i].to_ascii_lowercase());
            }
            b'.' | b':' | b'/' if last != b'.' => folded.push_byte(b'.'),
            b'.' | b':' | b'/' => {}
            _ if last == b'_' || last == b'.' => {}
            _ => folded.push_byte(b'_'),
        }
        i += 1;
    }
    // A foreign character at the end, such as a NUL, has nothing to separate.
    let ends_foreign =
        matches!(bytes.last(), Some(last) if !matches!(last, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_'));
    while folded.len > 0
        && (folded.bytes[folded.len - 1] == b'.' || ends_foreign && folded.bytes[folded.len - 1] == b'_')
    {
        folded.len -= 1;
    }
    folded
}

/// Returns the folded name without the leading segments that it shares with the namespace. A foreign first segment is dropped too,
/// if others follow it.
const fn strip_namespace<'a>(namespace: &str, folded: &'a Text<MAX_LEN>) -> &'a [u8] {
    let space = namespace.as_bytes();
    let mut rest = folded.bytes.split_at(folded.len).0;
    let mut at = 0;
    let mut shared = false;
    while at < space.len() && !rest.is_empty() {
        let segment = segment_len(space.split_at(at).1);
        let first = segment_len(rest);
        if segment != first || !equal(space.split_at(at).1.split_at(segment).0, rest.split_at(first).0) {
            break;
        }
        shared = true;
        rest = after_segment(rest, first);
        at += segment + 1;
    }
    if !shared && count(rest, b'.') > 0 { after_segment(rest, segment_len(rest)) } else { rest }
}

const fn segment_len(bytes: &[u8]) -> usize {
    let mut i = 0;
    while i < bytes.len() && bytes[i] != b'.' {
        i += 1;
    }
    i
}

const fn after_segment(bytes: &[u8], segment: usize) -> &[u8] {
    let next = if segment < bytes.len() { segment + 1 } else { segment };
    bytes.split_at(next).1
}

const fn count(bytes: &[u8], wanted: u8) -> usize {
    let (mut i, mut n) = (0, 0);
    while i < bytes.len() {
        n += (bytes[i] == wanted) as usize;
        i += 1;
    }
    n
}

pub(super) const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// UTF-8 text of at most `CAP` bytes that can be built in a `const`. Excess text is left out.
#[derive(Clone, Copy, Debug)]
pub struct Text<const CAP: usize> {
    bytes: [u8; CAP],
    len: usize,
}

impl<const CAP: usize> Text<CAP> {
    pub(super) const fn new() -> Self {
        Text { bytes: [0; CAP], len: 0 }
    }

    /// Returns the text.
    pub const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "",
        }
    }

    pub(super) const fn push(&mut self, text: &str) {
        self.push_clipped(text, CAP);
    }

    /// Appends at most `max` bytes of `text`, cut at a character boundary, with `…` where text is missing.
    pub(super) const fn push_clipped(&mut self, text: &str, max: usize) {
        let room = CAP - self.len;
        let max = if max < room { max } else { room };
        if text.len() <= max {
            return self.push_bytes(text.as_bytes());
        }
        if max < 3 {
            return;
        }
        let mut end = max - 3;
        while end > 0 && text.as_bytes()[end] & 0xC0 == 0x80 {
            end -= 1;
        }
        self.push_bytes(text.as_bytes().split_at(end).0);
        self.push_bytes("…".as_bytes());
    }

    const fn push_bytes(&mut self, bytes: &[u8]) {
        let mut i = 0;
        while i < bytes.len() {
            self.push_byte(bytes[i]);
            i += 1;
        }
    }

    const fn push_byte(&mut self, byte: u8) {
        if self.len < CAP {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_the_rules_allow() {
        for (namespace, name) in
            [("demo", "demo.add"), ("vyre.cuda", "vyre.cuda.pipeline.compile"), ("a_1", "a_1.0"), ("x", "x.y.z_")]
        {
            assert_eq!(check(namespace, name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_each_fault_and_suggests_a_right_name() {
        use NameFault::*;
        for (name, fault, right) in [
            ("", Empty, "demo.name"),
            ("demo", OneSegment, "demo.name"),
            ("add", OneSegment, "demo.add"),
            ("Demo.Add", BadByte, "demo.add"),
            ("demo::matMul", BadByte, "demo.mat_mul"),
            ("demo.mat mul", BadByte, "demo.mat_mul"),
            ("demo..add", EmptySegment, "demo.add"),
            ("demo.", EmptySegment, "demo.name"),
            (".demo.add", EmptySegment, "demo.add"),
            ("other.add", Foreign, "demo.add"),
            ("demonstration.add", Foreign, "demo.add"),
            ("demo.größe", BadByte, "demo.gr_e"),
            ("demo.sum\0", BadByte, "demo.sum"),
            ("demo.sum!?", BadByte, "demo.sum"),
            ("demo.ß", BadByte, "demo.name"),
        ] {
            assert_eq!(check("demo", name), Err(fault), "{name}");
            assert_eq!(suggest("demo", name).as_str(), right, "{name}");
        }
    }

    #[test]
    fn explains_in_one_sentence() {
        let text = explain("demo", "other.add", NameFault::Foreign);
        assert_eq!(text.as_str(), "range name `other.add` is not in this crate's namespace `demo`; write `demo.add`");
    }

    #[test]
    fn clips_a_long_name_between_characters() {
        let name = "ß".repeat(400);
        let text = explain("demo", &name, NameFault::TooLong);
        assert!(text.as_str().contains("ß…` is too long"), "{}", text.as_str());
        assert!(text.as_str().ends_with("write `demo.name`"), "{}", text.as_str());
    }
}
