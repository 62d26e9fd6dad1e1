//! What the tests have of their own: work for streams, orders to fail, and the account of the calls. Plain integers and C
//! strings; nothing of it is counted as a driver call but `stub_launch` and `stub_launch_fault`, which stand for kernels.

use std::ffi::{CStr, c_char};
use std::fs::OpenOptions;

use crate::call::{Out, Tracer, driver_calls, trace};
use crate::clock;
use crate::code::Code;
use crate::driver::{self, EventCosts, EventState};
use crate::graph::{Condition, ConditionKind, Kind};
use crate::table::Handle;

/// The function of every kernel.
pub const KERNEL: Handle = 0x7000_0000;

driver_calls! {
    /// A kernel that takes `ns` of the stream's time.
    fn stub_launch(stream: Handle, ns: u64) = |driver| {
        let id = driver.resolve(stream)?;
        driver.launch(id, i64::try_from(ns).map_err(|_| Code::INVALID_VALUE)?, Kind::Kernel(KERNEL))
    }

    /// A node whose body runs on a condition.
    fn stub_conditional(stream: Handle) = |driver| {
        let id = driver.resolve(stream)?;
        driver.launch(id, 0, Kind::Conditional(Condition { kind: ConditionKind::If, value: 1, bodies: &[] }))
    }

    /// A kernel that breaks the device with `code` after `ns`: nearly every call returns it from then on.
    fn stub_launch_fault(stream: Handle, ns: u64, code: u32) = |driver| {
        let id = driver.resolve(stream)?;
        driver.launch(id, i64::try_from(ns).map_err(|_| Code::INVALID_VALUE)?, Kind::Kernel(KERNEL))?;
        let end = driver.stream_mut(id)?.free.clone();
        driver.faults.pending.push((end, Code(code)));
        Ok(())
    }
}

/// Makes functions of the tests' own, which are no driver calls.
macro_rules! controls {
    ($(
        $(#[$attribute:meta])*
        fn $symbol:ident($($argument:ident: $type:ty),*) -> $returned:ty = |$driver:ident| $body:block
    )*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($argument: $type),*) -> $returned {
                #[allow(unused_mut, reason = "not every one changes the driver")]
                let mut $driver = driver::lock();
                $body
            }
        )*
    };
}

