//! Nothing but a check that the code in the README and in `docs/` compiles: `cargo test` reads it, nobody links it.

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The page on marks.
#[cfg(doctest)]
#[doc = include_str!("../docs/marks.md")]
pub struct Marks;

/// The page on backends.
#[cfg(doctest)]
#[doc = include_str!("../docs/backends.md")]
pub struct Backends;

/// The page on CUDA streams.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../docs/cuda.md")]
pub struct Cuda;

/// The page on HIP streams.
#[cfg(all(doctest, feature = "hip"))]
#[doc = include_str!("../docs/hip.md")]
pub struct Hip;

/// The page on graphs.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../docs/graphs.md")]
pub struct Graphs;

/// The page on collectives.
#[cfg(doctest)]
#[doc = include_str!("../docs/collectives.md")]
pub struct Collectives;

/// The page on sessions.
#[cfg(doctest)]
#[doc = include_str!("../docs/sessions.md")]
pub struct Sessions;

/// The page on settings.
#[cfg(doctest)]
#[doc = include_str!("../docs/settings.md")]
pub struct Settings;

/// The page on what is recorded.
#[cfg(doctest)]
#[doc = include_str!("../docs/selection.md")]
pub struct Selection;

/// The page on how a session ends.
#[cfg(doctest)]
#[doc = include_str!("../docs/shutdown.md")]
pub struct Shutdown;

/// The page on tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/testing.md")]
pub struct Testing;

/// The page on timelines.
#[cfg(doctest)]
#[doc = include_str!("../docs/timelines.md")]
pub struct Timelines;

/// The page on spans.
#[cfg(all(doctest, feature = "tracing"))]
#[doc = include_str!("../docs/tracing.md")]
pub struct Tracing;

/// The page for those who come from other tools.
#[cfg(all(doctest, feature = "cuda", feature = "tracing"))]
#[doc = include_str!("../docs/migration.md")]
pub struct Migration;

/// The tutorial.
#[cfg(doctest)]
#[doc = include_str!("../docs/tutorial.md")]
pub struct Tutorial;
