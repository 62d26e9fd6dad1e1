//! The warm-up of a schedule of steps, whose records are not handed on. Memory is: its counters are sums.

use std::sync::atomic::Ordering;

use super::SessionStats;
use super::batch_part::{begin_of, only};
use warpline_core::steps::Steps;
use warpline_report::sink::Batch;

/// Calls `give` with the part of a batch that is not of a warm-up, unless that is nothing, and counts the rest.
pub(super) fn without_warmup(batch: Batch<'_>, steps: &Steps, stats: &SessionStats, give: impl FnOnce(Batch<'_>)) {
    match batch {
        // The collector has removed the zones of a warm-up, which are counted.
        Batch::Spans(spans) => {
            let kept = only(spans, |span| !steps.is_warmup(span.host.begin_ns));
            stats.warmup.spans.fetch_add((spans.len() - kept.len()) as u64, Ordering::Relaxed);
            give_some(Batch::Spans(&kept), give)
        }
        Batch::Waits(waits) => give_some(Batch::Waits(&only(waits, |wait| !steps.is_warmup(wait.host.begin_ns))), give),
        Batch::Synchronizations(syncs) => {
            give_some(Batch::Synchronizations(&only(syncs, |sync| !steps.is_warmup(sync.host.begin_ns))), give)
        }
        Batch::Kernels(kernels) => {
            let kept = only(kernels, |kernel| !steps.is_warmup(begin_of(kernel.launch.as_ref(), kernel.gpu)));
            stats.warmup.kernels.fetch_add((kernels.len() - kept.len()) as u64, Ordering::Relaxed);
            give_some(Batch::Kernels(&kept), give)
        }
        Batch::Replays(replays) => give_some(
            Batch::Replays(&only(replays, |replay| !steps.is_warmup(begin_of(replay.launch.as_ref(), replay.gpu)))),
            give,
        ),
        other => give(other),
    }
}

fn give_some(batch: Batch<'_>, give: impl FnOnce(Batch<'_>)) {
    if !batch.is_empty() {
        give(batch);
    }
}
