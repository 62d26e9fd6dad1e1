warpline::namespace!("demo");

/// Adds.
#[warpline::host_zone("demo.add")]
fn add() {}

/// Subtracts.
#[warpline::host_zone]
fn sub() {}

fn main() {}
