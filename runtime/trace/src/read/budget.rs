//! How much memory the contents of a file may take. What keeps names and rows of a trace, such as `native` and the joiner of annotations, keeps them
//! within it.

use std::cell::Cell;
use std::rc::Rc;

/// A budget for the memory that the contents of a file take, so that no file can exceed the limit.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Rc<Cell<usize>>);

impl MemoryBudget {
    pub fn new(bytes: usize) -> MemoryBudget {
        MemoryBudget(Rc::new(Cell::new(bytes)))
    }

    /// Whether so much was left.
    pub fn spend(&self, bytes: usize) -> bool {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}
