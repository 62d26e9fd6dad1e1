//! The names in the drawings of a page, each once. The name of a zone whose end is not timed contains that fact,
//! because a drawing shows a length.

use std::collections::HashMap;

use crate::trace::{Name, Names};

/// The name of time in which it is not known whether a zone still ran, as on the critical path.
const END_NOT_TIMED: &str = "(end not timed)";

#[derive(Default)]
pub(super) struct Texts {
    numbers: HashMap<(Name, bool), usize>,
    end_not_timed: Option<usize>,
    steps: HashMap<u64, usize>,
    texts: Vec<String>,
}

impl Texts {
    /// Returns the place of a name, for a length that may be only a bound.
    pub(super) fn of_slice(&mut self, name: Name, is_bounded: bool, names: &Names) -> usize {
        *self.numbers.entry((name, is_bounded)).or_insert_with(|| {
            let text = names.text(name);
            self.texts.push(if is_bounded { format!("{text} {END_NOT_TIMED}") } else { text.to_string() });
            self.texts.len() - 1
        })
    }

    /// Returns the place of the name of a step.
    pub(super) fn of_step(&mut self, number: u64) -> usize {
        *self.steps.entry(number).or_insert_with(|| {
            self.texts.push(format!("step {number}"));
            self.texts.len() - 1
        })
    }

    /// Returns the place of the name of time in which a zone may have ended.
    pub(super) fn end_not_timed(&mut self) -> usize {
        *self.end_not_timed.get_or_insert_with(|| {
            self.texts.push(END_NOT_TIMED.to_owned());
            self.texts.len() - 1
        })
    }

    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
