//! The interned names of a Perfetto trace: each sequence of packets has its own.

use std::collections::HashMap;
use std::io;

use super::messages::{self, ARGUMENTS, COUNTERS, KERNELS};
use super::packets::Stop;
use crate::read::budget::MemoryBudget;
use crate::read::document::Refused;
use crate::read::fields::Interned;
use crate::read::parts::{self, Packet};
use crate::write::perfetto::proto::interned;

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
    pub(super) arguments: HashMap<u64, String>,
    /// The device, and the counters by their ids.
    pub(super) counters: HashMap<u64, (i32, HashMap<u32, String>)>,
}

/// The names of all sequences.
pub(super) struct AllNames {
    sequences: HashMap<u64, Names>,
    budget: MemoryBudget,
}

impl Interned for Names {
    fn name(&self, iid: u64) -> Option<&str> {
        self.annotations.get(&iid).map(String::as_str)
    }

    fn text(&self, iid: u64) -> Option<&str> {
        self.texts.get(&iid).map(String::as_str)
    }
}

impl AllNames {
    pub(super) fn new() -> AllNames {
        AllNames { sequences: HashMap::new(), budget: MemoryBudget::new(NAMES) }
    }

    /// Takes what a packet interns, and returns the names of its sequence.
    ///
    /// # Errors
    /// The names exceed the memory limit, or a message is cut.
    pub(super) fn take(&mut self, packet: &Packet<'_>) -> Result<&Names, Stop> {
        let names = self.sequences.entry(packet.sequence).or_default();
        if packet.is_cleared {
            *names = Names::default();
        }
        for entry in packet.interned() {
            names.add(&entry?, &self.budget)?;
        }
        Ok(names)
    }
}

impl Names {
    fn add(&mut self, entry: &parts::Interned<'_>, budget: &MemoryBudget) -> Result<(), Stop> {
        let parts::Interned { number, iid, text, message } = *entry;
        let (to, name) = match number {
            interned::EVENT_CATEGORIES => (&mut self.categories, text.text()),
            interned::EVENT_NAMES => (&mut self.events, text.text()),
            interned::ANNOTATION_NAMES => (&mut self.annotations, text.text()),
            interned::GPU_SPECIFICATIONS => (&mut self.specifications, text.text()),
            interned::ANNOTATION_STRINGS => (&mut self.texts, text.text()),
            KERNELS => (&mut self.kernels, messages::kernel(message)),
            ARGUMENTS => (&mut self.arguments, text.text()),
            COUNTERS => {
                let (gpu, specs) = messages::counters(message);
                spend(budget, 0)?;
                let mut names = HashMap::new();
                for spec in specs {
                    let (id, name) = spec?;
                    spend(budget, name.len())?;
                    names.insert(id, name.into_owned());
                }
                self.counters.insert(iid, (gpu, names));
                return Ok(());
            }
            _ => return Ok(()),
        };
        spend(budget, name.len())?;
        to.insert(iid, name.into_owned());
        Ok(())
    }
}

/// Takes the memory of an entry with a name of so many bytes.
fn spend(budget: &MemoryBudget, bytes: usize) -> Result<(), Stop> {
    if budget.spend(bytes + ENTRY) {
        return Ok(());
    }
    let text = format!("more interned names than {} MiB; is this a trace of PyTorch's profiler?", NAMES >> 20);
    Err(Stop::Full(io::Error::other(Refused(text))))
}
