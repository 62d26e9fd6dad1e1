//! What this crate takes from `warpline` that is not part of its public API. No other file names `warpline`.

pub(crate) use warpline::__private::{counted, counted_as, proto};
