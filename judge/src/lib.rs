//! The judge: which rank of a job is late, whom it waited for itself, and how well the clocks of hosts are known.
//!
//! `warpline stragglers` fills the model from traces and `warpline-ranks` from tables; both ask this crate, so that both name the same rank of the
//! same job. The model is a [`Met`] for each collective in which ranks met: who came last, by how much, how uncertain that is, and how long
//! the collective took once all had come. [`Collectives`] says which late arrivals stand out, [`follow`](blame::follow) goes back from one to
//! the rank whose own delay explains it, [`cost`](blame::cost) and [`named`](blame::named) say which ranks cost the run so much that they are named,
//! and [`clocks`] compares the clocks of hosts. [`tables`] lists the columns of the tables that ranks write. Nothing here reads a file or knows an engine.
//!
//! # The rules
//! Where there was a choice, the rule is the one that is right on jobs whose truth is known (`tests/synthetic.rs`), with few calls and with many.
//!
//! * **Lateness** is how much later than the *mean* of the others the last rank came. That is what it cost each of them, so lateness adds up, and a
//!   reader of tables gets it from sums. A rank that always comes early raises it in every call alike, so it makes nobody stand out.
//! * **Floor.** A lateness of 50 us never matters, nor one within three times its error: the error of a clock's estimate holds 99 of 100 times, and a
//!   run has thousands of collectives. There is no floor that grows with the step: twenty late arrivals of 0.1 ms in each step of 150 ms
//!   cost more than one of 1 ms. What matters is what a rank costs the whole run: less than 0.05 % of it is not named.
//! * **Far later than usual** is beyond ten robust deviations of what is usual among collectives of the group, with one operation; where that group
//!   has fewer than ten, of all groups of its size. Groups differ in what lies between their ranks, and a short run has few calls of each.
//!   What is usual leaves out the ranks that are last more often than by chance, by three deviations: with them, a rank that holds up most
//!   calls *is* what is usual, and hides both itself and others.
//! * **Again and again** is last in more than half of the group's collectives, and more often than by chance by six deviations. Of such a rank,
//!   those arrivals count that are at least half as late as it is in the median, because now and then it is last by chance as well.
//! * **Incomplete.** A collective that lacks a rank of its group counts only if those that came can have waited for the missing one no longer than a tenth
//!   of the lateness.
//! * **Whom it waited for.** A late rank that had itself waited for at least half of its lateness, since its last collective of the same group, was
//!   late because of the one that it waited for. What it waited before that explains nothing: that collective had brought the group
//!   together. A wait that an end which was not timed, or a collective that is not judged, leaves open makes no verdict.
//! * **Cost.** In one group, late arrivals add up, because each collective brings its ranks together. Across groups they do not: one delay
//!   is seen in several. So a rank costs, in each step, what it cost the group that it held up longest.
//!
//! # What no rule sees
//! A host whose ranks always leave a collective later than the others, as in a chain, moves the estimate of its clock by that time; the certified
//! bounds stay right. A reader that has each arrival says whether they prove who came last ([`Met::is_certain`]).

#![forbid(unsafe_code)]

pub mod blame;
pub mod clocks;
mod late;
pub mod tables;

pub use late::{Collectives, Form, Key, LEAST_CALLS, Met, SYNCHRONISING, median};
