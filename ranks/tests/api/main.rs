//! The tests of `warpline-ranks`, as one program: each test program links all of DataFusion.

mod bad_input;
mod bounds;
mod hang;
mod large;
mod merged;
mod page;
mod query;
mod real;
mod report;
mod store;

warpline::namespace!("test", "zones of the tests of `warpline-ranks`");
