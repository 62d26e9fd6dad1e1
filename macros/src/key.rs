//! The names of the options, and the closest name for an unknown word.
//!
//! `options` defines which options each macro takes, and parses them.

/// An option by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Stream,
    Description,
    Fields,
    Level,
    Lane,
    Color,
    Err,
    Label,
    Begin,
    Step,
    Bytes,
    Flops,
    Kind,
    Count,
    CountOut,
    Dtype,
    Group,
    Root,
    Peer,
    Op,
    Seq,
    InSplit,
    OutSplit,
    IsAsync,
    Infer,
    Crate,
}

impl Key {
    const ALL: [Key; 26] = [
        Key::Stream,
        Key::Description,
        Key::Fields,
        Key::Level,
        Key::Lane,
        Key::Color,
        Key::Err,
        Key::Label,
        Key::Begin,
        Key::Step,
        Key::Bytes,
        Key::Flops,
        Key::Kind,
        Key::Count,
        Key::CountOut,
        Key::Dtype,
        Key::Group,
        Key::Root,
        Key::Peer,
        Key::Op,
        Key::Seq,
        Key::InSplit,
        Key::OutSplit,
        Key::IsAsync,
        Key::Infer,
        Key::Crate,
    ];

    pub fn named(name: &str) -> Option<Key> {
        Key::ALL.into_iter().find(|key| key.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Key::Stream => "stream",
            Key::Description => "description",
            Key::Fields => "fields",
            Key::Level => "level",
            Key::Lane => "lane",
            Key::Color => "color",
            Key::Err => "err",
            Key::Label => "label",
            Key::Begin => "begin",
            Key::Step => "step",
            Key::Bytes => "bytes",
            Key::Flops => "flops",
            Key::Kind => "kind",
            Key::Count => "count",
            Key::CountOut => "count_out",
            Key::Dtype => "dtype",
            Key::Group => "group",
            Key::Root => "root",
            Key::Peer => "peer",
            Key::Op => "op",
            Key::Seq => "seq",
            Key::InSplit => "in_split",
            Key::OutSplit => "out_split",
            Key::IsAsync => "is_async",
            Key::Infer => "infer",
            Key::Crate => "crate",
        }
    }

    /// The option as the user writes it.
    pub fn usage(self) -> &'static str {
        match self {
            Key::Stream => "stream = <expression>",
            Key::Description => "description = \"…\"",
            Key::Fields => "fields(name = <expression>, …)",
            Key::Level => "level = coarse` or `level = fine",
            Key::Lane => "lane = \"…\"` or `lane = <expression>",
            Key::Color => "color = 0xRRGGBB",
            Key::Err => "err",
            Key::Label => "label = <expression>",
            Key::Begin => "begin = stream` or `begin = launch",
            Key::Step => "step` or `step = <expression>",
            Key::Bytes => "bytes = <expression>",
            Key::Flops => "flops = <expression>",
            Key::Kind => "kind = gpu`, `kind = host` or `kind = collective",
            Key::Count => "count = <expression>",
            Key::CountOut => "count_out = <expression>",
            Key::Dtype => "dtype = f32` or `dtype = \"bf16\"",
            Key::Group => "group = <expression>",
            Key::Root => "root = <expression>",
            Key::Peer => "peer = <expression>",
            Key::Op => "op = \"sum\"",
            Key::Seq => "seq = <expression>",
            Key::InSplit => "in_split = <expression>",
            Key::OutSplit => "out_split = <expression>",
            Key::IsAsync => "is_async = <expression>",
            Key::Infer => "infer = none",
            Key::Crate => "crate = <path>",
        }
    }
}

/// The options that describe a collective's message.
pub const MESSAGE: &[Key] = &[
    Key::Count,
    Key::CountOut,
    Key::Dtype,
    Key::Group,
    Key::Root,
    Key::Peer,
    Key::Op,
    Key::Seq,
    Key::InSplit,
    Key::OutSplit,
    Key::IsAsync,
];

/// The closest key: fewer than half of its characters differ.
pub fn nearest(keys: impl Iterator<Item = Key>, word: &str) -> Option<Key> {
    let distance = |key: &Key| edits(key.name(), word);
    keys.min_by_key(distance).filter(|key| distance(key) * 2 < key.name().len())
}

/// The number of characters to insert, delete or replace to turn one word into the other.
pub fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(b.chars()) {
            let above = *cell;
            let changed = diagonal + usize::from(from != to);
            left = changed.min(above + 1).min(left + 1);
            *cell = left;
            diagonal = above;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found() {
        let near = |word| nearest(Key::ALL.into_iter(), word).map(Key::name);
        assert_eq!(near("desciption"), Some("description"));
        assert_eq!(near("colour"), Some("color"));
        assert_eq!(near("strem"), Some("stream"));
        assert_eq!(near("Level"), Some("level"));
        assert_eq!(near("name"), None);
        assert_eq!(near("tensor"), None);
        assert_eq!(edits("abc", "abc"), 0);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", "xbcd"), 2);
    }
}
