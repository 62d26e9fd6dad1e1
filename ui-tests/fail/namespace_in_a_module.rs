mod inner {
    warpline::namespace!("demo", "vector arithmetic");
}

fn main() {}
