//! The pages of `docs/` in the repository, and their index. This module exists only in the documentation.
//!
#![doc = warpline_macros::__page!("docs/README.md")]

/// Makes Cargo rebuild the documentation when the index changes.
const _: &str = include_str!("../docs/README.md");

/// Declares the module of each page.
macro_rules! pages {
    ($($name:ident: $path:literal;)*) => {$(
        #[doc = warpline_macros::__page!($path)]
        pub mod $name {
            /// Makes Cargo rebuild the documentation when the page changes.
            const _: &str = include_str!(concat!("../", $path));
        }
    )*};
}

pages! {
    annotate: "docs/annotate.md";
    backends: "docs/backends.md";
    catalog: "docs/catalog.md";
    collectives: "docs/collectives.md";
    compare: "docs/compare.md";
    compare_traces: "docs/compare-traces.md";
    control: "docs/control.md";
    cuda: "docs/cuda.md";
    exactness: "docs/exactness.md";
    features: "docs/features.md";
    figures: "docs/figures.md";
    flight: "docs/flight.md";
    graphs: "docs/graphs.md";
    graphs_reference: "docs/graphs-reference.md";
    hip: "docs/hip.md";
    how_it_works: "docs/how-it-works.md";
    kernels: "docs/kernels.md";
    marks: "docs/marks.md";
    metrics: "docs/metrics.md";
    migration: "docs/migration.md";
    nvtx: "docs/nvtx.md";
    profile: "docs/profile.md";
    query: "docs/query.md";
    ranks: "docs/ranks.md";
    ranks_tables: "docs/ranks-tables.md";
    report: "docs/report.md";
    selection: "docs/selection.md";
    sessions: "docs/sessions.md";
    settings: "docs/settings.md";
    shutdown: "docs/shutdown.md";
    testing: "docs/testing.md";
    timelines: "docs/timelines.md";
    traces: "docs/traces.md";
    tracing: "docs/tracing.md";
    tracy: "docs/tracy.md";
    troubleshooting: "docs/troubleshooting.md";
    tutorial: "docs/tutorial.md";
}
