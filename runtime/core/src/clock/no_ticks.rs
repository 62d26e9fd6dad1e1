//! Where the processor has no time stamp counter that this crate knows, or nothing is recorded: the clock is the kernel's.

/// See `ticks.rs`.
#[derive(Debug)]
pub struct Ticks;

#[inline(always)]
pub(super) fn now_ns() -> Option<i64> {
    None
}

impl Ticks {
    pub fn start() -> Ticks {
        Ticks
    }

    pub fn compare(&self) {}
}
