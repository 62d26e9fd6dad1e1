//! The operations of a transformer block. Each checks its shapes, queues its work and returns; each is one fine range.
//! On an in-process stream the work is the closure that stands here, on a CUDA stream the kernel of the same name.
#![allow(unsafe_code)]

use warpline::gpu_zone;

use crate::cuda::{Grid, Kernel, Tokens};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::stream::{On, Stream};

/// Looks up one row of `table` for each token.
///
/// # Errors
/// A token beyond the table, or an output of another shape.
#[gpu_zone("tensor.embed", level = fine, err, fields(tokens = tokens.len()))]
pub fn embed(stream: &Stream, tokens: Vec<usize>, table: &Matrix, out: &Matrix) -> Result<(), Error> {
    let fits = out.shape() == (tokens.len(), table.cols()) && tokens.iter().all(|&token| token < table.rows());
    Error::unless(fits, "embed", "tokens within the table and an output row for each", &[table, out])?;
    let cols = out.cols();
    match stream.with("embed", [table, out])? {
        On::Host(stream, [table, out]) => stream.launch(move || {
            let (table, mut out) = (table.read(), out.write());
            for (row, token) in out.chunks_exact_mut(cols).zip(tokens) {
                row.copy_from_slice(&table[token * cols..][..cols]);
            }
        }),
        On::Gpu(queue, matrices) => {
            for (i, some) in tokens.chunks(Tokens::MOST).enumerate() {
                let (grid, sizes) = (Grid::Elements(some.len() * cols), [cols, i * Tokens::MOST, some.len()]);
                // SAFETY: the kernel's own matrices and sizes; the shapes and the tokens fit, as was just checked.
                unsafe { queue.launch_with(Some(&Tokens::new(some)), Kernel::Embed, grid, &matrices, &sizes) }?;
            }
        }
    }
    Ok(())
}

/// Multiplies `a` (m×k) by `b` (k×n) into `out`.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.matmul", level = fine, err, fields(m = a.rows(), n = b.cols(), k = a.cols()))]
pub fn matmul(stream: &Stream, a: &Matrix, b: &Matrix, out: &Matrix) -> Result<(), Error> {
    let fits = a.cols() == b.rows() && out.shape() == (a.rows(), b.cols());
    Error::unless(fits, "matmul", "m x k, k x n and an output of m x n", &[a, b, out])?;
    let (m, k, n) = (a.rows(), a.cols(), b.cols());
    match stream.with("matmul", [a, b, out])? {
        On::Host(stream, [a, b, out]) => stream.launch(move || {
            let (a, b, mut out) = (a.read(), b.read(), out.write());
            // Four rows of `a` at a time: each row of `b` is read once for the four.
            for (a, out) in a.chunks(4 * k).zip(out.chunks_mut(4 * n)) {
                out.fill(0.0);
                for (p, b) in b.chunks_exact(n).enumerate() {
                    for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
                        add_scaled(a[p], b, out);
                    }
                }
            }
        }),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrices and sizes; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::Matmul, Grid::Tiles(m, n), &matrices, &[m, k, n]) }?;
        }
    }
    Ok(())
}

/// Normalises each row of `x` to mean 0 and variance 1 into `out`.
///
/// # Errors
/// The shapes differ.
#[gpu_zone("tensor.layernorm", level = fine, err, fields(rows = x.rows()))]
pub fn layernorm(stream: &Stream, x: &Matrix, out: &Matrix) -> Result<(), Error> {
    Error::unless(x.shape() == out.shape(), "layernorm", "an output of the input's shape", &[x, out])?;
    let (rows, cols) = x.shape();
    match stream.with("layernorm", [x, out])? {
        On::Host(stream, [x, out]) => stream.launch(move || {
            let (x, mut out) = (x.read(), out.write());
            for (x, out) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols)) {
                let mean = x.iter().sum::<f32>() / cols as f32;
                let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / cols as f32;
                let scale = 1.0 / (variance + 1e-5).sqrt();
                for (x, out) in x.iter().zip(out) {
                    *out = (x - mean) * scale;
                }
            }
        }),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrices and size; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::Layernorm, Grid::Rows(rows), &matrices, &[cols]) }?;
        }
    }
    Ok(())
}

