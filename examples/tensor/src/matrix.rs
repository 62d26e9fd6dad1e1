//! The matrix that operations read and write. Only work on a stream touches the elements while the stream is busy.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::cuda::Memory;
use crate::device::{Device, Kind};
use crate::error::Error;

/// A row-major matrix of `f32`. A clone is another handle of the same elements.
#[derive(Clone, Debug)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    elements: Elements,
}

#[derive(Clone, Debug)]
enum Elements {
    Host(HostElements),
    Gpu(Arc<Memory>),
}

/// The elements of a matrix on the host.
#[derive(Clone, Debug)]
pub(crate) struct HostElements(Arc<RwLock<Vec<f32>>>);

impl Matrix {
    /// A matrix of zeros.
    ///
    /// # Errors
    /// The GPU has no room for it.
    pub fn zeros(device: &Device, rows: usize, cols: usize) -> Result<Matrix, Error> {
        Matrix::from_fn(device, rows, cols, |_, _| 0.0)
    }

    /// A matrix whose element at (row, column) is what `element` says.
    ///
    /// # Errors
    /// The GPU has no room for it.
    pub fn from_fn(
        device: &Device,
        rows: usize,
        cols: usize,
        mut element: impl FnMut(usize, usize) -> f32,
    ) -> Result<Matrix, Error> {
        let elements: Vec<f32> = (0..rows * cols).map(|i| element(i / cols, i % cols)).collect();
        let elements = match &device.0 {
            Kind::Host => Elements::Host(HostElements(Arc::new(RwLock::new(elements)))),
            Kind::Gpu(gpu) => Elements::Gpu(Arc::new(gpu.upload(&elements)?)),
        };
        Ok(Matrix { rows, cols, elements })
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
    ///
    /// # Errors
    /// What has failed on the GPU.
    pub fn to_vec(&self) -> Result<Vec<f32>, Error> {
        match &self.elements {
            Elements::Host(elements) => Ok(elements.read().clone()),
            Elements::Gpu(memory) => memory.download(),
        }
    }

    /// Overwrites the elements. Synchronise the streams first: those that are at work would see some of both.
    ///
    /// # Errors
    /// What has failed on the GPU.
    pub fn overwrite(&self, mut element: impl FnMut(usize, usize) -> f32) -> Result<(), Error> {
        let elements: Vec<f32> = (0..self.len()).map(|i| element(i / self.cols, i % self.cols)).collect();
        match &self.elements {
            Elements::Host(old) => old.write().copy_from_slice(&elements),
            Elements::Gpu(memory) => memory.overwrite(&elements)?,
        }
        Ok(())
    }

    /// The elements, if they lie on the host.
    pub(crate) fn on_host(&self) -> Option<HostElements> {
        match &self.elements {
            Elements::Host(elements) => Some(elements.clone()),
            Elements::Gpu(_) => None,
        }
    }

    /// The elements, if they lie on the GPU.
    pub(crate) fn on_gpu(&self) -> Option<&Memory> {
        match &self.elements {
            Elements::Host(_) => None,
            Elements::Gpu(memory) => Some(memory),
        }
    }

    pub(crate) fn is_same_as(&self, other: &Matrix) -> bool {
        match (&self.elements, &other.elements) {
            (Elements::Host(one), Elements::Host(two)) => Arc::ptr_eq(&one.0, &two.0),
            (Elements::Gpu(one), Elements::Gpu(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.cols
    }
}

impl HostElements {
    /// What a panic in mid-operation leaves are wrong numbers, not unsound ones; the stream reports the panic.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Vec<f32>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Vec<f32>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
