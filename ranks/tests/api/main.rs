//! The tests of `warpline-ranks`, as one program: each test program links all of DataFusion.

mod bad_input;
mod bounds;
mod command;
mod compacting;
mod damage;
mod foreign;
mod generated;
mod hang;
mod large;
mod limits;
mod merged;
mod page;
mod query;
mod real;
mod report;
mod same_verdict;
mod sessions;
mod store;

warpline::namespace!("test", "zones of the tests of `warpline-ranks`");
