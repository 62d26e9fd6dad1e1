//! File descriptors that a forked child must not keep: those of locked files, and of sockets.
//!
//! A file lock and a listening socket end when the last descriptor is closed, and a child has a copy of each. In a child, each of
//! them is therefore redirected to a pipe whose other end is closed: the number stays taken, and its owner there may close it.
//!
//! A file that another thread opens at the moment of the fork is not registered yet; the child keeps its copy.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use super::handler;

/// The descriptor numbers, in blocks that are never freed. They have no lock, so a child finds them in a consistent state.
static FIRST: Block = Block::new();

struct Block {
    numbers: [AtomicI32; 32],
    next: AtomicPtr<Block>,
}

/// The value for no descriptor.
const NONE: RawFd = -1;

impl Block {
    const fn new() -> Block {
        Block { numbers: [const { AtomicI32::new(NONE) }; 32], next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Block> {
        // SAFETY: it is null, or was leaked by `add_block`.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn add_block(&self) -> &'static Block {
        let block = Box::into_raw(Box::new(Block::new()));
        match self.next.compare_exchange(ptr::null_mut(), block, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it was just created, and is never freed.
            Ok(_) => unsafe { &*block },
            Err(other) => {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(block) });
                // SAFETY: another thread leaked it.
                unsafe { &*other }
            }
        }
    }
}

/// Keeps the descriptor out of forked children while it exists. Drop it before the descriptor is closed.
#[derive(Debug)]
pub struct NotInChildren {
    place: &'static AtomicI32,
    number: RawFd,
}

impl NotInChildren {
    pub fn new(descriptor: &impl AsRawFd) -> NotInChildren {
        handler::in_children(leave_to_parent);
        let number = descriptor.as_raw_fd();
        let mut block = &FIRST;
        loop {
            let free = block
                .numbers
                .iter()
                .find(|place| place.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Relaxed).is_ok());
            match free {
                Some(place) => return NotInChildren { place, number },
                None => block = block.next().unwrap_or_else(|| block.add_block()),
            }
        }
    }
}

impl Drop for NotInChildren {
    fn drop(&mut self) {
        // In a child, the entry is already empty.
        let _ = self.place.compare_exchange(self.number, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Redirects the registered descriptors in a child, before anything else runs there.
fn leave_to_parent() {
    let mut ends: Option<[RawFd; 2]> = None;
    let mut block = Some(&FIRST);
    while let Some(here) = block {
        for place in &here.numbers {
            let number = place.swap(NONE, Ordering::Relaxed);
            if number == NONE {
                continue;
            }
            if ends.is_none() {
                ends = pipe();
            }
            let Some([end, _]) = ends else { continue };
            // SAFETY: the calls take numbers; the descriptor is registered here, and was open when the process forked.
            unsafe {
                libc::dup2(end, number);
                libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        block = here.next();
    }
    for end in ends.into_iter().flatten() {
        // SAFETY: it was created here, and nothing else uses it.
        unsafe { libc::close(end) };
    }
}

fn pipe() -> Option<[RawFd; 2]> {
    let mut ends = [NONE; 2];
    // SAFETY: there is room for both ends.
    (unsafe { libc::pipe(ends.as_mut_ptr()) } == 0).then_some(ends)
}
