//! The calls that turn CUPTI's recording on and off, compare its clock with the host's, and end it.
//!
//! [`Kernels`](super::Kernels) makes them, for one session at a time. They keep no state.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::abi::*;
use super::library::{Cupti, CuptiError};
use super::records::Records;
use super::selection::Wanted;
use super::{buffers, end};
use warpline_core::clock::{Comparison, now_ns};
use warpline_core::environment;
use warpline_core::kernel::CUPTI_STAYS;

/// The kinds of records.
const KINDS: [u32; 9] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
    kind::MEMCPY2,
    kind::SYNCHRONIZATION,
    kind::MEMORY2,
    kind::EXTERNAL_CORRELATION,
    // CUPTI gives a zone only with the record of a call.
    kind::DRIVER,
    kind::RUNTIME,
];

/// Enables everything that a session needs.
pub(super) fn start(cupti: &Cupti, wanted: Wanted) -> Result<(), CuptiError> {
    let symbols = &cupti.symbols;
    share_buffers(cupti);
    // SAFETY: the callbacks are functions of the program.
    unsafe {
        let code = (symbols.register_callbacks)(buffers::request, buffers::completed);
        cupti.check("cuptiActivityRegisterCallbacks", code)?;
    }
    enable(cupti, wanted)
}

/// Makes all threads fill one buffer, as up to CUDA 12.9. From 13.0 on, each launching thread holds a buffer until it is flushed, so that a
/// program with more threads than buffers would lose records. NVIDIA allows the call only while nothing is recorded, so it is not undone: it
/// lasts until CUPTI is ended. CUPTI of CUDA 12.2 or older does not know the attribute, and has one buffer.
fn share_buffers(cupti: &Cupti) {
    if let Some(set) = cupti.symbols.set_attribute {
        let (mut size, mut is_per_thread) = (size_of::<u8>(), 0_u8);
        // SAFETY: the pointers are valid, and the size is that of the value.
        let _ = unsafe { set(PER_THREAD_BUFFERS, &raw mut size, (&raw mut is_per_thread).cast()) };
    }
}

/// Enables the kinds. External ids identify the zone of each launch.
pub(super) fn enable(cupti: &Cupti, wanted: Wanted) -> Result<(), CuptiError> {
    if wanted.barriers() {
        // The collector itself queries events, each time with a record unless the event has not happened yet.
        record_all_syncs(cupti, false);
    }
    // Calls are enabled before kernels and disabled after them, so that each traced kernel has its call.
    for kind in KINDS.into_iter().rev().filter(|kind| is_needed(*kind, wanted)) {
        // SAFETY: the call takes a number.
        cupti.check("cuptiActivityEnable", unsafe { (cupti.symbols.enable)(kind) })?;
    }
    choose_calls(cupti, None, Some(wanted));
    if is_nvtx_tool() {
        // Without names, streams have their default ones.
        // SAFETY: the call takes a number.
        let _ = unsafe { (cupti.symbols.enable)(kind::NAME) };
    }
    Ok(())
}

/// Changes what is recorded, while CUPTI records.
pub(super) fn change(cupti: &Cupti, from: Wanted, to: Wanted) -> Result<(), CuptiError> {
    if from.barriers() != to.barriers() {
        record_all_syncs(cupti, from.barriers());
    }
    choose_calls(cupti, Some(from), Some(to));
    for kind in KINDS.into_iter().rev() {
        match (is_needed(kind, from), is_needed(kind, to)) {
            // SAFETY: the calls take a number.
            (false, true) => cupti.check("cuptiActivityEnable", unsafe { (cupti.symbols.enable)(kind) })?,
            // SAFETY: as above.
            (true, false) => _ = unsafe { (cupti.symbols.disable)(kind) },
            _ => {}
        }
    }
    Ok(())
}

