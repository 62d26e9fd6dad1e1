//! In edition 2015 a marked function drops its values in the order of an unmarked one.
#![allow(missing_docs, unused, clippy::all)]

extern crate warpline;

mod shapes;

warpline::namespace!("edition", "functions of an edition");

warpline::range! {
    pub HOST = "edition.host": "A function or block on its thread.", kind = host;
    pub GPU = "edition.gpu": "A function or block on a stream.";
}

#[test]
fn marks_keep_the_order_of_drops() {
    shapes::run(&[shapes::differences, shapes::in_blocks::differences]);
}

#[test]
fn a_temporary_at_the_end_of_a_block_lives_as_long_as_in_the_edition() {
    let n = warpline::block::host_zone!(HOST, { &shapes::Buffer("host") }).len();
    let stream = shapes::stream();
    let m = warpline::block::gpu_zone!(GPU, stream, { &shapes::Buffer("gpu") }).len();
    assert_eq!((n, m), (4, 3));
}
