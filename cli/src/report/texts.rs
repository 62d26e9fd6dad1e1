//! The names in the drawings of a page, each once.

use std::collections::HashMap;

use crate::trace::{Name, Names};

#[derive(Default)]
pub(super) struct Texts {
    numbers: HashMap<Name, usize>,
    texts: Vec<String>,
}

impl Texts {
    /// Returns the place of a name.
    pub(super) fn number(&mut self, name: Name, names: &Names) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.texts.push(names.text(name).to_string());
            self.texts.len() - 1
        })
    }

    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
