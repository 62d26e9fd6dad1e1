//! When a stream gets to a point of its work, as far as that can be said yet.
//!
//! Behind a gate (a hung kernel, a host function) nobody knows: time stands still there. When the gate opens, all that
//! waits behind it moves by as long as it was shut.

/// Names a gate.
pub type GateId = u64;

/// A point of a stream's work.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Host ns at which the stream gets there; when it is behind gates, as if they had been open.
    pub at_ns: i64,
    /// The gates that are still shut before it.
    pub behind: Vec<GateId>,
}

impl Moment {
    /// Whether the stream has got there.
    pub fn is_reached(&self, now_ns: i64) -> bool {
        self.behind.is_empty() && self.at_ns <= now_ns
    }

    /// When work begins that is put behind this moment now.
    pub fn next(&self, now_ns: i64) -> Moment {
        let at_ns = if self.behind.is_empty() { self.at_ns.max(now_ns) } else { self.at_ns };
        Moment { at_ns, behind: self.behind.clone() }
    }

    /// The later of two.
    pub fn join(&mut self, other: &Moment) {
        self.at_ns = self.at_ns.max(other.at_ns);
        for &gate in &other.behind {
            self.shut(gate);
        }
    }

    /// Puts the moment behind a gate.
    pub fn shut(&mut self, gate: GateId) {
        if !self.behind.contains(&gate) {
            self.behind.push(gate);
        }
    }

    /// The gate was open after `delay_ns`.
    pub fn open(&mut self, gate: GateId, delay_ns: i64) {
        if let Some(index) = self.behind.iter().position(|&shut| shut == gate) {
            self.behind.swap_remove(index);
            self.at_ns += delay_ns;
        }
    }
}
