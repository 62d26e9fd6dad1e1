//! Without feature `cuda`: there is no GPU, and nothing of one can exist.

use warpline::{AsStream, StreamRef};

use super::{Grid, Kernel, Tokens};
use crate::error::Error;

#[derive(Clone, Debug)]
pub(crate) enum Gpu {}

#[derive(Debug)]
pub(crate) enum Memory {}

#[derive(Debug)]
pub(crate) enum Queue {}

#[derive(Debug)]
pub(crate) enum Point {}

impl Gpu {
    pub(crate) fn find() -> Result<(Gpu, String), String> {
        Err("this program was built without the feature `cuda`".to_owned())
    }

    pub(crate) fn queue(&self) -> Result<Queue, Error> {
        match *self {}
    }

    pub(crate) fn upload<T: Copy>(&self, _: &[T]) -> Result<Memory, Error> {
        match *self {}
    }
}

impl Memory {
    pub(crate) fn download(&self) -> Result<Vec<f32>, Error> {
        match *self {}
    }
}

impl Queue {
    pub(crate) unsafe fn launch(&self, _: Kernel, _: Grid, _: &[&Memory], _: &[usize]) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) unsafe fn launch_with(
        &self,
        _: Option<&Tokens>,
        _: Kernel,
        _: Grid,
        _: &[&Memory],
        _: &[usize],
    ) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn record(&self) -> Result<Point, Error> {
        match *self {}
    }

    pub(crate) fn wait_for(&self, _: &Point) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        match *self {}
    }
}

impl AsStream for Queue {
    fn as_stream(&self) -> StreamRef<'_> {
        match *self {}
    }
}

impl Point {
    pub(crate) fn wait(&self) -> Result<(), Error> {
        match *self {}
    }
}