/// Sets whether queries of what has not happened are recorded among synchronisations, as is CUPTI's default.
fn record_all_syncs(cupti: &Cupti, on: bool) {
    if let Some(choose) = cupti.symbols.enable_all_syncs {
        // SAFETY: the call takes a number.
        let _ = unsafe { choose(u8::from(on)) };
    }
}

/// Returns whether CUPTI may be the tool that NVTX tells names of streams.
fn is_nvtx_tool() -> bool {
    environment::var_os("NVTX_INJECTION64_PATH").is_some_and(|path| !path.is_empty())
}

/// Returns whether a session needs records of this kind.
fn is_needed(kind: u32, wanted: Wanted) -> bool {
    match kind {
        kind::DRIVER | kind::RUNTIME => true,
        kind::EXTERNAL_CORRELATION => wanted.zones(),
        kind::SYNCHRONIZATION => wanted.barriers(),
        kind::MEMORY2 => wanted.memory(),
        _ => wanted.work(),
    }
}

/// Sets the kind of thread ids in records, and returns the previous one.
pub(super) fn number_threads(cupti: &Cupti, by: c_int) -> c_int {
    let mut before = 0;
    if let (Some(get), Some(set)) = (cupti.symbols.get_thread_id, cupti.symbols.set_thread_id) {
        // SAFETY: a valid out-pointer; the other call takes a number.
        unsafe {
            let _ = get(&raw mut before);
            let _ = set(by);
        }
    }
    before
}

/// Changes which calls are recorded: those that launch, copy or set, those that allocate, and those that wait; all of them, as at first, if
/// nothing is wanted. An old CUPTI cannot choose, and records all. Launches of graphs are always recorded, because they decide whether CUPTI may
/// be ended.
fn choose_calls(cupti: &Cupti, from: Option<Wanted>, to: Option<Wanted>) {
    let symbols = &cupti.symbols;
    let choices = [
        (symbols.enable_driver_call, DRIVER_CALLS, DRIVER_SYNCS, DRIVER_ALLOCATIONS, DRIVER_GRAPH_LAUNCHES),
        (symbols.enable_runtime_call, RUNTIME_CALLS, RUNTIME_SYNCS, RUNTIME_ALLOCATIONS, RUNTIME_GRAPH_LAUNCHES),
    ];
    for (choose, of_work, of_syncs, of_memory, of_graphs) in choices {
        let Some(choose) = choose else { continue };
        let is_in = |calls: &[std::ops::RangeInclusive<u32>], call| calls.iter().any(|calls| calls.contains(&call));
        for call in 1..CALLS_END {
            let is_wanted = |wanted: Option<Wanted>| match wanted {
                None => true,
                Some(wanted) => {
                    wanted.work() && is_in(of_work, call)
                        || wanted.barriers() && is_in(of_syncs, call)
                        || wanted.memory() && of_memory.iter().any(|(known, _)| *known == call)
                        || of_graphs.contains(&call)
                }
            };
            if is_wanted(from) != is_wanted(to) {
                // SAFETY: the call takes numbers, and rejects those that CUPTI does not know.
                let _ = unsafe { choose(call, u8::from(is_wanted(to))) };
            }
        }
    }
}

pub(super) fn disable(cupti: &Cupti, wanted: Wanted) {
    // This is CUPTI's default, which its next user in this process may need.
    choose_calls(cupti, Some(wanted), None);
    if wanted.barriers() {
        record_all_syncs(cupti, true);
    }
    for kind in KINDS.into_iter().chain(is_nvtx_tool().then_some(kind::NAME)) {
        // SAFETY: the call takes a number; a kind that was never enabled stays disabled.
        let _ = unsafe { (cupti.symbols.disable)(kind) };
    }
}

/// Returns the records of a start that has failed. Everything must be disabled.
pub(super) fn traced(cupti: &Cupti) -> Records {
    let mut records = Records::default();
    for flag in [0, FLUSH_FORCED] {
        // SAFETY: the call takes a number.
        let _ = unsafe { (cupti.symbols.flush_all)(flag) };
    }
    while let Some(full) = buffers::take() {
        records.read(cupti, &full);
        buffers::give_back(full);
    }
    records
}

