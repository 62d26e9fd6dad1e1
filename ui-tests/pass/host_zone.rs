use warpline::host_zone;

warpline::namespace!("demo", "vector arithmetic");

/// Loads.
#[host_zone("demo.load", fields(n = n))]
fn load(n: u32) -> u32 {
    n
}

fn main() {
    assert_eq!(load(2), 2);
}
