//! In editions 2018, 2021 and 2024 a marked function drops its values in the order of an unmarked one.
#![allow(missing_docs, unused, clippy::all)]

mod later;
mod shapes;

warpline::namespace!("edition", "functions of an edition");

warpline::range! {
    pub HOST = "edition.host": "A function or block on its thread.", kind = host;
    pub GPU = "edition.gpu": "A function or block on a stream.";
}

#[test]
fn marks_keep_the_order_of_drops() {
    shapes::run(&[shapes::differences, shapes::in_blocks::differences, later::differences]);
}
