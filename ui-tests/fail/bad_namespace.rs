warpline::namespace!("Demo", "vector arithmetic");

fn main() {}
