//! Metrics of a running session, for OpenTelemetry collectors (`otlp=URL`) and Prometheus (`prometheus=ADDR`).
//!
//! Each of the two is a sink with [`Figures`](figures::Figures) of its own. The collector's thread adds records to them under a lock. A thread of
//! the sink holds that lock while it encodes them, less than a millisecond, and not while it sends them (`otlp`) or answers requests
//! with them (`prometheus`): neither the collector nor a launching thread waits for the network.
//!
//! All figures are cumulative and in bounded memory: nothing queues while a receiver is away, and its next answer has what it missed.
//! `histogram` has the lengths, `ranges` and `bandwidths` choose what gets series of its own, `own` has the own time of steps, `figures` is the
//! whole, `job` names the process, `inspector` has the names of NCCL's Inspector.

mod bandwidths;
mod figures;
mod histogram;
mod inspector;
mod job;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
mod own;
#[cfg(feature = "prometheus")]
pub(crate) mod prometheus;
mod ranges;
#[cfg(test)]
mod tests;
