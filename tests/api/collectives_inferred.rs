//! What a collective's record has although the mark does not say it: the group, the number of elements and their type, from the
//! parameters of the function.
#![allow(unused_variables, reason = "a mark reads the parameters")]

use std::sync::Arc;

use warpline::collective::{DataType, Element, Message, ProcessGroup};
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, collective};
use warpline_tests::alone;

/// Elements of two bytes, named as the crate `half` names them.
#[allow(non_camel_case_types, reason = "as in the crate `half`")]
#[derive(Clone, Copy)]
struct bf16(#[allow(dead_code, reason = "only its size counts")] u16);

/// Not elements that a collective moves.
struct Particle {
    _at: [f32; 3],
}

/// A type that may hold elements.
struct Tensor;

/// A type that is called like cudarc's slice and has nothing of it.
struct CudaSlice<T>(Vec<T>);

/// What cudarc's `Comm` answers.
struct Comm {
    rank: usize,
    size: usize,
}

impl Comm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.size
    }
}

mod foreign {
    /// A communicator that answers in its own way.
    pub struct Comm;

    impl Comm {
        pub fn rank(&self) -> String {
            "first".to_owned()
        }
    }
}

/// In place.
#[collective("api.inferred.in_place", kind = "all_reduce")]
fn in_place(stream: &HostStream, group: &ProcessGroup, gradients: &mut [f32]) {}

/// Without a group.
#[collective("api.inferred.sent", kind = "all_gather")]
fn sent(stream: &HostStream, part: &[f64], whole: &mut [f64], is_last: bool, name: &str) {}

/// Only what receives, which may be the whole of all ranks.
#[collective("api.inferred.whole", kind = "all_gather")]
fn whole(stream: &HostStream, whole: &mut [i8]) {}

/// From one rank to all.
#[collective("api.inferred.weights", kind = "broadcast", root = root)]
fn weights(stream: &HostStream, root: usize, weights: &mut [bf16]) {}

/// Both ways.
#[collective("api.inferred.exchange", kind = "send_recv", peer = 1)]
fn exchange(stream: &HostStream, to: &[f32], from: &mut [f32]) {}

/// Explicit options win.
#[collective("api.inferred.written", kind = "all_reduce", count = 3, group = other)]
fn written(stream: &HostStream, group: &ProcessGroup, other: &ProcessGroup, values: &mut [u32]) {}

/// An explicit type of another size.
#[collective("api.inferred.packed", kind = "all_reduce", dtype = f16)]
fn packed(stream: &HostStream, values: &mut [u32]) {}

/// With `infer = none`.
#[collective("api.inferred.nothing", kind = "all_reduce", infer = none)]
fn nothing(stream: &HostStream, group: &ProcessGroup, values: &mut [f32]) {}

/// Nothing, because the parameters can be read in several ways.
#[collective("api.inferred.two", kind = "all_reduce")]
fn two(stream: &HostStream, a: &mut [f32], b: &mut [f32]) {}

/// Nothing, because the elements are not those of a collective.
#[collective("api.inferred.structs", kind = "all_reduce")]
fn structs(stream: &HostStream, particles: &mut [Particle]) {}

/// Nothing, because the data may be in the tensor.
#[collective("api.inferred.beside", kind = "all_reduce")]
fn beside(stream: &HostStream, tensor: &mut Tensor, scales: &[f32]) {}

/// Nothing, because integers that are only read may be sizes.
#[collective("api.inferred.sizes", kind = "all_reduce")]
fn sizes(stream: &HostStream, shape: &[u64]) {}

/// Nothing, because the type is another one.
#[collective("api.inferred.namesake", kind = "all_reduce")]
fn namesake(stream: &HostStream, group: u32, values: &mut CudaSlice<f32>) {
    values.0.clear();
}

/// Of any element.
#[collective("api.inferred.generic", kind = "reduce", root = 0)]
fn generic<T: Element>(stream: &HostStream, values: &mut [T]) {}

/// Of anything.
#[collective("api.inferred.anything", kind = "reduce", root = 0)]
fn anything<T>(stream: &HostStream, values: &mut [T]) {}

/// Beside a context that an option names.
#[collective("api.inferred.context", kind = "all_reduce", stream = context.0)]
fn context(context: &(HostStream, u32), values: &mut [f32]) {}

/// With a communicator.
#[collective("api.inferred.comm", kind = "all_gather")]
fn comm(stream: &HostStream, comm: &Arc<Comm>, part: &[f32]) {}

/// With a communicator that has a group beside it.
#[collective("api.inferred.named_comm", kind = "all_gather")]
fn named_comm(stream: &HostStream, comm: Comm, group: Option<Arc<ProcessGroup>>, part: &[f32]) {
    drop((comm, group));
}

/// With a communicator that is not NCCL's.
#[collective("api.inferred.foreign_comm", kind = "all_gather")]
fn foreign_comm(stream: &HostStream, comm: &foreign::Comm, part: &[f32]) {
    let _ = comm.rank();
}

/// Later.
#[collective("api.inferred.later", kind = "all_reduce")]
async fn later(stream: &HostStream, group: ProcessGroup, values: &mut [f32]) {
    drop(group);
    std::future::ready(()).await;
    values[0] = 1.0;
}

fn messages(work: impl FnOnce(&HostStream)) -> Vec<Message> {
    let _turn = alone();
    let zones = MemorySink::new(100);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("comm");
    work(&stream);
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "{report}");
    zones.take().into_iter().map(|zone| *zone.message.expect("a collective has a message")).collect()
}

