//! The judgement: which ranks are late or slow, by how much, since when and why. Every number comes from a view of `ranks/sql/`;
//! here is what a query says badly: what stands out (`late`), and the walk from a wait to its cause (`blame`). A rank is named only
//! if noise and the clocks' error cannot explain it.

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
pub(crate) use late::{Calls, events, margins};
pub(crate) use prepare::{after_clocks, before_clocks, late};
pub(crate) use slow::slow;
pub(crate) use unclocked::without_clocks;

/// The middle of numbers; 0 of none.
pub(crate) fn median(values: &mut [i64]) -> i64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(middle).1 }
}
