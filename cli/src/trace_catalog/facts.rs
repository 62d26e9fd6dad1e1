//! The facts of a range or a namespace as a trace gives them, checked before they become records.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use warpline_core::catalog::record::{MAX_FIELDS, MAX_NAME, MAX_TEXT};
use warpline_core::catalog::{Kind, Level, NamespaceRecord, RangeRecord};

use super::CatalogError;

/// The facts of a range or a namespace. A fact that the trace does not give is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) description: String,
    pub(super) about: String,
    pub(super) package: String,
    pub(super) kind: String,
    pub(super) level: String,
    pub(super) lane: Option<String>,
    pub(super) color: Option<String>,
    pub(super) fields: AtMost<String, MAX_FIELDS>,
    pub(super) undescribed: AtMost<String, MAX_FIELDS>,
    #[serde(rename = "crate")]
    pub(super) krate: String,
    pub(super) module: String,
    pub(super) version: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl Facts {
    /// # Errors
    /// The first fact that no range has.
    pub(super) fn range(self) -> Result<RangeRecord, CatalogError> {
        self.check()?;
        let damaged = CatalogError::Damaged;
        let kind =
            [Kind::Gpu, Kind::Host, Kind::Collective].map(Kind::as_str).into_iter().find(|kind| *kind == self.kind);
        let level = [Level::Coarse, Level::Fine].map(Level::as_str).into_iter().find(|level| *level == self.level);
        if !self.name.starts_with(&self.namespace) {
            return Err(damaged("a range outside of its namespace"));
        }
        Ok(RangeRecord {
            kind: kind.ok_or(damaged("an unknown kind of range"))?,
            level: level.ok_or(damaged("an unknown level"))?,
            color: self
                .color
                .as_deref()
                .map(|color| parsed(color).ok_or(damaged("a color that is not `#rrggbb`")))
                .transpose()?,
            name: self.name,
            namespace: self.namespace,
            description: self.description,
            lane: self.lane.filter(|lane| !lane.is_empty()),
            fields: self.fields.0,
            undescribed: self.undescribed.0,
            module: self.module,
            version: self.version,
            file: self.file,
            line: self.line,
        })
    }

    /// # Errors
    /// The first fact that no namespace has.
    pub(super) fn declaration(self) -> Result<NamespaceRecord, CatalogError> {
        self.check()?;
        Ok(NamespaceRecord {
            name: self.name,
            about: self.about,
            package: self.package,
            // The JSON of a catalog has no module of a namespace, only its crate.
            module: if self.module.is_empty() { self.krate } else { self.module },
            version: self.version,
            file: self.file,
            line: self.line,
        })
    }

    fn check(&self) -> Result<(), CatalogError> {
        let lists = self.fields.0.iter().chain(&self.undescribed.0);
        let names = [&self.name, &self.namespace].into_iter().chain(&self.lane).chain(lists);
        let texts =
            [&self.description, &self.about, &self.package, &self.krate, &self.module, &self.version, &self.file];
        if self.name.is_empty() {
            return Err(CatalogError::Damaged("an entry without a name"));
        }
        if names.into_iter().any(|name| name.len() > MAX_NAME) {
            return Err(CatalogError::Damaged("a name of more than 1,024 bytes"));
        }
        if texts.iter().any(|text| text.len() > MAX_TEXT) {
            return Err(CatalogError::Damaged("a text of more than 64 KiB"));
        }
        Ok(())
    }
}

/// Parses `#rrggbb`.
fn parsed(color: &str) -> Option<u32> {
    let digits = color.strip_prefix('#').filter(|digits| digits.len() == 6 && !digits.starts_with('+'))?;
    u32::from_str_radix(digits, 16).ok()
}

/// A list that is refused if it has more than `N` elements.
pub(super) struct AtMost<T, const N: usize>(pub(super) Vec<T>);

impl<T, const N: usize> Default for AtMost<T, N> {
    fn default() -> Self {
        AtMost(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const N: usize>(Vec<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for List<T, N> {
            type Value = AtMost<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {N} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self::Value, A::Error> {
                while let Some(element) = list.next_element()? {
                    if self.0.len() == N {
                        return Err(serde::de::Error::invalid_length(N + 1, &self));
                    }
                    self.0.push(element);
                }
                Ok(AtMost(self.0))
            }
        }
        deserializer.deserialize_seq(List(Vec::new()))
    }
}
