//! The judgement: which ranks are late or slow, by how much, since when and why. Every number comes from a view of `ranks/sql/`. Who stands out is the
//! answer of [`warpline_judge`]: `own` fills its matrix, `late` its collectives, and `blame` says what the ranks did that are named.

mod blame;
mod differs;
mod late;
mod links;
mod own;
mod prepare;
mod since;
mod steps;

pub use blame::{BlamedStep, Cause, LateRank, Link, SlowRank};
pub use differs::{Called, Differs};
pub use late::Event;
pub use links::SlowLink;

pub(crate) use blame::blame;
pub(crate) use differs::differs;
pub(crate) use late::{Calls, margins};
pub(crate) use links::links;
pub(crate) use own::{one_in, own};
pub(crate) use prepare::{after_clocks, before_clocks, late};
