//! The calls that turn CUPTI's recording on and off, compare its clock with the host's, and end it.
//!
//! [`Kernels`](super::Kernels) makes them, for one session at a time. They keep no state.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::abi::*;
use super::library::{Cupti, CuptiError};
use super::records::Records;
use super::{buffers, end};
use warpline_core::clock::{Comparison, now_ns};
use warpline_core::kernel::CUPTI_STAYS;

/// The kinds that are on.
const KINDS: [u32; 7] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
    kind::MEMCPY2,
    kind::EXTERNAL_CORRELATION,
    // A zone is only told with the record of a call.
    kind::DRIVER,
    kind::RUNTIME,
];

/// Turns everything on that a session needs.
pub(super) fn start(cupti: &Cupti, names_zones: bool) -> Result<(), CuptiError> {
    let symbols = &cupti.symbols;
    // SAFETY: the callbacks are functions of the program.
    unsafe {
        let code = (symbols.register_callbacks)(buffers::request, buffers::completed);
        cupti.check("cuptiActivityRegisterCallbacks", code)?;
    }
    enable(cupti, names_zones)
}

/// Turns the kinds on. External ids name the zone of each launch.
pub(super) fn enable(cupti: &Cupti, names_zones: bool) -> Result<(), CuptiError> {
    // Calls before kernels, and off again behind them: each kernel that is traced has its call.
    for kind in KINDS.into_iter().rev().filter(|kind| names_zones || *kind != kind::EXTERNAL_CORRELATION) {
        // SAFETY: the call takes a number.
        cupti.check("cuptiActivityEnable", unsafe { (cupti.symbols.enable)(kind) })?;
    }
    record_other_calls(cupti, false);
    Ok(())
}

/// Chooses what stands for a thread in records, and gives what did before.
pub(super) fn number_threads(cupti: &Cupti, by: c_int) -> c_int {
    let mut before = 0;
    if let (Some(get), Some(set)) = (cupti.symbols.get_thread_id, cupti.symbols.set_thread_id) {
        // SAFETY: the place outlives the call; the other call takes a number.
        unsafe {
            let _ = get(&raw mut before);
            let _ = set(by);
        }
    }
    before
}

/// Whether calls are recorded that neither launch nor copy nor set. An old CUPTI cannot choose, and records all.
fn record_other_calls(cupti: &Cupti, on: bool) {
    let choices =
        [(cupti.symbols.enable_driver_call, DRIVER_CALLS), (cupti.symbols.enable_runtime_call, RUNTIME_CALLS)];
    for (choose, wanted) in choices {
        let Some(choose) = choose else { continue };
        for call in (1..CALLS_END).filter(|call| !wanted.iter().any(|wanted| wanted.contains(call))) {
            // SAFETY: the call takes numbers; one that CUPTI does not know it refuses.
            let _ = unsafe { choose(call, u8::from(on)) };
        }
    }
}

pub(super) fn disable(cupti: &Cupti) {
    // As CUPTI has it: the next one in this process may want them.
    record_other_calls(cupti, true);
    for kind in KINDS {
        // SAFETY: the call takes a number. What was never on stays off.
        let _ = unsafe { (cupti.symbols.disable)(kind) };
    }
}

/// What was traced by a start that has failed. Nothing is on any more.
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

/// Ends CUPTI, or else ends the subscription alone; then it says what stays, and why. Nothing is on any more, these are all the records
/// of what was traced, and so many are missing.
pub(super) fn end_or_unsubscribe(
    cupti: &Cupti,
    subscriber: Subscriber,
    records: &Records,
    lost: u64,
) -> Option<String> {
    // Also a graph of the session's own: what it leaves in CUPTI is not known.
    if records.has_graph_launches() {
        end::keep("a graph was launched while CUPTI traced kernels, and its next launch would fail without it");
    } else if !records.are_complete() || lost > 0 {
        end::keep("work that CUPTI traced may not be complete; synchronise before the session ends");
    }
    let ended = end::end(cupti, subscriber);
    if ended.is_err() {
        // SAFETY: the subscriber is the one that CUPTI gave.
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

/// How many records CUPTI had no room for since it was asked last.
pub(super) fn dropped(cupti: &Cupti) -> u64 {
    let mut dropped = 0;
    // SAFETY: the place outlives the call; no context means all.
    let code = unsafe { (cupti.symbols.dropped_records)(std::ptr::null_mut(), 0, &raw mut dropped) };
    if code == SUCCESS { dropped as u64 } else { 0 }
}

/// CUPTI's time and the host's, by the best of so many looks.
///
/// `cuptiActivityRegisterTimestampCallback` would let CUPTI use the host's clock itself, but from CUDA 12.6 Update 2 to
/// 13.0 it makes some kernels' times zero (NVIDIA's notes on 13.1).
pub(super) fn compare(cupti: &Cupti, looks: usize) -> Result<Comparison, CuptiError> {
    let best = Comparison::best_of(looks, 0, || {
        let mut cupti_ns = 0;
        let before_ns = now_ns();
        // SAFETY: the place outlives the call.
        let code = unsafe { (cupti.symbols.get_timestamp)(&raw mut cupti_ns) };
        let half_ns = (now_ns() - before_ns) / 2;
        cupti.check("cuptiGetTimestamp", code)?;
        // Either clock may be off by a few ns more.
        let uncertainty_ns = half_ns + 20;
        Ok(Some(Comparison { device_ns: cupti_ns.cast_signed(), host_ns: before_ns + half_ns, uncertainty_ns }))
    })?;
    best.ok_or(CuptiError { call: "cuptiGetTimestamp", code: NOT_INITIALIZED })
}

/// Why CUPTI did not start, and what to do.
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
