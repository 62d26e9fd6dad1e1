//! Products of large matrices: cuBLAS on a GPU. [`matmul`](crate::matmul) is a kernel of this library's own, which needs nothing
//! but NVRTC; these are for what a kernel of a few lines is too slow for.
#![allow(unsafe_code)]

use warpline::gpu_zone;

use crate::cuda;
use crate::error::Error;
use crate::matrix::Matrix;
use crate::stream::{self, On, Stream};

/// What products on one stream need: a handle of cuBLAS with memory of its own, so that nothing is allocated when a product
/// is queued, which a capture would not allow. Nothing on an in-process stream.
#[derive(Debug)]
pub struct Blas(Kind);

#[derive(Debug)]
enum Kind {
    Host,
    Gpu(cuda::Blas),
}

/// Several products of equal shape at once: the operands stand below one another in their matrices.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// How many.
    pub count: usize,
    /// The second operand of each is transposed.
    pub is_transposed: bool,
    /// What each product is multiplied with.
    pub factor: f32,
}

/// The sizes of `count` products of m×k by k×n.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) count: usize,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    /// The second operands lie as n×k.
    pub(crate) is_transposed: bool,
    pub(crate) factor: f32,
}

impl Blas {
    /// For products on this stream.
    ///
    /// # Errors
    /// There is no cuBLAS, or the GPU has no room for its memory.
    pub fn new(stream: &Stream) -> Result<Blas, Error> {
        Ok(Blas(match &stream.0 {
            stream::Kind::Host(_) => Kind::Host,
            stream::Kind::Gpu(queue) => Kind::Gpu(cuda::Blas::new(queue)?),
        }))
    }

    fn multiply(
        &self,
        operation: &'static str,
        stream: &Stream,
        sizes: Sizes,
        operands: [&Matrix; 3],
    ) -> Result<(), Error> {
        match (&self.0, stream.with(operation, operands)?) {
            (Kind::Host, On::Host(stream, [a, b, out])) => {
                stream.launch(move || on_host(sizes, &a.read(), &b.read(), &mut out.write()));
                Ok(())
            }
            (Kind::Gpu(blas), On::Gpu(queue, matrices)) if blas.is_of(queue) => {
                // SAFETY: the shapes fit the sizes, as the callers have checked.
                unsafe { blas.multiply(queue, sizes, matrices) }
            }
            _ => Err(Error::OtherDevice(operation)),
        }
    }
}

/// Multiplies `a` (m×k) by `b` (k×n) into `out`.
///
/// # Errors
/// The shapes do not fit, or `blas` is of another stream.
#[gpu_zone("tensor.product", level = fine, err, fields(m = a.rows(), n = b.cols(), k = a.cols()))]
pub fn product(stream: &Stream, blas: &Blas, a: &Matrix, b: &Matrix, out: &Matrix) -> Result<(), Error> {
    let fits = a.cols() == b.rows() && out.shape() == (a.rows(), b.cols());
    Error::unless(fits, "product", "m x k, k x n and an output of m x n", &[a, b, out])?;
    let sizes = Sizes { count: 1, m: a.rows(), k: a.cols(), n: b.cols(), is_transposed: false, factor: 1.0 };
    blas.multiply("product", stream, sizes, [a, b, out])
}

/// Multiplies each m×k of `a` by the k×n of `b` in the same place (or, transposed, n×k) into `out`.
///
/// # Errors
/// The shapes do not fit, or `blas` is of another stream.
#[gpu_zone("tensor.products", level = fine, err, fields(count = batch.count, rows = out.rows(), cols = out.cols()))]
pub fn products(stream: &Stream, blas: &Blas, batch: Batch, a: &Matrix, b: &Matrix, out: &Matrix) -> Result<(), Error> {
    let Batch { count, is_transposed, factor } = batch;
    let (m, k, n) = (a.rows() / count.max(1), a.cols(), out.cols());
    let of_b = if is_transposed { (count * n, k) } else { (count * k, n) };
    let fits = count > 0 && (a.rows(), b.shape(), out.shape()) == (count * m, of_b, (count * m, n));
    Error::unless(
        fits,
        "products",
        "for each product m x k, k x n (or n x k, transposed) and an output of m x n",
        &[a, b, out],
    )?;
    blas.multiply("products", stream, Sizes { count, m, k, n, is_transposed, factor }, [a, b, out])
}

fn on_host(sizes: Sizes, a: &[f32], b: &[f32], out: &mut [f32]) {
    let Sizes { count, m, k, n, is_transposed, factor } = sizes;
    let each = a.chunks_exact(m * k).zip(b.chunks_exact(k * n)).zip(out.chunks_exact_mut(m * n));
    for ((a, b), out) in each.take(count) {
        for (a, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            for (col, out) in out.iter_mut().enumerate() {
                let b = |p: usize| if is_transposed { b[col * k + p] } else { b[p * n + col] };
                *out = factor * a.iter().enumerate().map(|(p, a)| a * b(p)).sum::<f32>();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn products_agree_with_the_definition() {
        let device = Device::host();
        let stream = device.stream("test").unwrap();
        let blas = Blas::new(&stream).unwrap();
        let (count, m, k, n) = (2, 3, 4, 5);
        let number = |row: usize, col: usize| (row * 7 + col * 3) as f32 % 11.0 - 5.0;
        let matrix = |rows, cols| Matrix::from_fn(&device, rows, cols, number).unwrap();
        let (a, b, out) = (matrix(count * m, k), matrix(count * k, n), matrix(count * m, n));
        products(&stream, &blas, Batch { count, is_transposed: false, factor: 0.5 }, &a, &b, &out).unwrap();
        stream.synchronize().unwrap();
        let wanted =
            |row: usize, col: usize| (0..k).map(|p| number(row, p) * number(row / m * k + p, col)).sum::<f32>() * 0.5;
        assert_eq!(out.to_vec().unwrap(), Matrix::from_fn(&device, count * m, n, wanted).unwrap().to_vec().unwrap());
        let b = matrix(count * n, k);
        products(&stream, &blas, Batch { count, is_transposed: true, factor: 0.5 }, &a, &b, &out).unwrap();
        stream.synchronize().unwrap();
        let wanted =
            |row: usize, col: usize| (0..k).map(|p| number(row, p) * number(row / m * n + col, p)).sum::<f32>() * 0.5;
        assert_eq!(out.to_vec().unwrap(), Matrix::from_fn(&device, count * m, n, wanted).unwrap().to_vec().unwrap());
        let error = product(&stream, &blas, &a, &b, &out).unwrap_err().to_string();
        assert_eq!(error, "product got 6x4, 10x4, 6x5; it needs m x k, k x n and an output of m x n");
    }
}
