warpline::namespace!("demo", "vector arithmetic");

warpline::namespace!("more", "another one");

fn main() {}
