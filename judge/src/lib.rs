//! The judge: which rank of a job takes longer itself than its peers, and how well the clocks of hosts are known.
//!
//! `warpline stragglers` fills the model from traces and `warpline-ranks` from tables; both ask this crate, so that
//! both name the same rank of the same job. [`own::Own`] is the time that each rank took itself in each step, and says
//! which ranks stand out. A [`Met`] is a collective in which ranks met: who came last, by how much, how uncertain that
//! is, and how long it took once all had come; [`links`] finds groups that take too long from then on. [`clocks`]
//! compares the clocks of hosts. [`tables`] lists the columns of the tables that ranks write, and [`progress`] the keys
//! of their progress files. Nothing here reads a file or knows an engine.
//!
//! # The rules
//! Where there was a choice, the rule is the one that is correct on jobs whose truth is known (`ranks/tests/truth`),
//! with few ranks and with many.
//!
//! * **Own time** of a rank in a step is the step without its collectives. Waiting is not in it, so no chain of waits
//!   has to be followed, and a delay counts whole, however it is spread over the step. It is compared with the median
//!   of the other ranks that do the same work, in the same step. It needs one clock, the rank's own, and no collective
//!   has to be recorded.
//! * **Events** are steps far beyond the noise of all ranks: eight robust deviations. A rank is named if it has more of
//!   them than chance gives to one of so many; then the others are judged without it. Pauses and heavy tails hit all
//!   ranks alike, so no rank has too many. A few events are named if they are far, and cost ten times as much as those
//!   of all others that are not named.
//! * **Slower ranks** have a mean of many steps, of the run or of a half, a quarter and so on, that is far beyond the
//!   means of the other ranks: six robust deviations, and more where ranks are few. The spread of devices is less.
//! * **The start** of a run is not judged: its first step, and those after it that take longer at all ranks.
//! * **Two or three ranks** do not show by how much ranks differ. A rank is named if it takes longer by more than a
//!   twentieth of a step, in more steps than chance gives to one of two, or in steps far beyond the noise of one rank:
//!   what lasts is not noise. Its few pauses count if one is longer than a step.
//! * **Cost.** What a rank took longer in its steps adds up. Less than 0.05 % of the run is not named.
//! * **Links.** A group whose collectives take at least twice as long as those of its siblings, once all ranks have
//!   come, has a slow link.
//!
//! # What no rule detects
//! No rule detects that half of the ranks that do the same work are equally slow, or a wait that no mark covers, which
//! is part of the time of the rank that waits.

#![forbid(unsafe_code)]

pub mod clocks;
mod late;
pub mod links;
pub mod own;
pub mod progress;
pub mod tables;

pub use late::{Collectives, Key, Met, SYNCHRONISING, median};
