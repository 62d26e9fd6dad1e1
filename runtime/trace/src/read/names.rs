//! Texts of traces, each kept once, by number. Memory is bounded.

use std::collections::HashMap;
use std::sync::Arc;

use super::Fault;

/// The most bytes of texts that are kept for all traces together.
pub(super) const MAX_TEXTS: usize = 256 << 20;

/// The approximate memory of an entry without its text.
const ENTRY: usize = 96;

/// The number of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u32);

/// The texts by number.
pub struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Name>,
    left: usize,
}

impl Name {
    /// What further names are counted under where a table has no room for them.
    pub const MORE: Name = Name(1);
}

impl Default for Names {
    fn default() -> Names {
        let texts: Vec<Arc<str>> = ["", "(more)"].map(Arc::from).into();
        let numbers = texts.iter().cloned().zip([Name::default(), Name::MORE]).collect();
        Names { texts, numbers, left: MAX_TEXTS }
    }
}

impl Names {
    /// Returns the number of a text.
    pub(super) fn number(&mut self, text: &str) -> Result<Name, Fault> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        self.spend(text.len())?;
        let (number, text) = (Name(self.texts.len() as u32), Arc::from(text));
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        Ok(number)
    }

    /// Takes the memory of an entry elsewhere, with so many bytes.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes + ENTRY).ok_or(Fault::TooManyNames)?;
        Ok(())
    }

    /// Returns the text of a number.
    pub fn text(&self, name: Name) -> &Arc<str> {
        self.texts.get(name.0 as usize).unwrap_or(&self.texts[0])
    }
}