/// Scores each token of `qkv` (queries, keys and values side by side) against itself and the tokens before it, for every
/// head: row `head * tokens + token` of `out`. Later tokens score minus infinity.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.scores", level = fine, err, fields(heads = heads, tokens = qkv.rows()))]
pub fn scores(stream: &Stream, heads: usize, qkv: &Matrix, out: &Matrix) -> Result<(), Error> {
    let (tokens, width) = (qkv.rows(), qkv.cols() / 3);
    let fits = qkv.cols() == 3 * width && heads > 0 && width % heads == 0 && out.shape() == (heads * tokens, tokens);
    Error::unless(fits, "scores", "t x 3w, w a multiple of the heads, and (heads * t) x t", &[qkv, out])?;
    let count = out.len();
    match stream.with("scores", [qkv, out])? {
        On::Host(stream, [qkv, out]) => stream.launch(move || {
            let (qkv, mut out) = (qkv.read(), out.write());
            let part = width / heads;
            let scale = 1.0 / (part as f32).sqrt();
            for (i, row) in out.chunks_exact_mut(tokens).enumerate() {
                let (head, token) = (i / tokens, i % tokens);
                let query = &qkv[token * 3 * width + head * part..][..part];
                for (other, score) in row.iter_mut().enumerate() {
                    let key = &qkv[other * 3 * width + width + head * part..][..part];
                    let product = || query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>() * scale;
                    *score = if other <= token { product() } else { f32::NEG_INFINITY };
                }
            }
        }),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrices and sizes; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::Scores, Grid::Elements(count), &matrices, &[heads, tokens, width]) }?;
        }
    }
    Ok(())
}

/// Turns each row of `x` into weights that sum to 1, in place.
///
/// # Errors
/// `x` is of another device than the stream.
#[gpu_zone("tensor.softmax", level = fine, err, fields(rows = x.rows()))]
pub fn softmax(stream: &Stream, x: &Matrix) -> Result<(), Error> {
    let (rows, cols) = x.shape();
    match stream.with("softmax", [x])? {
        On::Host(stream, [x]) => stream.launch(move || {
            for row in x.write().chunks_exact_mut(cols) {
                let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                row.iter_mut().for_each(|v| *v = (*v - largest).exp());
                let sum: f32 = row.iter().sum();
                row.iter_mut().for_each(|v| *v /= sum);
            }
        }),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrix and size.
            unsafe { queue.launch(Kernel::Softmax, Grid::Rows(rows), &matrices, &[cols]) }?;
        }
    }
    Ok(())
}

/// Sums the values of `qkv` by the weights that [`softmax`] made of [`scores`], for every head, into `out`.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.attend", level = fine, err, fields(heads = heads, tokens = qkv.rows()))]
pub fn attend(stream: &Stream, heads: usize, weights: &Matrix, qkv: &Matrix, out: &Matrix) -> Result<(), Error> {
    let (tokens, width) = out.shape();
    let fits = heads > 0
        && width % heads == 0
        && qkv.shape() == (tokens, 3 * width)
        && weights.shape() == (heads * tokens, tokens);
    Error::unless(fits, "attend", "(heads * t) x t, t x 3w and an output of t x w", &[weights, qkv, out])?;
    let count = out.len();
    match stream.with("attend", [weights, qkv, out])? {
        On::Host(stream, [weights, qkv, out]) => stream.launch(move || {
            let (weights, qkv, mut out) = (weights.read(), qkv.read(), out.write());
            let part = width / heads;
            out.fill(0.0);
            for (i, weights) in weights.chunks_exact(tokens).enumerate() {
                let (head, token) = (i / tokens, i % tokens);
                let out = &mut out[token * width + head * part..][..part];
                for (other, weight) in weights.iter().enumerate() {
                    add_scaled(*weight, &qkv[other * 3 * width + 2 * width + head * part..][..part], out);
                }
            }
        }),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrices and sizes; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::Attend, Grid::Elements(count), &matrices, &[heads, tokens, width]) }?;
        }
    }
    Ok(())
}

/// Applies the GELU (its tanh form) to each element of `x`, in place.
///
/// # Errors
/// `x` is of another device than the stream.
#[gpu_zone("tensor.gelu", level = fine, err, fields(elements = x.len()))]
pub fn gelu(stream: &Stream, x: &Matrix) -> Result<(), Error> {
    let count = x.len();
    match stream.with("gelu", [x])? {
        On::Host(stream, [x]) => stream.launch(move || {
            for v in x.write().iter_mut() {
                *v = 0.5 * *v * (1.0 + (0.797_884_6 * (*v + 0.044_715 * v.powi(3))).tanh());
            }
        }),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrix and size.
            unsafe { queue.launch(Kernel::Gelu, Grid::Elements(count), &matrices, &[count]) }?;
        }
    }
    Ok(())
}

/// Adds `x` to `out`, element by element.
///
/// # Errors
/// The shapes differ.
#[gpu_zone("tensor.add", level = fine, err, fields(elements = x.len()))]
pub fn add(stream: &Stream, x: &Matrix, out: &Matrix) -> Result<(), Error> {
    Error::unless(x.shape() == out.shape(), "add", "two matrices of one shape", &[x, out])?;
    let count = out.len();
    match stream.with("add", [x, out])? {
        On::Host(stream, [x, out]) => stream.launch(move || add_scaled(1.0, &x.read(), &mut out.write())),
        On::Gpu(queue, matrices) => {
            // SAFETY: the kernel's own matrices and size; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::Add, Grid::Elements(count), &matrices, &[count]) }?;
        }
    }
    Ok(())
}

