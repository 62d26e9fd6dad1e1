//! The names of the options, and the closest name for an unknown word.
//!
//! `options` defines which options each macro takes, and parses them.

macro_rules! keys {
    ($($key:ident $name:literal $usage:literal;)*) => {
        /// An option by its name.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Key { $($key),* }

        /// Each option with its name, and as the user writes it; in the order of [`Key`].
        const OPTIONS: &[(Key, &str, &str)] = &[$((Key::$key, $name, $usage)),*];
    };
}

keys! {
    Stream "stream" "stream = <expression>";
    Description "description" "description = \"…\"";
    Fields "fields" "fields(name = <expression>, …)";
    Level "level" "level = coarse` or `level = fine";
    Lane "lane" "lane = \"…\"` or `lane = <expression>";
    Color "color" "color = 0xRRGGBB";
    Err "err" "err";
    Label "label" "label = <expression>";
    Begin "begin" "begin = stream` or `begin = launch";
    Step "step" "step` or `step = <expression>";
    Bytes "bytes" "bytes = <expression>";
    Flops "flops" "flops = <expression>";
    Kind "kind" "kind = gpu`, `kind = host` or `kind = collective";
    Count "count" "count = <expression>";
    CountOut "count_out" "count_out = <expression>";
    Dtype "dtype" "dtype = f32` or `dtype = \"bf16\"";
    Group "group" "group = <expression>";
    Root "root" "root = <expression>";
    Peer "peer" "peer = <expression>";
    Op "op" "op = \"sum\"";
    Seq "seq" "seq = <expression>";
    InSplit "in_split" "in_split = <expression>";
    OutSplit "out_split" "out_split = <expression>";
    IsAsync "is_async" "is_async = <expression>";
    Infer "infer" "infer = none";
    Crate "crate" "crate = <path>";
}

impl Key {
    pub fn named(name: &str) -> Option<Key> {
        OPTIONS.iter().find(|(_, known, _)| *known == name).map(|(key, ..)| *key)
    }

    pub fn name(self) -> &'static str {
        OPTIONS[self as usize].1
    }

    /// The option as the user writes it.
    pub fn usage(self) -> &'static str {
        OPTIONS[self as usize].2
    }
}

/// The options of a mark. Each macro leaves some out.
pub const MARK: &[Key] = &[
    Key::Infer,
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
    Key::Crate,
];

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
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_key_in_its_place() {
        assert!(OPTIONS.iter().enumerate().all(|(place, (key, ..))| *key as usize == place));
    }

    #[test]
    fn the_nearest_key_is_found() {
        let near = |word| nearest(OPTIONS.iter().map(|(key, ..)| *key), word).map(Key::name);
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
