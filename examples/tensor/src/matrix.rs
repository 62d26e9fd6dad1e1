//! The matrix that operations read and write, and the error of two that do not fit. Only work on a stream touches the
//! elements while the stream is busy.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A row-major matrix of `f32`. A clone is another handle of the same elements.
#[derive(Clone, Debug)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    elements: Arc<RwLock<Vec<f32>>>,
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Matrix {
        Matrix { rows, cols, elements: Arc::new(RwLock::new(vec![0.0; rows * cols])) }
    }

    /// A matrix whose element at (row, column) is what `element` says.
    pub fn from_fn(rows: usize, cols: usize, mut element: impl FnMut(usize, usize) -> f32) -> Matrix {
        let elements = (0..rows * cols).map(|i| element(i / cols, i % cols)).collect();
        Matrix { rows, cols, elements: Arc::new(RwLock::new(elements)) }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// A copy of the elements. Synchronise the stream first: it shows what the stream has reached.
    pub fn to_vec(&self) -> Vec<f32> {
        self.read().clone()
    }

    /// What a panic in mid-operation leaves are wrong numbers, not unsound ones; the stream reports the panic.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Vec<f32>> {
        self.elements.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Vec<f32>> {
        self.elements.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_same_as(&self, other: &Matrix) -> bool {
        Arc::ptr_eq(&self.elements, &other.elements)
    }

    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }
}

/// Matrices that an operation cannot work on together; nothing was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeMismatch(String);

impl ShapeMismatch {
    /// Says what `operation` needs unless `fits`.
    pub(crate) fn unless(fits: bool, operation: &str, needs: &str, operands: &[&Matrix]) -> Result<(), ShapeMismatch> {
        if !fits {
            let shapes: Vec<_> = operands.iter().map(|m| format!("{}x{}", m.rows, m.cols)).collect();
            return Err(ShapeMismatch(format!("{operation} got {}; it needs {needs}", shapes.join(", "))));
        }
        // An operation that writes one of its own inputs would wait for itself.
        let Some((out, inputs)) = operands.split_last() else { return Ok(()) };
        if inputs.iter().any(|input| input.is_same_as(out)) {
            return Err(ShapeMismatch(format!("{operation} got its output as an input; give it a matrix of its own")));
        }
        Ok(())
    }
}

impl fmt::Display for ShapeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ShapeMismatch {}
