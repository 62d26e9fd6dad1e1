//! Weights in 4 bits, as models are shipped, and the operation that unpacks them where they are used.
#![allow(unsafe_code)]

use std::sync::Arc;

use warpline::gpu_zone;

use crate::cuda::{Grid, Kernel, Memory};
use crate::device::{Device, Kind};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::stream::{On, Stream};

/// Weights that share a scale.
const GROUP: usize = 32;

/// A matrix in 4 bits a weight. A clone is another handle of the same weights.
#[derive(Clone, Debug)]
pub struct Packed {
    rows: usize,
    cols: usize,
    groups: Groups,
}

#[derive(Clone, Debug)]
enum Groups {
    Host(Arc<[Group]>),
    Gpu(Arc<Memory>),
}

/// Lies in the GPU's memory as it lies here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Group {
    scale: f32,
    /// Two weights a byte, the first in the low half; 8 is zero.
    weights: [u8; GROUP / 2],
}

impl Packed {
    /// Packs `weights`, a row-major matrix with `cols` columns. A group that is not full is filled up with zeros.
    ///
    /// # Errors
    /// The GPU has no room for it.
    pub fn from_weights(device: &Device, weights: &[f32], cols: usize) -> Result<Packed, Error> {
        let groups: Arc<[Group]> = weights.chunks(GROUP).map(Group::pack).collect();
        let groups = match &device.0 {
            Kind::Host => Groups::Host(groups),
            Kind::Gpu(gpu) => Groups::Gpu(Arc::new(gpu.upload(&groups)?)),
        };
        Ok(Packed { rows: weights.len() / cols.max(1), cols, groups })
    }

    /// The size of what is packed, in bytes.
    pub fn bytes(&self) -> usize {
        (self.rows * self.cols).div_ceil(GROUP) * size_of::<Group>()
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
pub fn unpack(stream: &Stream, packed: &Packed, out: &Matrix) -> Result<(), Error> {
    let fits = (packed.rows, packed.cols) == out.shape();
    Error::unless(fits, "unpack", "an output of the shape that was packed", &[out])?;
    match (stream.with("unpack", [out])?, &packed.groups) {
        (On::Host(stream, [out]), Groups::Host(groups)) => {
            let groups = Arc::clone(groups);
            stream.launch(move || {
                for (group, weights) in groups.iter().zip(out.write().chunks_mut(GROUP)) {
                    group.unpack(weights);
                }
            });
        }
        (On::Gpu(queue, [weights]), Groups::Gpu(groups)) => {
            let count = out.len();
            // SAFETY: the kernel's own arguments; the groups hold as many weights as the output, as was just checked.
            unsafe { queue.launch(Kernel::Unpack, Grid::Elements(count), &[groups, weights], &[count]) }?;
        }
        _ => return Err(Error::OtherDevice("unpack")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back_within_half_a_step() {
        let device = Device::host();
        let weights: Vec<f32> = (0..70).map(|i| (i as f32 * 0.7).sin()).collect();
        let packed = Packed::from_weights(&device, &weights, 7).unwrap();
        let out = Matrix::zeros(&device, 10, 7).unwrap();
        let stream = device.stream("test").unwrap();
        unpack(&stream, &packed, &out).unwrap();
        stream.synchronize().unwrap();
        for (was, is) in weights.iter().zip(out.to_vec().unwrap()) {
            assert!((was - is).abs() <= 0.5 / 7.0 + 1e-6, "{was} came back as {is}");
        }
    }
}
