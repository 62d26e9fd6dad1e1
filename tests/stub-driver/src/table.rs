//! Handles and what they stand for. A handle is a number that looks like an address; it is never dereferenced.

use std::collections::{HashMap, HashSet};

use crate::code::Code;

/// `CUstream`, `CUevent`, `CUcontext`, `CUgraph`: as wide as a pointer, passed like one.
pub type Handle = usize;

/// How far apart handles are: as objects of a real driver would be.
const STRIDE: usize = 64;

/// The live objects of one kind.
pub struct Table<T> {
    live: HashMap<Handle, T>,
    /// Handles whose context is gone.
    orphans: HashSet<Handle>,
    /// Destroyed handles that the next objects get, the last one first.
    free: Vec<Handle>,
    next: Handle,
    reuses: bool,
    misuse: u64,
    orphan_uses: u64,
}

impl<T> Table<T> {
    /// A kind whose handles begin at `base`. Those that `reuses` says give a destroyed handle to the next object.
    pub fn new(base: Handle, reuses: bool) -> Table<T> {
        Table {
            live: HashMap::new(),
            orphans: HashSet::new(),
            free: Vec::new(),
            next: base,
            reuses,
            misuse: 0,
            orphan_uses: 0,
        }
    }

    pub fn insert(&mut self, object: T) -> Handle {
        let handle = self.free.pop().unwrap_or_else(|| {
            self.next += STRIDE;
            self.next
        });
        self.live.insert(handle, object);
        handle
    }

    /// The object, or why there is none; a use of a handle that is none is counted.
    pub fn get(&mut self, handle: Handle) -> Result<&mut T, Code> {
        match self.live.get_mut(&handle) {
            Some(object) => Ok(object),
            None if self.orphans.contains(&handle) => {
                self.orphan_uses += 1;
                Err(Code::CONTEXT_IS_DESTROYED)
            }
            None => {
                self.misuse += 1;
                Err(Code::INVALID_HANDLE)
            }
        }
    }

    /// The object if there is one; nothing is counted.
    pub fn peek(&self, handle: Handle) -> Option<&T> {
        self.live.get(&handle)
    }

    pub fn remove(&mut self, handle: Handle) -> Result<T, Code> {
        self.get(handle)?;
        if self.reuses {
            self.free.push(handle);
        }
        self.live.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Removes what went down with its context; returns how much that was.
    pub fn orphan(&mut self, mut is_gone: impl FnMut(&T) -> bool) -> u64 {
        let gone: Vec<Handle> =
            self.live.iter().filter(|(_, object)| is_gone(object)).map(|(&handle, _)| handle).collect();
        for handle in &gone {
            self.live.remove(handle);
            self.orphans.insert(*handle);
        }
        gone.len() as u64
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut()
    }

    pub fn count(&self) -> u64 {
        self.live.len() as u64
    }

    /// Uses of handles that were destroyed or never made.
    pub fn misuse(&self) -> u64 {
        self.misuse
    }

    /// Uses of handles whose context is gone.
    /// Whether it was a handle of something that went with what it belonged to.
    pub fn is_orphan(&self, handle: Handle) -> bool {
        self.orphans.contains(&handle)
    }

    pub fn orphan_uses(&self) -> u64 {
        self.orphan_uses
    }

    /// A table without objects and counts, in which no handle of this one comes back.
    pub fn emptied(&self) -> Table<T> {
        Table::new(self.next, self.reuses)
    }
}
