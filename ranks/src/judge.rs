//! The judgement: which ranks are late or slow, by how much, since when and why. Every number comes from a view of `ranks/sql/`. What stands out,
//! and the walk from a wait to its cause, is of [`warpline_judge`]: `late` fills its model, and `steps` says what a rank did before. A rank is
//! named only if noise and the clocks' error cannot explain it.

mod blame;
mod late;
mod prepare;
mod since;
mod slow;
mod steps;
mod unclocked;

pub use blame::{BlamedStep, Cause, LateRank, Link};
pub use late::Event;
pub use slow::SlowRank;

pub(crate) use blame::{Blamed, blame};
pub(crate) use late::{Calls, margins};
pub(crate) use prepare::{after_clocks, before_clocks, late};
pub(crate) use slow::slow;
pub(crate) use unclocked::without_clocks;
