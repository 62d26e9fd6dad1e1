//! Without feature `cuda`: there is no GPU, and nothing of one can exist.

use warpline::AsStream;
use warpline::collective::ProcessGroup;
use warpline::stream::StreamRef;

use super::{Grid, Kernel, Tokens};
use crate::error::Error;
use crate::product::Sizes;

#[derive(Clone, Debug)]
pub(crate) enum Gpu {}

#[derive(Debug)]
pub(crate) enum Memory {}

#[derive(Debug)]
pub(crate) enum Queue {}

#[derive(Debug)]
pub(crate) enum Ranks {}

#[derive(Debug)]
pub(crate) enum Blas {}

impl Gpu {
    pub(crate) fn count() -> Result<usize, String> {
        Err("this program was built without the feature `cuda`".to_owned())
    }

    pub(crate) fn find(_: usize) -> Result<(Gpu, String), String> {
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

    pub(crate) fn overwrite(&self, _: &[f32]) -> Result<(), Error> {
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

    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        match *self {}
    }
}

impl AsStream for Queue {
    fn as_stream(&self) -> StreamRef<'_> {
        match *self {}
    }
}

impl Ranks {
    pub(crate) const ID_BYTES: usize = 0;

    pub(crate) fn version() -> Result<String, Error> {
        Err(Error::Ranks("this program was built without the feature `cuda`".to_owned()))
    }

    pub(crate) fn new_id() -> Result<[u8; Ranks::ID_BYTES], Error> {
        Ok([])
    }

    pub(crate) fn new(gpu: &Gpu, _: [u8; Ranks::ID_BYTES], _: u32, _: u32) -> Result<Ranks, Error> {
        match *gpu {}
    }

    pub(crate) fn group(&self, _: &str) -> Result<ProcessGroup, Error> {
        match *self {}
    }

    pub(crate) fn failure(&self) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn sum(&self, _: &Queue, _: &[&Memory]) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn broadcast(&self, _: &Queue, _: &Memory, _: u32) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn is_on(&self, _: &Queue) -> bool {
        match *self {}
    }
}

impl Blas {
    pub(crate) fn new(queue: &Queue) -> Result<Blas, Error> {
        match *queue {}
    }

    pub(crate) fn is_of(&self, _: &Queue) -> bool {
        match *self {}
    }

    pub(crate) unsafe fn multiply(&self, _: &Queue, _: Sizes, _: [&Memory; 3]) -> Result<(), Error> {
        match *self {}
    }
}