fn add_scaled(factor: f32, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.iter().zip(out) {
        *out += factor * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Packed, unpack};

    fn on_a_stream(queue: impl FnOnce(&Device, &Stream)) {
        let device = Device::host();
        let stream = device.stream("test").unwrap();
        queue(&device, &stream);
        stream.synchronize().unwrap();
    }

    #[test]
    fn matmul_agrees_with_the_definition() {
        on_a_stream(|device, stream| {
            let a = Matrix::from_fn(device, 5, 3, |row, col| (row * 3 + col) as f32).unwrap();
            let b = Matrix::from_fn(device, 3, 2, |row, col| row as f32 - 2.0 * col as f32).unwrap();
            let out = Matrix::zeros(device, 5, 2).unwrap();
            matmul(stream, &a, &b, &out).unwrap();
            stream.synchronize().unwrap();
            let (a, b) = (a.to_vec().unwrap(), b.to_vec().unwrap());
            let wanted: Vec<f32> =
                (0..10).map(|i| (0..3).map(|p| a[i / 2 * 3 + p] * b[p * 2 + i % 2]).sum::<f32>()).collect();
            assert_eq!(out.to_vec().unwrap(), wanted);
        });
    }

    #[test]
    fn softmax_rows_sum_to_one_and_masked_scores_weigh_nothing() {
        on_a_stream(|device, stream| {
            let masked = |row, col| if col > row + 1 { f32::NEG_INFINITY } else { col as f32 * 100.0 };
            let x = Matrix::from_fn(device, 2, 3, masked).unwrap();
            softmax(stream, &x).unwrap();
            stream.synchronize().unwrap();
            let x = x.to_vec().unwrap();
            assert!((x[..3].iter().sum::<f32>() - 1.0).abs() < 1e-6 && (x[3..].iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert_eq!(x[2], 0.0);
        });
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        on_a_stream(|device, stream| {
            let zeros = || Matrix::zeros(device, 2, 3).unwrap();
            let (a, b) = (zeros(), zeros());
            let error = matmul(stream, &a, &b, &zeros()).unwrap_err().to_string();
            assert_eq!(error, "matmul got 2x3, 2x3, 2x3; it needs m x k, k x n and an output of m x n");
            let error = add(stream, &a, &a).unwrap_err().to_string();
            assert_eq!(error, "add got its output as an input; give it a matrix of its own");
        });
    }

    /// Every operation on sizes that fill no block of threads, on one device.
    fn all_operations(device: &Device) -> Vec<Vec<f32>> {
        let (tokens, width, heads) = (300, 35, 5);
        let matrix = |rows, cols| {
            let mut noise = 1_u32;
            let element = move |_, _| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 8) as f32 / (1 << 24) as f32 - 0.5
            };
            Matrix::from_fn(device, rows, cols, element).unwrap()
        };
        let stream = device.stream("test").unwrap();
        let (table, x, normed) = (matrix(61, width), matrix(tokens, width), matrix(tokens, width));
        let (wide, qkv) = (matrix(width, 3 * width), matrix(tokens, 3 * width));
        let (weights, context) = (matrix(heads * tokens, tokens), matrix(tokens, width));
        let packed = Packed::from_weights(device, &wide.to_vec().unwrap(), 3 * width).unwrap();
        let unpacked = matrix(width, 3 * width);
        let queued = [
            embed(&stream, (0..tokens).map(|i| i * 7 % 61).collect(), &table, &x),
            layernorm(&stream, &x, &normed),
            unpack(&stream, &packed, &unpacked),
            matmul(&stream, &normed, &unpacked, &qkv),
            scores(&stream, heads, &qkv, &weights),
            softmax(&stream, &weights),
            attend(&stream, heads, &weights, &qkv, &context),
            gelu(&stream, &qkv),
            add(&stream, &x, &context),
        ];
        assert_eq!(queued, [const { Ok(()) }; 9]);
        stream.synchronize().unwrap();
        [x, normed, unpacked, qkv, weights, context].iter().map(|matrix| matrix.to_vec().unwrap()).collect()
    }

    #[test]
    #[ignore = "it needs an NVIDIA GPU and NVRTC"]
    fn a_gpu_computes_what_the_host_does() {
        let (gpu, which) = Device::find();
        assert!(which.starts_with("CUDA"), "{which}");
        for (host, gpu) in all_operations(&Device::host()).iter().zip(&all_operations(&gpu)) {
            assert_eq!(host.len(), gpu.len());
            let is_off = |(host, gpu): &(&f32, &f32)| (*host - *gpu).abs() > 1e-4 || gpu.is_nan();
            assert_eq!(host.iter().zip(gpu).find(is_off), None);
        }
        let stream = Device::host().stream("test").unwrap();
        let elsewhere = Matrix::zeros(&gpu, 2, 3).unwrap();
        assert_eq!(gelu(&stream, &elsewhere), Err(Error::OtherDevice("gelu")));
    }
}
