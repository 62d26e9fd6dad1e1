//! A stream of a device: what operations are queued on, and what their marks time.

use warpline::stream::StreamRef;
use warpline::{AsStream, HostStream};

use crate::cuda::{Memory, Queue};
use crate::error::Error;
use crate::matrix::{HostElements, Matrix};

/// A stream of a [`Device`](crate::Device). It runs what is queued on it in that order.
#[derive(Debug)]
pub struct Stream(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Host(HostStream),
    Gpu(Queue),
}

/// A stream with the elements of matrices that lie where it works.
pub(crate) enum On<'a, const N: usize> {
    Host(&'a HostStream, [HostElements; N]),
    Gpu(&'a Queue, [&'a Memory; N]),
}

impl Stream {
    /// Waits until everything that is queued now has run.
    ///
    /// # Errors
    /// What has failed on the stream.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.0 {
            Kind::Host(stream) => Ok(stream.synchronize()?),
            Kind::Gpu(queue) => queue.synchronize(),
        }
    }

    /// The stream and the matrices of `operation`, if all are of one device.
    pub(crate) fn with<'a, const N: usize>(
        &'a self,
        operation: &'static str,
        matrices: [&'a Matrix; N],
    ) -> Result<On<'a, N>, Error> {
        let on = match &self.0 {
            Kind::Host(stream) => all(matrices.map(Matrix::on_host)).map(|elements| On::Host(stream, elements)),
            Kind::Gpu(queue) => all(matrices.map(Matrix::on_gpu)).map(|memory| On::Gpu(queue, memory)),
        };
        on.ok_or(Error::OtherDevice(operation))
    }
}

impl AsStream for Stream {
    fn as_stream(&self) -> StreamRef<'_> {
        match &self.0 {
            Kind::Host(stream) => stream.as_stream(),
            Kind::Gpu(queue) => queue.as_stream(),
        }
    }
}

fn all<T, const N: usize>(options: [Option<T>; N]) -> Option<[T; N]> {
    let there: Vec<T> = options.into_iter().flatten().collect();
    there.try_into().ok()
}
