//! The numbers that the block computes with: every rank, and the reference, can make any of them.

use crate::block::Shape;

/// A number between -1 and 1 that depends on all of these, and on nothing else.
fn noise(what: usize, row: usize, col: usize) -> f32 {
    let mut bits = (what as u64 + 1) << 48 ^ (row as u64) << 24 ^ col as u64;
    for _ in 0..2 {
        bits = (bits ^ bits >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (bits >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// An element of the input of this number.
pub(crate) fn input(number: usize, row: usize, col: usize) -> f32 {
    noise(10 + number, row, col)
}

/// Queries, keys and values side by side.
pub(crate) fn qkv(shape: Shape, row: usize, col: usize) -> f32 {
    2.0 * noise(0, row, col) / (shape.width as f32).sqrt()
}

pub(crate) fn out(shape: Shape, row: usize, col: usize) -> f32 {
    noise(1, row, col) / (shape.width as f32).sqrt()
}

pub(crate) fn up(shape: Shape, row: usize, col: usize) -> f32 {
    noise(2, row, col) / (shape.width as f32).sqrt()
}

pub(crate) fn down(shape: Shape, row: usize, col: usize) -> f32 {
    noise(3, row, col) / (shape.hidden() as f32).sqrt()
}