/// The number of elements and their type.
fn elements(messages: &[Message]) -> Vec<(Option<u64>, Option<DataType>)> {
    messages.iter().map(|message| (message.count, message.dtype)).collect()
}

#[test]
fn a_record_has_what_the_parameters_show() {
    let (group, other) = (ProcessGroup::new("tp0", [4, 5], 1), ProcessGroup::new("dp", [0, 5], 1));
    let messages = messages(|stream| {
        in_place(stream, &group, &mut [0.0; 256]);
        sent(stream, &[0.0; 8], &mut [0.0; 16], true, "a");
        weights(stream, 1, &mut [bf16(0); 32]);
        exchange(stream, &[0.0; 2], &mut [0.0; 6]);
        written(stream, &group, &other, &mut [0; 9]);
        generic(stream, &mut [0_i64; 5]);
        context(&(HostStream::new("own"), 0), &mut [0.0; 7]);
        let mut values = [0.0; 4];
        let mut later = std::pin::pin!(later(stream, group.clone(), &mut values));
        let waker = std::task::Waker::noop();
        assert!(later.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_ready());
    });
    let expected = [
        (Some(256), Some(DataType::F32)),
        (Some(8), Some(DataType::F64)),
        (Some(32), Some(DataType::Bf16)),
        (Some(2), Some(DataType::F32)),
        (Some(3), Some(DataType::U32)),
        (Some(5), Some(DataType::I64)),
        (Some(7), Some(DataType::F32)),
        (Some(4), Some(DataType::F32)),
    ];
    // Zones on two streams are collected in the order of the streams.
    let mut found = elements(&messages);
    found.sort_by_key(|found| expected.iter().position(|expected| expected == found));
    assert_eq!(found, expected);
    let of = |dtype, count| {
        let is = |message: &&Message| (message.dtype, message.count) == (Some(dtype), Some(count));
        messages.iter().find(is).expect("recorded")
    };
    let groups = |message: &Message| message.group.as_ref().map(|group| group.name().to_owned());
    let in_place = of(DataType::F32, 256);
    assert_eq!((groups(in_place).as_deref(), in_place.bytes(), in_place.seq), (Some("tp0"), Some(1024), Some(0)));
    assert_eq!(groups(of(DataType::F64, 8)), None);
    assert_eq!(of(DataType::Bf16, 32).root, Some(1));
    assert_eq!(of(DataType::F32, 2).count_out, Some(6));
    assert_eq!(groups(of(DataType::U32, 3)).as_deref(), Some("dp"), "the option wins");
    assert_eq!(groups(of(DataType::F32, 4)).as_deref(), Some("tp0"));
}

#[test]
fn nothing_is_inferred_where_it_could_be_wrong() {
    let group = ProcessGroup::new("tp0", [4, 5], 1);
    let messages = messages(|stream| {
        whole(stream, &mut [0; 16]);
        packed(stream, &mut [0; 16]);
        nothing(stream, &group, &mut [0.0; 16]);
        two(stream, &mut [0.0; 16], &mut [0.0; 16]);
        structs(stream, &mut [Particle { _at: [0.0; 3] }]);
        beside(stream, &mut Tensor, &[0.0; 16]);
        sizes(stream, &[16]);
        namesake(stream, 0, &mut CudaSlice(vec![0.0; 16]));
        anything(stream, &mut [0.0_f32; 16]);
    });
    let nothing = (None, None);
    let expected = [
        (None, Some(DataType::I8)),
        (None, Some(DataType::F16)),
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
    ];
    assert_eq!(elements(&messages), expected);
    assert!(messages.iter().all(|message| message.group.is_none()), "{messages:?}");
}

#[test]
fn a_communicator_gives_size_and_rank_and_no_numbers() {
    let group = ProcessGroup::new("tp0", [4, 5], 1);
    let comm_of = |rank| Comm { rank, size: 4 };
    let messages = messages(|stream| {
        comm(stream, &Arc::new(comm_of(2)), &[0.0; 8]);
        comm(stream, &Arc::new(comm_of(2)), &[0.0; 8]);
        named_comm(stream, comm_of(2), Some(Arc::new(group.clone())), &[0.0; 8]);
        foreign_comm(stream, &foreign::Comm, &[0.0; 8]);
    });
    let groups: Vec<_> = messages
        .iter()
        .map(|message| message.group.as_ref().map(|group| (group.name(), group.size(), group.rank())))
        .collect();
    assert_eq!(groups, [Some(("unnamed", 4, 2)), Some(("unnamed", 4, 2)), Some(("tp0", 2, 1)), None]);
    assert_eq!(messages[0].bytes(), Some(4 * 8 * 4), "the size of an `all_gather` needs the number of ranks");
    let numbers: Vec<_> = messages.iter().map(|message| message.seq).collect();
    assert_eq!(numbers, [None, None, Some(0), None], "nothing tells two communicators apart");
}

#[test]
fn the_catalog_lists_only_what_stays_unknown() {
    let undescribed = |name: &str| {
        let range = warpline::catalog().find(name).unwrap_or_else(|| panic!("{name} is in the catalog"));
        range.undescribed().join(" ")
    };
    assert_eq!(undescribed("api.inferred.in_place"), "");
    assert_eq!(undescribed("api.inferred.sent"), "group");
    assert_eq!(undescribed("api.inferred.whole"), "count group");
    assert_eq!(undescribed("api.inferred.nothing"), "count dtype group");
    assert_eq!(undescribed("api.inferred.generic"), "count dtype group");
    assert_eq!(undescribed("api.inferred.comm"), "group", "a communicator has no name");
}
