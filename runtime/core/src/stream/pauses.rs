//! When a session was stopped: what is read long after it was made is left out by that.
//!
//! The session writes it down where it stops and starts; the collector asks.

use std::sync::Mutex;

use crate::clock::now_ns;
use crate::lock::lock;

/// When a session was stopped: the begin and the end of the latest times, on the host's clock. For what is read long after it
/// was made.
#[derive(Default)]
pub(crate) struct Pauses(Mutex<Vec<(i64, i64)>>);

impl Pauses {
    const MOST: usize = 64;

    pub(crate) fn begin(&self) {
        let mut pauses = lock(&self.0);
        if pauses.len() == Self::MOST {
            pauses.remove(0);
        }
        pauses.push((now_ns(), i64::MAX));
    }

    pub(crate) fn end(&self) {
        let mut pauses = lock(&self.0);
        if let Some((_, end_ns)) = pauses.last_mut() {
            *end_ns = now_ns();
        }
    }

    pub(crate) fn has(&self, host_ns: i64) -> bool {
        let pauses = lock(&self.0);
        pauses.iter().any(|(begin_ns, end_ns)| (*begin_ns..*end_ns).contains(&host_ns))
    }
}
