//! Attention in several sequences at once, for [`products`](crate::products): every head of every sequence gets a matrix of
//! its own.
#![allow(unsafe_code)]

use warpline::gpu_zone;

use crate::cuda::{Grid, Kernel};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::stream::{On, Stream};

/// How attention is shared among heads: `heads` in each of the sequences, which have `tokens` each and stand below one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Heads.
    pub heads: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
}

impl Heads {
    /// The shape of the heads of a matrix of so many rows and columns.
    fn shape(self, (rows, cols): (usize, usize)) -> Option<(usize, usize)> {
        let Heads { heads, tokens } = self;
        let fits = heads > 0 && tokens > 0 && rows.is_multiple_of(tokens) && cols.is_multiple_of(heads);
        fits.then(|| (rows * heads, cols / heads))
    }
}

/// Takes `qkv` (queries, keys and values side by side) apart: the heads of each sequence below one another, three times.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.split_heads", level = fine, err, fields(heads = heads.heads, tokens = qkv.rows()))]
pub fn split_heads(
    stream: &Stream,
    heads: Heads,
    qkv: &Matrix,
    queries: &Matrix,
    keys: &Matrix,
    values: &Matrix,
) -> Result<(), Error> {
    let width = qkv.cols() / 3;
    let part = heads.shape((qkv.rows(), width)).filter(|_| qkv.cols() == 3 * width);
    let fits = [queries, keys, values].iter().all(|out| Some(out.shape()) == part);
    let needs = "t x 3w, w a multiple of the heads, and three outputs of (heads * t) x (w / heads)";
    for out in [queries, keys, values] {
        Error::unless(fits, "split_heads", needs, &[qkv, out])?;
    }
    let count = qkv.len();
    match stream.with("split_heads", [qkv, queries, keys, values])? {
        On::Host(stream, [qkv, queries, keys, values]) => stream.launch(move || {
            let qkv = qkv.read();
            let mut outs = [queries.write(), keys.write(), values.write()];
            for (i, value) in qkv.iter().enumerate() {
                let (token, col) = (i / (3 * width), i % (3 * width));
                outs[col / width][place(heads, width, token, col % width)] = *value;
            }
        }),
        On::Gpu(queue, matrices) => {
            let sizes = [heads.heads, heads.tokens, width, count];
            // SAFETY: the kernel's own matrices and sizes; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::SplitHeads, Grid::Elements(count), &matrices, &sizes) }?;
        }
    }
    Ok(())
}

/// Puts the heads of each sequence side by side again.
///
/// # Errors
/// The shapes do not fit.
#[gpu_zone("tensor.join_heads", level = fine, err, fields(heads = heads.heads, tokens = out.rows()))]
pub fn join_heads(stream: &Stream, heads: Heads, apart: &Matrix, out: &Matrix) -> Result<(), Error> {
    let fits = heads.shape(out.shape()) == Some(apart.shape());
    Error::unless(fits, "join_heads", "(heads * t) x (w / heads) and an output of t x w", &[apart, out])?;
    let (count, width) = (out.len(), out.cols());
    match stream.with("join_heads", [apart, out])? {
        On::Host(stream, [apart, out]) => stream.launch(move || {
            let apart = apart.read();
            for (i, out) in out.write().iter_mut().enumerate() {
                *out = apart[place(heads, width, i / width, i % width)];
            }
        }),
        On::Gpu(queue, matrices) => {
            let sizes = [heads.heads, heads.tokens, width, count];
            // SAFETY: the kernel's own matrices and sizes; the shapes fit, as was just checked.
            unsafe { queue.launch(Kernel::JoinHeads, Grid::Elements(count), &matrices, &sizes) }?;
        }
    }
    Ok(())
}

/// Where the element of a token and a column is, with the heads below one another.
fn place(Heads { heads, tokens }: Heads, width: usize, token: usize, col: usize) -> usize {
    let part = width / heads;
    let row = (token / tokens * heads + col / part) * tokens + token % tokens;
    row * part + col % part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn heads_that_are_split_lie_below_one_another_and_join_again() {
        let device = Device::host();
        let stream = device.stream("test").unwrap();
        let (heads, sequences, width) = (Heads { heads: 2, tokens: 3 }, 2, 4);
        let rows = sequences * heads.tokens;
        let qkv = Matrix::from_fn(&device, rows, 3 * width, |row, col| (row * 100 + col) as f32).unwrap();
        let zeros = || Matrix::zeros(&device, rows * heads.heads, width / heads.heads).unwrap();
        let (queries, keys, values) = (zeros(), zeros(), zeros());
        split_heads(&stream, heads, &qkv, &queries, &keys, &values).unwrap();
        let joined = Matrix::zeros(&device, rows, width).unwrap();
        join_heads(&stream, heads, &keys, &joined).unwrap();
        stream.synchronize().unwrap();
        // The second head of the first sequence: columns 2 and 3 of its tokens.
        assert_eq!(queries.to_vec().unwrap()[6..12], [2.0, 3.0, 102.0, 103.0, 202.0, 203.0]);
        let wanted = |row: usize, col: usize| (row * 100 + width + col) as f32;
        assert_eq!(joined.to_vec().unwrap(), Matrix::from_fn(&device, rows, width, wanted).unwrap().to_vec().unwrap());
        let error = join_heads(&stream, Heads { heads: 3, tokens: 3 }, &keys, &joined).unwrap_err().to_string();
        assert_eq!(error, "join_heads got 12x2, 6x4; it needs (heads * t) x (w / heads) and an output of t x w");
    }
}
