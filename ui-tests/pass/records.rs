//! With feature `enable` a zone is recorded, without it none is: what shows that the cases are built as the test says.

use warpline::{HostStream, Session, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

/// Adds.
#[gpu_zone("demo.add")]
fn add(stream: &HostStream) {}

fn main() {
    let session = Session::builder().start().expect("no other session");
    add(&HostStream::new("s"));
    let is_on = session.finish().recorded == 1;
    assert_eq!(is_on, cfg!(feature = "enable"));
    if let Ok(wanted) = std::env::var("WARPLINE_UI_TESTS") {
        assert_eq!(if is_on { "on" } else { "off" }, wanted);
    }
}
