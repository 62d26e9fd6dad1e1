//! The operations of a transformer block. Each checks its shapes, queues its work and returns; each is one fine range.

use warpline::{HostStream, gpu_zone};

use crate::matrix::{Matrix, ShapeMismatch};

/// Looks up one row of `table` for each token.
///
/// # Errors
/// A token beyond the table, or an output of another shape.
#[gpu_zone("tensor.embed", level = fine, err, fields(tokens = tokens.len()))]
pub fn embed(stream: &HostStream, tokens: Vec<usize>, table: &Matrix, out: &Matrix) -> Result<(), ShapeMismatch> {
    let fits = out.shape() == (tokens.len(), table.cols()) && tokens.iter().all(|&token| token < table.rows());
    ShapeMismatch::unless(fits, "embed", "tokens within the table and an output row for each", &[table, out])?;
    let (table, out) = (table.clone(), out.clone());
    stream.launch(move || {
        let (table, mut out, cols) = (table.read(), out.write(), out.cols());
        for (row, token) in out.chunks_exact_mut(cols).zip(tokens) {
            row.copy_from_slice(&table[token * cols..][..cols]);
        }
    });
    Ok(())
}

/// Multiplies `a` (m×k) by `b` (k×n) into `out`.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.matmul", level = fine, err, fields(m = a.rows(), n = b.cols(), k = a.cols()))]
pub fn matmul(stream: &HostStream, a: &Matrix, b: &Matrix, out: &Matrix) -> Result<(), ShapeMismatch> {
    let fits = a.cols() == b.rows() && out.shape() == (a.rows(), b.cols());
    ShapeMismatch::unless(fits, "matmul", "m x k, k x n and an output of m x n", &[a, b, out])?;
    let (a, b, out) = (a.clone(), b.clone(), out.clone());
    stream.launch(move || {
        let (k, n) = b.shape();
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
    });
    Ok(())
}

/// Normalises each row of `x` to mean 0 and variance 1 into `out`.
///
/// # Errors
/// The shapes differ.
#[gpu_zone("tensor.layernorm", level = fine, err, fields(rows = x.rows()))]
pub fn layernorm(stream: &HostStream, x: &Matrix, out: &Matrix) -> Result<(), ShapeMismatch> {
    ShapeMismatch::unless(x.shape() == out.shape(), "layernorm", "an output of the input's shape", &[x, out])?;
    let (x, out) = (x.clone(), out.clone());
    stream.launch(move || {
        let (cols, x, mut out) = (out.cols(), x.read(), out.write());
        for (x, out) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols)) {
            let mean = x.iter().sum::<f32>() / cols as f32;
            let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / cols as f32;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            for (x, out) in x.iter().zip(out) {
                *out = (x - mean) * scale;
            }
        }
    });
    Ok(())
}

/// Scores each token of `qkv` (queries, keys and values side by side) against itself and the tokens before it, for every
/// head: row `head * tokens + token` of `out`. Later tokens score minus infinity.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.scores", level = fine, err, fields(heads = heads, tokens = qkv.rows()))]
pub fn scores(stream: &HostStream, heads: usize, qkv: &Matrix, out: &Matrix) -> Result<(), ShapeMismatch> {
    let (tokens, width) = (qkv.rows(), qkv.cols() / 3);
    let fits = qkv.cols() == 3 * width && heads > 0 && width % heads == 0 && out.shape() == (heads * tokens, tokens);
    ShapeMismatch::unless(fits, "scores", "t x 3w, w a multiple of the heads, and (heads * t) x t", &[qkv, out])?;
    let (qkv, out) = (qkv.clone(), out.clone());
    stream.launch(move || {
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
    });
    Ok(())
}

/// Turns each row of `x` into weights that sum to 1, in place.
#[gpu_zone("tensor.softmax", level = fine, fields(rows = x.rows()))]
pub fn softmax(stream: &HostStream, x: &Matrix) {
    let x = x.clone();
    stream.launch(move || {
        for row in x.write().chunks_exact_mut(x.cols()) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|v| *v = (*v - largest).exp());
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= sum);
        }
    });
}