/// Ends CUPTI. If that fails, ends only the subscription, and returns what stays and why. Everything must be disabled. `records` are those
/// of all traced work, of which `lost` are missing.
pub(super) fn end_or_unsubscribe(
    cupti: &Cupti,
    subscriber: Subscriber,
    records: &Records,
    lost: u64,
) -> Option<String> {
    // This includes the session's own graphs, because their effect on CUPTI is unknown.
    if records.has_graph_launches() {
        end::keep("a graph was launched while CUPTI traced kernels, and its next launch would fail without it");
    } else if !records.are_complete() || lost > 0 {
        end::keep("work that CUPTI traced may not be complete; synchronise before the session ends");
    }
    let ended = end::end(cupti, subscriber);
    if ended.is_err() {
        // SAFETY: CUPTI returned the subscriber.
        let _ = unsafe { (cupti.symbols.unsubscribe)(subscriber) };
    }
    buffers::close();
    let Err(why) = ended else {
        buffers::take_back();
        return None;
    };
    Some(format!(
        "{CUPTI_STAYS}, so launches of CUDA graphs stay slower (by 20 to 70 µs for 100 nodes on an H100): {why}"
    ))
}

/// Returns the number of records that CUPTI has dropped for lack of room since the last call.
pub(super) fn dropped(cupti: &Cupti) -> u64 {
    let mut dropped = 0;
    // SAFETY: a valid out-pointer; no context means all.
    let code = unsafe { (cupti.symbols.dropped_records)(std::ptr::null_mut(), 0, &raw mut dropped) };
    if code == SUCCESS { dropped as u64 } else { 0 }
}

/// Reads CUPTI's clock, on which the times of its records are.
pub(super) fn timestamp(cupti: &Cupti) -> Result<u64, CuptiError> {
    let mut cupti_ns = 0;
    // SAFETY: a valid out-pointer.
    let code = unsafe { (cupti.symbols.get_timestamp)(&raw mut cupti_ns) };
    cupti.check("cuptiGetTimestamp", code).map(|()| cupti_ns)
}

/// Compares CUPTI's clock with the host's, by the best of this many readings.
///
/// `cuptiActivityRegisterTimestampCallback` would let CUPTI use the host's clock itself, but from CUDA 12.6 Update 2 to
/// 13.0 it makes some kernels' times zero (NVIDIA's notes on 13.1).
pub(super) fn compare(cupti: &Cupti, looks: usize) -> Result<Comparison, CuptiError> {
    let best = Comparison::best_of(looks, 0, || {
        let before_ns = now_ns();
        let read = timestamp(cupti);
        let half_ns = (now_ns() - before_ns) / 2;
        let cupti_ns = read?;
        // Either clock may be off by a few ns more.
        let uncertainty_ns = half_ns + 20;
        Ok(Some(Comparison { device_ns: cupti_ns.cast_signed(), host_ns: before_ns + half_ns, uncertainty_ns }))
    })?;
    best.ok_or(CuptiError { call: "cuptiGetTimestamp", code: NOT_INITIALIZED })
}

/// Returns why CUPTI did not start, with a remedy.
pub(super) fn why(cupti: &Cupti, error: CuptiError) -> String {
    let told = cupti.describe(error);
    match error.code {
        MULTIPLE_SUBSCRIBERS => format!(
            "another tool uses CUPTI in this process (Nsight, PyTorch's profiler, …): {told}; run without it, or leave out `kernels`"
        ),
        NOT_INITIALIZED => format!("CUPTI finds no CUDA driver: {told}; install one, or leave out `kernels`"),
        INSUFFICIENT_PRIVILEGES | VIRTUALIZED => format!(
            "CUPTI is not allowed on this device: {told}; ask its administrator for access to GPU performance counters"
        ),
        _ => format!("CUPTI does not start: {told}; see CUptiResult in NVIDIA's documentation, or leave out `kernels`"),
    }
}
