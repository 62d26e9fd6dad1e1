//! What CUPTI reports: the tables of kernels and of threads' waits, and their lines.

use std::fmt;

use super::super::table::{NONE, Row, table, time};
use super::super::{HostWaitStats, KernelCounts, KernelStats, KernelTimingCounts, SyncCounts};
use super::more;
use warpline_core::plural::{counted, counted_are, counted_as};
use warpline_core::text::printable;

/// The maximum number of kernels that are printed, by name and range.
const KERNELS: usize = 10;

/// The maximum number of waits of threads that are printed, by thread, call and range.
const HOST_WAITS: usize = 10;

pub(super) fn top_kernels(f: &mut fmt::Formatter<'_>, kernels: &[KernelStats]) -> fmt::Result {
    let head = Row::new("kernel", ["count", "total", "mean", "max"].map(str::to_owned));
    let head = Row { text: Some("in".to_owned()), ..head };
    let row = |kernel: &KernelStats| {
        let mean_ns = kernel.total_ns / kernel.count.max(1) as i64;
        let cells = [kernel.count.to_string(), time(kernel.total_ns), time(mean_ns), time(kernel.max_ns)];
        let range = kernel.range.as_deref().unwrap_or(NONE);
        Row { text: Some(printable(range).into_owned()), ..Row::new(&kernel.name, cells) }
    };
    let rows: Vec<_> = kernels.iter().take(KERNELS).map(row).collect();
    table(f, head, &rows)?;
    more(f, kernels.len(), KERNELS, "more kernel")
}

pub(super) fn host_waits(f: &mut fmt::Formatter<'_>, waits: &[HostWaitStats]) -> fmt::Result {
    let head = Row::new("thread waited in", ["count", "total", "mean", "max"].map(str::to_owned));
    let head = Row { text: Some("in".to_owned()), ..head };
    let row = |wait: &HostWaitStats| {
        let mean_ns = wait.total_ns / wait.count.max(1) as i64;
        let cells = [wait.count.to_string(), time(wait.total_ns), time(mean_ns), time(wait.max_ns)];
        let range = wait.range.as_deref().unwrap_or(NONE);
        let name = format!("{}: {}", wait.thread, wait.call);
        Row { text: Some(printable(range).into_owned()), ..Row::new(name, cells) }
    };
    let rows: Vec<_> = waits.iter().take(HOST_WAITS).map(row).collect();
    table(f, head, &rows)?;
    more(f, waits.len(), HOST_WAITS, "more wait")
}

pub(super) fn kernels(f: &mut fmt::Formatter<'_>, kernels: KernelCounts) -> fmt::Result {
    let KernelCounts { recorded, dropped, untimed, buffers_refused, uncertainty_ns } = kernels;
    if kernels != KernelCounts::default() {
        let recorded = counted_as(recorded, "kernel or copy", "kernels and copies");
        write!(f, "\n{recorded} recorded, {dropped} dropped by CUPTI, {untimed} without a time")?;
    }
    if buffers_refused > 0 {
        write!(f, " ({} there was no buffer left)", counted(buffers_refused, "time"))?;
    }
    if uncertainty_ns > 0 {
        write!(f, "; begins are known within ±{}", time(uncertainty_ns))?;
    }
    Ok(())
}

pub(super) fn synchronizations(f: &mut fmt::Formatter<'_>, counts: SyncCounts) -> fmt::Result {
    let SyncCounts { recorded, dropped, untimed } = counts;
    if counts != SyncCounts::default() {
        let recorded = counted(recorded, "synchronisation");
        write!(f, "\n{recorded} recorded, {dropped} dropped by CUPTI, {untimed} without a time")?;
    }
    Ok(())
}

pub(super) fn kernel_timing(f: &mut fmt::Formatter<'_>, counts: KernelTimingCounts) -> fmt::Result {
    let KernelTimingCounts { timed, without_work, lost } = counts;
    if counts != KernelTimingCounts::default() {
        let timed = counted_are(timed, "GPU zone");
        write!(
            f,
            "\n{timed} timed by kernels, {without_work} without device work, {lost} without a time because records are missing"
        )?;
    }
    Ok(())
}
