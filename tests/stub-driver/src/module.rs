//! Modules, and warpline's own kernels: known by their names, and run as their text says. Their memory is the program's.

use std::ffi::CStr;

use crate::clock;
use crate::code::Code;
use crate::driver::{Driver, EventState, StreamId};
use crate::graph::{Kind, run};
use crate::moment::Moment;
use crate::table::Handle;

/// How long a stamp takes.
const STAMP_NS: i64 = 2_000;

/// The longest time for which an answer is held back until its own time.
const SOON_NS: i64 = 1_000_000;

/// Slots of a ring of stamps.
const SLOTS: u64 = 1 << 17;

/// How long a kernel takes that measures a peak, however much it copies or computes.
const PEAK_NS: i64 = 1_000_000;

const NAMES: [&CStr; 7] = [
    c"warpline_stamp",
    c"warpline_anchor",
    c"warpline_spin",
    c"warpline_peak_copy",
    c"warpline_peak_fma",
    c"spin",
    c"null_kernel",
];

#[derive(Default)]
pub struct Modules {
    /// The number of stamps that each module has written.
    counters: Vec<u64>,
    functions: Vec<Function>,
    /// Stamps that are kept back: when, and what.
    held: Option<Vec<(i64, Handle, [u64; 2])>>,
    pub stamps: u64,
}

#[derive(Clone, Copy)]
pub struct Function {
    module: usize,
    name: &'static CStr,
}

const MODULES: Handle = 0x7100_0000;
const FUNCTIONS: Handle = 0x7200_0000;
const STRIDE: usize = 64;

impl Function {
    pub fn c_name(self) -> *const std::ffi::c_char {
        self.name.as_ptr()
    }

    /// How many parameters it takes.
    pub fn parameters(self) -> usize {
        match self.name.to_bytes() {
            b"null_kernel" => 0,
            b"warpline_spin" | b"spin" => 1,
            _ => 2,
        }
    }
}

impl Modules {
    pub fn load(&mut self) -> Handle {
        self.counters.push(0);
        MODULES + (self.counters.len() - 1) * STRIDE
    }

    pub fn get(&mut self, module: Handle, name: &CStr) -> Result<Handle, Code> {
        let module = module.checked_sub(MODULES).map(|at| at / STRIDE).filter(|at| *at < self.counters.len());
        let module = module.ok_or(Code::INVALID_HANDLE)?;
        let name = NAMES.into_iter().find(|known| *known == name).ok_or(Code::INVALID_VALUE)?;
        self.functions.push(Function { module, name });
        Ok(FUNCTIONS + (self.functions.len() - 1) * STRIDE)
    }

    pub fn function(&self, function: Handle) -> Option<Function> {
        self.functions.get(function.checked_sub(FUNCTIONS)? / STRIDE).copied()
    }
}

impl Driver {
    /// Launches, or captures, a kernel of a module.
    pub fn launch_own(&mut self, stream: StreamId, function: Handle, parameters: [u64; 2]) -> Result<(), Code> {
        let known = self.modules.function(function).ok_or(Code::INVALID_HANDLE)?;
        let ns = match known.name.to_bytes() {
            b"warpline_stamp" => STAMP_NS,
            b"warpline_spin" | b"spin" => parameters[0] as i64,
            b"warpline_peak_copy" | b"warpline_peak_fma" => PEAK_NS,
            _ => 0,
        };
        let is_captured = self.stream_mut(stream)?.capture.is_some();
        let begin = self.stream_mut(stream)?.free.next(clock::now_ns());
        self.launch(stream, ns, Kind::Own(function, parameters))?;
        if !is_captured {
            self.write_own(begin.at_ns, function, parameters);
        }
        Ok(())
    }

    /// Runs an executable graph, and records its events. What its stamps write is there at once, with the times at which they will be.
    pub fn launch_graph(&mut self, exec: Handle, stream: StreamId) -> Result<(), Code> {
        if self.capture_of_work(stream)?.is_some() {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        let steps = self.execs.get(exec)?.steps.clone();
        let of = self.stream_mut(stream)?;
        of.free = of.free.next(clock::now_ns());
        let (mut written, mut recorded) = (Vec::new(), Vec::new());
        let end_ns = run(&steps, of.free.at_ns, &mut |at_ns, kind| match kind {
            Kind::Own(function, parameters) => written.push((at_ns, function, parameters)),
            Kind::Event(event) => recorded.push((at_ns, event)),
            _ => {}
        });
        let behind = of.free.clone();
        of.free.at_ns = end_ns;
        for (at_ns, event) in recorded {
            self.events.get(event)?.state = EventState::Recorded(Moment { at_ns, ..behind.clone() });
        }
        written.sort_by_key(|(at_ns, ..)| *at_ns);
        for (at_ns, function, parameters) in written {
            self.write_own(at_ns, function, parameters);
        }
        Ok(())
    }

    pub fn hold_stamps(&mut self, hold: bool) {
        if hold {
            self.modules.held.get_or_insert_default();
            return;
        }
        let mut held = self.modules.held.take().unwrap_or_default();
        held.sort_by_key(|(at_ns, ..)| *at_ns);
        held.into_iter().for_each(|(at_ns, function, parameters)| self.write_own(at_ns, function, parameters));
    }

    fn write_own(&mut self, at_ns: i64, function: Handle, parameters: [u64; 2]) {
        let Some(known) = self.modules.function(function) else { return };
        let time = self.clock.timestamp_ns(at_ns) as u64 & ((1 << 48) - 1);
        let [place, number] = parameters;
        match known.name.to_bytes() {
            b"warpline_stamp" => {
                if let Some(held) = &mut self.modules.held {
                    return held.push((at_ns, function, parameters));
                }
                self.modules.stamps += 1;
                let counter = &mut self.modules.counters[known.module];
                let stamp = *counter;
                *counter += 1;
                let slot = place + stamp % SLOTS * 16;
                let lap = stamp / SLOTS % (1 << 15);
                write(slot, lap << 48 | time);
                write(slot + 8, number << 32 | u64::from((stamp as u32).wrapping_add(1)));
            }
            b"warpline_anchor" => {
                // An answer becomes visible at its own time: the previous anchor may still be running.
                while (1..SOON_NS).contains(&(at_ns - clock::now_ns())) {
                    std::hint::spin_loop();
                }
                write(place, number << 48 | time);
            }
            _ => {}
        }
    }
}

fn write(address: u64, word: u64) {
    // SAFETY: the program says that it has registered this memory, and that it looks at it through atomics alone.
    unsafe { (*(address as *const std::sync::atomic::AtomicU64)).store(word, std::sync::atomic::Ordering::Release) }
}
