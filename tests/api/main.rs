//! The public API on in-process streams, files, processes and the compiler. Each file is a part of it.
//!
//! All tests share one process, and there is one session at a time in a process: a test that starts one, or makes zones, holds
//! `warpline_tests::alone`. A test that needs more of the process for itself (a signal handler, a limit, the environment, a fork)
//! runs again in a process of its own: `warpline_tests::in_a_process_of_its_own`.

#[cfg(feature = "timeline")]
#[macro_use]
#[path = "../support/timelines/mod.rs"]
mod timelines;

// The catalog is the same with every feature off.
mod catalog_crates;
mod catalog_dylib;
mod catalog_exclusive;
mod catalog_exports;
#[cfg(feature = "enable")]
mod catalog_in_traces;
mod catalog_names;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod catalog_static;
#[cfg(feature = "enable")]
mod catalog_versions;
mod front_page;
mod program_pages;

#[cfg(feature = "enable")]
mod backend_times;
#[cfg(feature = "enable")]
#[path = "../support/child.rs"]
mod child;
#[cfg(feature = "enable")]
mod collectives;
#[cfg(feature = "enable")]
mod collectives_inferred;
#[cfg(feature = "enable")]
mod collectives_trace;
#[cfg(feature = "cuda")]
mod cuda_builds;
#[cfg(feature = "enable")]
mod dynamic;
#[cfg(feature = "enable")]
mod endings;
#[cfg(feature = "enable")]
mod errors;
#[cfg(all(feature = "enable", feature = "timeline"))]
mod figures;
#[cfg(feature = "enable")]
mod flight;
#[cfg(feature = "enable")]
mod flight_file;
#[cfg(all(feature = "enable", feature = "timeline"))]
mod fork;
#[cfg(feature = "enable")]
mod full_disk;
mod futures;
#[cfg(feature = "enable")]
mod killed_chrome;
#[cfg(feature = "enable")]
mod live;
#[cfg(feature = "tracing")]
mod log;
#[cfg(feature = "enable")]
mod marks;
#[cfg(feature = "otlp")]
mod metrics_otlp;
#[cfg(feature = "prometheus")]
mod metrics_prometheus;
#[cfg(all(feature = "prometheus", target_os = "linux"))]
mod metrics_server;
#[cfg(feature = "enable")]
mod overload;
#[cfg(all(feature = "enable", target_os = "linux"))]
mod pipes;
#[cfg(feature = "enable")]
mod processes;
#[cfg(feature = "enable")]
mod profile;
#[cfg(all(feature = "ranks", unix))]
mod ranks_disk;
#[cfg(feature = "ranks")]
mod ranks_tables;
#[cfg(all(feature = "ranks", unix))]
mod ranks_trouble;
#[cfg(feature = "otlp")]
#[path = "../support/receiver.rs"]
mod receiver;
#[cfg(feature = "enable")]
mod recording;
#[cfg(feature = "enable")]
mod rotation;
#[cfg(feature = "prometheus")]
#[path = "../support/scrape.rs"]
mod scrape;
#[cfg(feature = "enable")]
mod settings;
#[cfg(feature = "enable")]
mod several;
#[cfg(feature = "enable")]
mod sink_panics;
#[cfg(feature = "enable")]
mod sinks;
#[cfg(feature = "enable")]
mod start;
#[cfg(feature = "enable")]
mod steps;
#[cfg(feature = "enable")]
mod streams;
#[cfg(feature = "ranks")]
#[path = "../support/tables.rs"]
mod tables;
#[cfg(feature = "enable")]
mod taken_away;
#[cfg(feature = "enable")]
mod testing;
#[cfg(feature = "timeline")]
mod timeline;
#[cfg(all(feature = "enable", feature = "timeline"))]
mod timeline_trace;
#[cfg(feature = "enable")]
#[path = "../support/trace.rs"]
mod trace;
#[cfg(feature = "tracing")]
mod tracing;
#[cfg(feature = "tracing")]
mod tracing_zones;
#[cfg(feature = "enable")]
mod windows;
#[cfg(feature = "enable")]
mod work;

warpline::namespace!("api", "zones of the tests of the public API");

#[global_allocator]
static ALLOCATOR: warpline_tests::counting::Counting = warpline_tests::counting::Counting;
