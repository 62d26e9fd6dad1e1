warpline::namespace!("demo", "vector arithmetic");

warpline::range! {
    ADD = "demo.add";
}

fn main() {}
