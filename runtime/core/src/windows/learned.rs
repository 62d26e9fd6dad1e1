//! What a process has learned of its ranges: which of them nest in roots, and which are frames around roots. It is a fact of the
//! program, so it outlives a session.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The expected maximum number of zones in a root, until a root with more zones is seen.
const FEW_CHILDREN: u32 = 16;

pub(super) static LEARNED: Learned = Learned {
    lesson: AtomicU32::new(1),
    news: AtomicU32::new(0),
    most_children: AtomicU32::new(FEW_CHILDREN),
    counted: AtomicU64::new(0),
    counting_ns: AtomicI64::new(0),
};

pub(super) struct Learned {
    /// The version of the knowledge about which ranges nest in others. It increases when that knowledge becomes invalid, and
    /// starts above [`Nesting`]'s zero.
    lesson: AtomicU32,
    /// The number of times that something new was learned: threads that took a zone for a root may have been wrong.
    news: AtomicU32,
    /// The number of zones in the root that contained the most.
    most_children: AtomicU32,
    /// The number of roots that began while roots were counted.
    counted: AtomicU64,
    /// The time in which they were counted, in ns.
    counting_ns: AtomicI64,
}

impl Learned {
    pub(super) fn news(&self) -> u32 {
        self.news.load(Ordering::Relaxed)
    }

    pub(super) fn most_children(&self) -> u32 {
        self.most_children.load(Ordering::Relaxed)
    }

    pub(super) fn see_children(&self, zones: u32) {
        self.most_children.fetch_max(zones, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    pub(super) fn count_root(&self) {
        self.counted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the time in which roots of this process were counted, in ns.
pub fn counting_ns() -> i64 {
    LEARNED.counting_ns.load(Ordering::Relaxed)
}

/// Sets the time in which roots of this process were counted.
pub fn set_counting_ns(ns: i64) {
    LEARNED.counting_ns.store(ns, Ordering::Relaxed);
}

/// The knowledge about where zones of a range begin.
#[derive(Debug, Default)]
pub(crate) struct Nesting(AtomicU32);

/// The value for a range whose zones last so long that roots begin inside them.
const FRAME: u32 = u32::MAX;

impl Nesting {
    pub(super) fn is_inside_roots(&self) -> bool {
        self.0.load(Ordering::Relaxed) == LEARNED.lesson.load(Ordering::Relaxed)
    }

    pub(super) fn is_frame(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FRAME
    }

    /// Records that a zone of the range has begun inside a root.
    pub(super) fn see_inside_root(&self) {
        let lesson = LEARNED.lesson.load(Ordering::Relaxed);
        let known = self.0.load(Ordering::Relaxed);
        if known != lesson && known != FRAME {
            self.0.store(lesson, Ordering::Relaxed);
            LEARNED.news.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that zones of the range contain roots. This invalidates the knowledge about the zones inside them.
    pub(super) fn see_frame(&self) {
        self.0.store(FRAME, Ordering::Relaxed);
        LEARNED.lesson.fetch_add(1, Ordering::Relaxed);
        LEARNED.news.fetch_add(1, Ordering::Relaxed);
    }
}
