//! What is inferred compiles with parameters of any type, in a crate that forbids every lint.
#![forbid(warnings, unused, unsafe_code)]

use std::sync::Arc;

use warpline::collective::ProcessGroup;
use warpline::{HostStream, collective};

warpline::namespace!("demo", "vector arithmetic");

pub struct Particle(pub [f32; 3]);
pub struct Comm;
pub struct CudaSlice<'a, T>(pub &'a [T]);
pub struct Tensors<'a> {
    pub stream: &'a HostStream,
    pub group: &'a ProcessGroup,
    pub buf: Vec<f32>,
}

impl Comm {
    /// Takes what cudarc's does not, and moves itself.
    pub fn rank(self) -> u32 {
        7
    }
}

/// Sums over all ranks.
#[collective(kind = "all_reduce")]
pub fn sum(stream: &HostStream, group: &ProcessGroup, buf: &mut [f32]) {
    buf[0] = group.size() as f32;
}

/// Sums what is moved in.
#[collective(kind = "all_reduce")]
pub fn owned(stream: HostStream, group: Arc<ProcessGroup>, buf: Vec<f32>) {
    drop((stream, group, buf));
}

/// Sums what a pattern binds.
#[collective(kind = "all_reduce")]
pub fn bound(Tensors { stream, group, buf }: &mut Tensors<'_>, n: usize) {
    buf.truncate(n);
}

/// Sums structs.
#[collective(kind = "all_reduce")]
pub fn structs(stream: &HostStream, group: i32, comm: &Comm, particles: &mut [Particle]) {
    particles[0].0[0] = group as f32;
}

/// Moves types of the same names.
#[collective(kind = "all_gather")]
pub fn namesakes<'a, T>(stream: &HostStream, comm: Comm, part: &CudaSlice<'a, T>, whole: &'a mut CudaSlice<'a, T>) {
    whole.0 = &part.0[..comm.rank() as usize];
}

/// Only some elements are those of a collective.
#[collective(kind = "all_reduce")]
pub fn generic<'a, T: Clone, const N: usize>(stream: &HostStream, _rows: [T; N], buf: &'a mut [T]) -> Option<&'a mut T> {
    buf.first_mut()
}

/// Infers nothing.
#[collective(kind = "broadcast", infer = none)]
pub fn off(stream: &HostStream, group: &ProcessGroup, buf: &mut [f32]) {
    buf[0] = group.rank() as f32;
}

/// Ends after its parameters.
#[collective(kind = "all_reduce")]
pub fn returned(stream: Arc<HostStream>, group: &ProcessGroup, buf: &mut [f32]) -> impl Future<Output = ()> + use<> {
    buf[0] = group.size() as f32;
    async move {}
}

/// Moves its parameters.
#[collective(kind = "all_reduce")]
pub async fn later(stream: Arc<HostStream>, group: ProcessGroup, buf: &mut [f32]) {
    drop(group);
    std::future::ready(()).await;
    buf[0] = 1.0;
}

fn is_send(_: impl Send) {}

macro_rules! sums {
    ($name:ident, $element:ty) => {
        /// Sums over all ranks.
        #[collective(kind = "all_reduce")]
        pub fn $name(stream: &HostStream, group: &ProcessGroup, buf: &mut [$element]) {
            buf.reverse();
        }
    };
}

sums!(of_floats, f32);
sums!(of_text, String);

fn main() {
    let (stream, group) = (HostStream::new("s"), ProcessGroup::new("tp0", [0, 1], 0));
    sum(&stream, &group, &mut [1.0; 4]);
    owned(HostStream::new("s"), Arc::new(group.clone()), vec![1.0]);
    bound(&mut Tensors { stream: &stream, group: &group, buf: vec![1.0; 2] }, 1);
    structs(&stream, 1, &Comm, &mut [Particle([0.0; 3])]);
    namesakes(&stream, Comm, &CudaSlice(&[1; 8]), &mut CudaSlice(&[1; 8]));
    assert_eq!(generic(&stream, [0], &mut [1]), Some(&mut 1));
    off(&stream, &group, &mut [1.0]);
    let shared = Arc::new(stream);
    is_send(returned(Arc::clone(&shared), &group, &mut [1.0]));
    is_send(later(Arc::clone(&shared), group.clone(), &mut [1.0]));
    of_floats(&shared, &group, &mut [1.0]);
    of_text(&shared, &group, &mut ["a".to_owned()]);
}
