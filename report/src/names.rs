//! Texts of a report's figures, each kept once, by number. Memory is bounded.

use std::collections::HashMap;
use std::sync::Arc;

/// The most bytes of texts that are kept.
pub const MAX_TEXTS: usize = 256 << 20;

/// The approximate memory of an entry without its text.
const ENTRY: usize = 96;

/// The number of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u32);

impl From<Name> for u64 {
    fn from(Name(number): Name) -> u64 {
        number.into()
    }
}

/// The texts by number.
pub struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, Name>,
    left: usize,
}

/// The texts take more than [`MAX_TEXTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyNames;

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
    ///
    /// # Errors
    /// There is no memory left for it.
    pub fn number(&mut self, text: &str) -> Result<Name, TooManyNames> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        self.spend(text.len())?;
        let (number, text) = (Name(self.texts.len() as u32), Arc::from(text));
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        Ok(number)
    }

    /// Returns the number of a text, or that of all further ones if it is new and there is no room for it.
    pub fn number_if(&mut self, text: &str, has_room: bool) -> Name {
        match self.numbers.get(text) {
            Some(number) => *number,
            None if has_room => self.number(text).unwrap_or(Name::MORE),
            None => Name::MORE,
        }
    }

    /// Returns how many texts there are.
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    /// Takes the memory of an entry elsewhere, with so many bytes.
    ///
    /// # Errors
    /// There is not so much left.
    pub fn spend(&mut self, bytes: usize) -> Result<(), TooManyNames> {
        self.left = self.left.checked_sub(bytes + ENTRY).ok_or(TooManyNames)?;
        Ok(())
    }

    /// Returns the text of a number.
    pub fn text(&self, name: Name) -> &Arc<str> {
        self.texts.get(name.0 as usize).unwrap_or(&self.texts[0])
    }
}
