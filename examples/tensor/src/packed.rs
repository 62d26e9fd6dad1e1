//! Weights in 4 bits, as models are shipped, and the operation that unpacks them where they are used.

use std::sync::Arc;

use warpline::{HostStream, gpu_zone};

use crate::matrix::{Matrix, ShapeMismatch};

/// Weights that share a scale.
const GROUP: usize = 32;

/// A matrix in 4 bits a weight. A clone is another handle of the same weights.
#[derive(Clone, Debug)]
pub struct Packed {
    rows: usize,
    cols: usize,
    groups: Arc<[Group]>,
}

#[derive(Clone, Debug)]
struct Group {
    scale: f32,
    /// Two weights a byte, the first in the low half; 8 is zero.
    weights: [u8; GROUP / 2],
}

impl Packed {
    /// Packs `weights`, a row-major matrix with `cols` columns. A group that is not full is filled up with zeros.
    pub fn from_weights(weights: &[f32], cols: usize) -> Packed {
        let groups = weights.chunks(GROUP).map(Group::pack).collect();
        Packed { rows: weights.len() / cols.max(1), cols, groups }
    }

    /// The size of what is packed, in bytes.
    pub fn bytes(&self) -> usize {
        self.groups.len() * size_of::<Group>()
    }
}

impl Group {
    fn pack(weights: &[f32]) -> Group {
        let largest = weights.iter().fold(0.0_f32, |max, w| max.max(w.abs()));
        let scale = if largest > 0.0 { largest / 7.0 } else { 1.0 };
        let nibble = |i: usize| weights.get(i).map_or(8, |w| ((w / scale).round() + 8.0) as u8);
        Group { scale, weights: std::array::from_fn(|i| nibble(2 * i) | nibble(2 * i + 1) << 4) }
    }

    fn unpack(&self, out: &mut [f32]) {
        for (pair, byte) in out.chunks_mut(2).zip(self.weights) {
            for (weight, nibble) in pair.iter_mut().zip([byte & 15, byte >> 4]) {
                *weight = (f32::from(nibble) - 8.0) * self.scale;
            }
        }
    }
}

/// Unpacks 4-bit weights into `out`.
///
/// # Errors
/// `out` has another shape.
#[gpu_zone("tensor.unpack", level = fine, err, fields(bytes = packed.bytes()))]
pub fn unpack(stream: &HostStream, packed: &Packed, out: &Matrix) -> Result<(), ShapeMismatch> {
    let fits = (packed.rows, packed.cols) == out.shape();
    ShapeMismatch::unless(fits, "unpack", "an output of the shape that was packed", &[out])?;
    let (packed, out) = (packed.clone(), out.clone());
    stream.launch(move || {
        for (group, weights) in packed.groups.iter().zip(out.write().chunks_mut(GROUP)) {
            group.unpack(weights);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back_within_half_a_step() {
        let weights: Vec<f32> = (0..70).map(|i| (i as f32 * 0.7).sin()).collect();
        let (packed, out) = (Packed::from_weights(&weights, 7), Matrix::zeros(10, 7));
        let stream = HostStream::new("test");
        unpack(&stream, &packed, &out).unwrap();
        stream.synchronize().unwrap();
        for (was, is) in weights.iter().zip(out.to_vec()) {
            assert!((was - is).abs() <= 0.5 / 7.0 + 1e-6, "{was} came back as {is}");
        }
    }
}
