warpline::namespace!("demo", " ");

/// Adds.
#[warpline::host_zone("demo.add\0")]
fn add() {}

fn main() {}
