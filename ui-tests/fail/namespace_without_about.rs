warpline::namespace!("demo");

fn main() {}
