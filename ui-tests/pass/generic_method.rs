use warpline::{HostStream, gpu_zone};

warpline::namespace!("demo", "vector arithmetic");

struct Layer<T>(T);

impl<T: Clone> Layer<T>
where
    T: Send,
{
    /// Clones.
    #[gpu_zone("demo.forward", stream = stream)]
    fn forward<'a, U>(&'a self, stream: &HostStream, other: U) -> (&'a T, U) {
        (&self.0, other)
    }
}

fn main() {
    let layer = Layer(1);
    assert_eq!(layer.forward(&HostStream::new("s"), 2), (&1, 2));
}