/// Sums the values of `qkv` by the weights that [`softmax`] made of [`scores`], for every head, into `out`.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.attend", level = fine, err, fields(heads = heads, tokens = qkv.rows()))]
pub fn attend(
    stream: &HostStream,
    heads: usize,
    weights: &Matrix,
    qkv: &Matrix,
    out: &Matrix,
) -> Result<(), ShapeMismatch> {
    let (tokens, width) = out.shape();
    let fits = heads > 0
        && width % heads == 0
        && qkv.shape() == (tokens, 3 * width)
        && weights.shape() == (heads * tokens, tokens);
    ShapeMismatch::unless(fits, "attend", "(heads * t) x t, t x 3w and an output of t x w", &[weights, qkv, out])?;
    let (weights, qkv, out) = (weights.clone(), qkv.clone(), out.clone());
    stream.launch(move || {
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
    });
    Ok(())
}

/// Applies the GELU (its tanh form) to each element of `x`, in place.
#[gpu_zone("tensor.gelu", level = fine, fields(elements = x.rows() * x.cols()))]
pub fn gelu(stream: &HostStream, x: &Matrix) {
    let x = x.clone();
    stream.launch(move || {
        for v in x.write().iter_mut() {
            *v = 0.5 * *v * (1.0 + (0.797_884_6 * (*v + 0.044_715 * v.powi(3))).tanh());
        }
    });
}

/// Adds `x` to `out`, element by element.
///
/// # Errors
/// The shapes differ.
#[gpu_zone("tensor.add", level = fine, err, fields(elements = x.rows() * x.cols()))]
pub fn add(stream: &HostStream, x: &Matrix, out: &Matrix) -> Result<(), ShapeMismatch> {
    ShapeMismatch::unless(x.shape() == out.shape(), "add", "two matrices of one shape", &[x, out])?;
    let (x, out) = (x.clone(), out.clone());
    stream.launch(move || add_scaled(1.0, &x.read(), &mut out.write()));
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

    fn on_a_stream(queue: impl FnOnce(&HostStream)) {
        let stream = HostStream::new("test");
        queue(&stream);
        stream.synchronize().unwrap();
    }

    #[test]
    fn matmul_agrees_with_the_definition() {
        let a = Matrix::from_fn(5, 3, |row, col| (row * 3 + col) as f32);
        let b = Matrix::from_fn(3, 2, |row, col| row as f32 - 2.0 * col as f32);
        let out = Matrix::zeros(5, 2);
        on_a_stream(|stream| matmul(stream, &a, &b, &out).unwrap());
        let (a, b) = (a.to_vec(), b.to_vec());
        let wanted: Vec<f32> =
            (0..10).map(|i| (0..3).map(|p| a[i / 2 * 3 + p] * b[p * 2 + i % 2]).sum::<f32>()).collect();
        assert_eq!(out.to_vec(), wanted);
    }

    #[test]
    fn softmax_rows_sum_to_one_and_masked_scores_weigh_nothing() {
        let x = Matrix::from_fn(2, 3, |row, col| if col > row + 1 { f32::NEG_INFINITY } else { col as f32 * 100.0 });
        on_a_stream(|stream| softmax(stream, &x));
        let x = x.to_vec();
        assert!((x[..3].iter().sum::<f32>() - 1.0).abs() < 1e-6 && (x[3..].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(x[2], 0.0);
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let stream = HostStream::new("test");
        let (a, b) = (Matrix::zeros(2, 3), Matrix::zeros(2, 3));
        let error = matmul(&stream, &a, &b, &Matrix::zeros(2, 3)).unwrap_err().to_string();
        assert_eq!(error, "matmul got 2x3, 2x3, 2x3; it needs m x k, k x n and an output of m x n");
        let error = add(&stream, &a, &a).unwrap_err().to_string();
        assert_eq!(error, "add got its output as an input; give it a matrix of its own");
    }
}
