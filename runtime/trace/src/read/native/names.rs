//! The interned names of a Perfetto trace: each sequence of packets has its own.

use std::collections::HashMap;
use std::io;

use super::proto::{Interned, Name, Packet, STATE_CLEARED};
use crate::read::budget::MemoryBudget;
use crate::read::document::Refused;

/// The memory limit for interned names.
const NAMES: usize = 256 << 20;
/// The approximate memory of an entry without its name.
const ENTRY: usize = 64;

/// The names of one sequence, by their ids.
#[derive(Default)]
pub(super) struct Names {
    pub(super) categories: HashMap<u64, String>,
    pub(super) events: HashMap<u64, String>,
    pub(super) annotations: HashMap<u64, String>,
    pub(super) specifications: HashMap<u64, String>,
    pub(super) texts: HashMap<u64, String>,
    pub(super) kernels: HashMap<u64, String>,
    /// The device, and the counters by their ids.
    pub(super) counters: HashMap<u64, (i32, HashMap<u32, String>)>,
}

/// The names of all sequences.
pub(super) struct AllNames {
    sequences: HashMap<u32, Names>,
    budget: MemoryBudget,
}

impl AllNames {
    pub(super) fn new() -> AllNames {
        AllNames { sequences: HashMap::new(), budget: MemoryBudget::new(NAMES) }
    }

    /// Takes what a packet interns, and returns the names of its sequence.
    ///
    /// # Errors
    /// The names exceed the memory limit.
    pub(super) fn take(&mut self, packet: &mut Packet) -> io::Result<&Names> {
        let names = self.sequences.entry(packet.sequence).or_default();
        if packet.flags & STATE_CLEARED != 0 {
            *names = Names::default();
        }
        if let Some(interned) = packet.interned.take() {
            names.add(interned, &self.budget).ok_or_else(|| {
                io::Error::other(Refused(format!(
                    "more interned names than {} MiB; is this a trace of PyTorch's profiler?",
                    NAMES >> 20
                )))
            })?;
        }
        Ok(names)
    }
}

impl Names {
    fn add(&mut self, interned: Interned, budget: &MemoryBudget) -> Option<()> {
        add(&mut self.categories, interned.categories, budget)?;
        add(&mut self.events, interned.event_names, budget)?;
        add(&mut self.annotations, interned.annotation_names, budget)?;
        add(&mut self.specifications, interned.specifications, budget)?;
        add(&mut self.texts, interned.texts, budget)?;
        let kernels = interned.kernels.into_iter().map(|kernel| {
            let name = if kernel.demangled.is_empty() { kernel.name } else { kernel.demangled };
            Name { iid: kernel.iid, name }
        });
        add(&mut self.kernels, kernels.collect(), budget)?;
        for counters in interned.counters {
            let specs = counters.descriptor.map_or_else(Vec::new, |descriptor| descriptor.specs);
            let bytes: usize = specs.iter().map(|spec| spec.name.len() + ENTRY).sum();
            budget.spend(bytes + ENTRY).then_some(())?;
            let names = specs.into_iter().map(|spec| (spec.id, spec.name)).collect();
            self.counters.insert(counters.iid, (counters.gpu, names));
        }
        Some(())
    }
}

/// None if the budget is exceeded.
fn add(to: &mut HashMap<u64, String>, names: Vec<Name>, budget: &MemoryBudget) -> Option<()> {
    for name in names {
        budget.spend(name.name.len() + ENTRY).then_some(())?;
        to.insert(name.iid, name.name);
    }
    Some(())
}
