//! Which files a merged file replaces: its metadata lists the name of each and a hash of its bytes. The name alone is
//! not enough, because a rank that is started again may write a new file under the name of one that was removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use serde::{Deserialize, Serialize};

use crate::reading::guarded;

/// The key in the metadata of a file made by `compact`: the names of the files whose rows it has, and the hashes of
/// each.
pub const COMPACTED: &str = "warpline.compacted";

/// The files whose rows a merged file has, or several of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged(BTreeMap<String, Hashes>);

/// A list that was merged again may have two files of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Hashes {
    /// As earlier versions write it.
    One(String),
    Some(BTreeSet<String>),
}

impl Merged {
    /// The list of a file; empty if it has none.
    pub fn of_file(path: &Path) -> Self {
        let list = || {
            let reader = File::open(path).ok().and_then(|file| SerializedFileReader::new(file).ok())?;
            let facts = reader.metadata().file_metadata().key_value_metadata()?;
            let list = facts.iter().find(|fact| fact.key == COMPACTED)?.value.clone()?;
            serde_json::from_str(&list).ok()
        };
        guarded(|| Ok(list().unwrap_or_default())).unwrap_or_default()
    }

    /// The list in the form of the metadata.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Adds a file.
    pub fn add(&mut self, name: &str, hash: String) {
        let known = self.0.entry(name.to_owned()).or_insert_with(|| Hashes::Some(BTreeSet::new()));
        match known {
            Hashes::One(one) => *known = Hashes::Some([std::mem::take(one), hash].into()),
            Hashes::Some(all) => drop(all.insert(hash)),
        }
    }

    /// Adds all of another list.
    pub fn extend(&mut self, other: Merged) {
        for (name, hashes) in other.0 {
            match hashes {
                Hashes::One(hash) => self.add(&name, hash),
                Hashes::Some(all) => all.into_iter().for_each(|hash| self.add(&name, hash)),
            }
        }
    }

    /// Whether a file of this name is in the list.
    pub fn has_name(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether a file of this name with these bytes is in the list.
    pub fn has(&self, name: &str, hash: &str) -> bool {
        match self.0.get(name) {
            Some(Hashes::One(one)) => one == hash,
            Some(Hashes::Some(all)) => all.contains(hash),
            None => false,
        }
    }

    /// Whether a file with these bytes is in the list under any name.
    pub fn has_bytes(&self, hash: &str) -> bool {
        self.0.keys().any(|name| self.has(name, hash))
    }
}

/// A hash of a file's bytes: FNV-1a of each eight of them, to distinguish files with the same name.
pub fn hash(bytes: &[u8]) -> String {
    let of = |hash: u64, part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    };
    let hash = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64, of);
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_an_earlier_version_is_carried_over_and_a_name_may_have_two_hashes() {
        let old: Merged = serde_json::from_str(r#"{"rank-00001.parquet":"0a","rank-00002.parquet":"0b"}"#).unwrap();
        let mut all = Merged::default();
        all.add("rank-00001.parquet", "0c".to_owned());
        all.extend(old);
        let text = all.to_json().unwrap();
        assert_eq!(text, r#"{"rank-00001.parquet":["0a","0c"],"rank-00002.parquet":["0b"]}"#);
        assert_eq!(serde_json::from_str::<Merged>(&text).unwrap(), all);
        assert!(all.has("rank-00001.parquet", "0a") && all.has("rank-00001.parquet", "0c"));
        assert!(!all.has("rank-00002.parquet", "0a") && all.has_bytes("0b") && !all.has_bytes("0d"));
    }
}
