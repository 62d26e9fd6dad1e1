//! The clocks of hosts beside one another: `load` asks the engine for the meetings of hosts and makes the table `clocks` of what
//! [`warpline_judge::clocks`] finds in them, and `write` writes it beside the other tables.

mod load;
mod write;

pub use load::{Clocks, Options, clocks};
pub use write::write;
