//! The periods in which a session was stopped. A record that is read long after it was made is discarded if it is from such a period.
//!
//! The session adds a period when it stops, and ends it when it starts again. The collector reads them.

use std::sync::Mutex;

use crate::clock::now_ns;
use crate::lock::lock;

/// The most recent periods in which a session was stopped: begin and end by the host's clock.
#[derive(Default)]
pub struct Pauses(Mutex<Vec<(i64, i64)>>);

impl Pauses {
    const MOST: usize = 64;

    pub fn begin(&self) {
        let mut pauses = lock(&self.0);
        if pauses.len() == Self::MOST {
            pauses.remove(0);
        }
        pauses.push((now_ns(), i64::MAX));
    }

    pub fn end(&self) {
        let mut pauses = lock(&self.0);
        if let Some((_, end_ns)) = pauses.last_mut() {
            *end_ns = now_ns();
        }
    }

    pub fn has(&self, host_ns: i64) -> bool {
        let pauses = lock(&self.0);
        pauses.iter().any(|(begin_ns, end_ns)| (*begin_ns..*end_ns).contains(&host_ns))
    }
}
