//! The pages of `docs/` in the repository, and their index. This module exists only in the documentation.
//!
#![doc = warpline_macros::__page!("docs/README.md")]

/// Makes Cargo rebuild the documentation when the index changes.
const _: &str = include_str!("../docs/README.md");

#[doc = warpline_macros::__page!("docs/annotate.md")]
pub mod annotate {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/annotate.md");
}

#[doc = warpline_macros::__page!("docs/backends.md")]
pub mod backends {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/backends.md");
}

#[doc = warpline_macros::__page!("docs/catalog.md")]
pub mod catalog {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/catalog.md");
}

#[doc = warpline_macros::__page!("docs/collectives.md")]
pub mod collectives {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/collectives.md");
}

#[doc = warpline_macros::__page!("docs/compare.md")]
pub mod compare {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/compare.md");
}

#[doc = warpline_macros::__page!("docs/compare-traces.md")]
pub mod compare_traces {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/compare-traces.md");
}

#[doc = warpline_macros::__page!("docs/control.md")]
pub mod control {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/control.md");
}

#[doc = warpline_macros::__page!("docs/cuda.md")]
pub mod cuda {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/cuda.md");
}

#[doc = warpline_macros::__page!("docs/exactness.md")]
pub mod exactness {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/exactness.md");
}

#[doc = warpline_macros::__page!("docs/features.md")]
pub mod features {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/features.md");
}

#[doc = warpline_macros::__page!("docs/figures.md")]
pub mod figures {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/figures.md");
}

#[doc = warpline_macros::__page!("docs/flight.md")]
pub mod flight {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/flight.md");
}

#[doc = warpline_macros::__page!("docs/graphs.md")]
pub mod graphs {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/graphs.md");
}

#[doc = warpline_macros::__page!("docs/graphs-reference.md")]
pub mod graphs_reference {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/graphs-reference.md");
}

#[doc = warpline_macros::__page!("docs/hip.md")]
pub mod hip {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/hip.md");
}

#[doc = warpline_macros::__page!("docs/how-it-works.md")]
pub mod how_it_works {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/how-it-works.md");
}

#[doc = warpline_macros::__page!("docs/kernels.md")]
pub mod kernels {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/kernels.md");
}

#[doc = warpline_macros::__page!("docs/marks.md")]
pub mod marks {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/marks.md");
}

#[doc = warpline_macros::__page!("docs/metrics.md")]
pub mod metrics {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/metrics.md");
}

#[doc = warpline_macros::__page!("docs/migration.md")]
pub mod migration {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/migration.md");
}

#[doc = warpline_macros::__page!("docs/nvtx.md")]
pub mod nvtx {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/nvtx.md");
}

#[doc = warpline_macros::__page!("docs/profile.md")]
pub mod profile {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/profile.md");
}

#[doc = warpline_macros::__page!("docs/query.md")]
pub mod query {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/query.md");
}

#[doc = warpline_macros::__page!("docs/ranks.md")]
pub mod ranks {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/ranks.md");
}

#[doc = warpline_macros::__page!("docs/ranks-tables.md")]
pub mod ranks_tables {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/ranks-tables.md");
}

#[doc = warpline_macros::__page!("docs/report.md")]
pub mod report {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/report.md");
}

#[doc = warpline_macros::__page!("docs/selection.md")]
pub mod selection {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/selection.md");
}

#[doc = warpline_macros::__page!("docs/sessions.md")]
pub mod sessions {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/sessions.md");
}

#[doc = warpline_macros::__page!("docs/settings.md")]
pub mod settings {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/settings.md");
}

#[doc = warpline_macros::__page!("docs/shutdown.md")]
pub mod shutdown {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/shutdown.md");
}

#[doc = warpline_macros::__page!("docs/testing.md")]
pub mod testing {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/testing.md");
}

#[doc = warpline_macros::__page!("docs/timelines.md")]
pub mod timelines {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/timelines.md");
}

#[doc = warpline_macros::__page!("docs/traces.md")]
pub mod traces {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/traces.md");
}

#[doc = warpline_macros::__page!("docs/tracing.md")]
pub mod tracing {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/tracing.md");
}

#[doc = warpline_macros::__page!("docs/tracy.md")]
pub mod tracy {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/tracy.md");
}

#[doc = warpline_macros::__page!("docs/troubleshooting.md")]
pub mod troubleshooting {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/troubleshooting.md");
}

#[doc = warpline_macros::__page!("docs/tutorial.md")]
pub mod tutorial {
    /// Makes Cargo rebuild the documentation when the page changes.
    const _: &str = include_str!("../docs/tutorial.md");
}
