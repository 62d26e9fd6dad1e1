use warpline::host_zone;

warpline::namespace!("demo", "vector arithmetic");

/// Loads.
#[host_zone("demo.load", fields(rows = 1, name = name))]
fn load(name: String) -> String {
    name
}

/// Keeps.
#[host_zone("demo.keep", fields(name = std::borrow::Cow::Borrowed(name)))]
fn keep(name: &str) {}

fn main() {}