controls! {
    /// Everything as when the driver was loaded; handles and ids of before do not come back.
    fn stub_reset() -> () = |driver| { driver.reset() }

    /// How often the symbol was called; NULL: how often any was.
    fn stub_calls(symbol: Text) -> u64 = |driver| { driver.journal.count(symbol.get().as_deref(), None) }

    /// The same for one thread, by its `gettid`.
    fn stub_calls_on(symbol: Text, tid: i32) -> u64 = |driver| {
        driver.journal.count(symbol.get().as_deref(), Some(tid))
    }

    /// Copies the log and a NUL into the buffer, as much as fits; returns the length of the whole log.
    fn stub_log(buffer: Out<c_char>, len: usize) -> usize = |driver| {
        let text = driver.journal.text();
        let _ = buffer.put_text(&text, len);
        text.len()
    }

    /// Puts the line `# text` into the log.
    fn stub_mark(text: Text) -> () = |driver| { driver.journal.mark(text.get().unwrap_or_default()) }

    /// Appends every line to this file, too, from now on and at once. 0, or 1 when there can be no such file.
    fn stub_log_to(path: Text) -> u32 = |driver| {
        match OpenOptions::new().create(true).append(true).open(path.get().unwrap_or_default()) {
            Ok(file) => {
                driver.journal.write_to(file);
                0
            }
            Err(_) => 1,
        }
    }

    /// Lets `times` calls of the symbol fail with `code`, after `skip` that do not. The last order for a symbol counts.
    fn stub_fail(symbol: Text, skip: u64, times: u64, code: u32) -> () = |driver| {
        driver.faults.fail(&symbol.get().unwrap_or_default(), skip, times, Code(code));
    }

    /// The next other thread that calls the symbol stops there until `stub_go_on`.
    fn stub_stop_at(symbol: Text) -> () = |driver| { driver::stop_at(driver, symbol.get().unwrap_or_default()) }

    /// Whether a thread stands there.
    fn stub_is_stopped() -> bool = |driver| { driver.is_stopped }

    /// Lets it go on.
    fn stub_go_on() -> () = |driver| { driver::go_on(driver) }

    /// Breaks the device: nearly every call returns `code` from now on, all of them if it is 4; 0 mends it.
    fn stub_break(code: u32) -> () = |driver| { driver.faults.set_device((code != 0).then_some(Code(code))) }

    /// A kernel that hangs, behind what is on the stream. Returns what `stub_release` takes; 0 if there is no such stream.
    fn stub_hold(stream: Handle) -> u64 = |driver| {
        driver.resolve(stream).and_then(|id| driver.shut(id)).unwrap_or(0)
    }

    /// The next stream that is made begins with a kernel that hangs, as one that shares a hardware queue with a stream that
    /// waits. Returns what `stub_release` takes.
    fn stub_hold_next() -> u64 = |driver| { driver.shut_next() }

    /// The device hangs: what comes on any stream that there is waits. Returns what `stub_release` takes.
    fn stub_hold_device() -> u64 = |driver| { driver.shut_all() }

    /// From now on a profiler is told of some calls: of their numbers, where they begin (0) and where they end (1).
    fn stub_trace(tracer: Tracer) -> () = |driver| {
        drop(driver);
        trace(tracer);
    }

    /// What comes behind a timed event on a stream that waits for no other comes so much later: behind `in_ten` of ten events
    /// `busy_ns`, behind the others `quiet_ns`. Events that a thread records in a row are exactly so far apart.
    fn stub_events_take(quiet_ns: i64, busy_ns: i64, in_ten: u64) -> () = |driver| {
        driver.event_costs = EventCosts { quiet_ns, busy_ns, in_ten, recorded: 0, last: None };
    }

    /// Ends a kernel that hangs.
    fn stub_release(hold: u64) -> () = |driver| { driver.open(hold) }

    /// What `cuDriverGetVersion` says.
    fn stub_driver_version(version: i32) -> () = |driver| { driver.version = version }

    /// How many devices there are; 1 at first.
    fn stub_devices(count: i32) -> () = |driver| { driver.devices = count }

    /// How many ns the devices' clock gains each ms against the host's, from now on; 0 at first.
    fn stub_drift(ppm: i64) -> () = |driver| { driver.clock.set_drift(ppm) }

    /// When the event was reached, in ns of CLOCK_BOOTTIME; -1 if it was not.
    fn stub_event_ns(event: Handle) -> i64 = |driver| {
        match driver.events.get(event).map(|event| &event.state) {
            Ok(EventState::Recorded(moment)) if moment.is_reached(clock::now_ns()) => clock::boot_ns(moment.at_ns),
            _ => -1,
        }
    }

    /// Events that were created and not destroyed.
    fn stub_live_events() -> u64 = |driver| { driver.events.count() }

    /// The most events that were live at once.
    fn stub_peak_events() -> u64 = |driver| { driver.peak_events }

    /// Streams that were created and not destroyed.
    fn stub_live_streams() -> u64 = |driver| { driver.stream_handles.count() }

    /// Contexts that are active.
    fn stub_live_contexts() -> u64 = |driver| {
        driver.contexts.values_mut().filter(|context| context.is_active).count() as u64
    }

    /// Whether the devices have memory pools; they do at first.
    fn stub_memory_pools(has: bool) -> () = |driver| { driver.has_memory_pools = has }

    /// The bytes that are allocated in the order of streams.
    fn stub_memory() -> u64 = |driver| { driver.memory.values().sum() }

    /// Streams and events that were live when their context ended.
    fn stub_leaked() -> u64 = |driver| { driver.leaked }

    /// Uses of handles that were destroyed or never made, driver calls of host functions, and green contexts that were made current to a
    /// second thread.
    fn stub_misuse() -> u64 = |driver| {
        let handles = [driver.contexts.misuse(), driver.stream_handles.misuse(), driver.events.misuse()];
        handles.iter().sum::<u64>() + driver.green_misuse + driver.graphs.misuse() + driver.nodes.misuse() + driver.execs.misuse() + driver.memory_misuse + driver.host_function_calls
    }

    /// Uses of streams and events whose context is gone. To ask for the context itself is how a program finds out.
    fn stub_orphan_uses() -> u64 = |driver| { driver.stream_handles.orphan_uses() + driver.events.orphan_uses() + driver.orphans_pushed }

    /// Event records that went into a capture.
    fn stub_captured_records() -> u64 = |driver| { driver.captured_records }

    /// Behind each of the next `times` questions where a stream stands in its capture, another thread captures a kernel with the
    /// stream before the answer is read: the array that was handed out is gone.
    fn stub_overtake(times: u64) -> () = |driver| { driver.overtaken = times }

    /// Whether the driver is one for 13.1, which tells ids of graphs and nodes; it is not at first.
    fn stub_tells_ids(tells: bool) -> () = |driver| { driver.tells_ids = tells }

    /// Whether the driver is one for 13.2, which tells the parameters of every node.
    fn stub_tells_bodies(tells: bool) -> () = |driver| { driver.tells_bodies = tells }

    /// From now on stamps are kept back, or those that were are written, in the order of their times.
    fn stub_hold_stamps(hold: bool) -> () = |driver| { driver.hold_stamps(hold) }

    /// How many stamps were written.
    fn stub_stamps() -> u64 = |driver| { driver.modules.stamps }

    /// How many nodes a captured graph has.
    fn stub_graph_nodes(graph: Handle) -> u64 = |driver| { driver.graphs.get(graph).map_or(0, |graph| graph.nodes.len() as u64) }

    /// How many edges of a graph wait for a launch alone.
    fn stub_launch_edges(graph: Handle) -> u64 = |driver| {
        let nodes = driver.graphs.get(graph).map_or_else(|_| Vec::new(), |graph| graph.nodes.clone());
        nodes.into_iter().map(|node| driver.nodes.get(node).map_or(0, |node| node.by_launch.len() as u64)).sum()
    }
}

/// A C string of the caller's; NULL is none.
#[repr(transparent)]
struct Text(*const c_char);

impl Text {
    fn get(&self) -> Option<String> {
        // SAFETY: the test gives NULL or a string that ends with NUL and lives through the call.
        let text = (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })?;
        Some(text.to_string_lossy().into_owned())
    }
}
