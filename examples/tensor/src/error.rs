//! What can go wrong with an operation; then nothing of it was queued.

use warpline::stream::LaunchPanicked;

use crate::matrix::Matrix;

/// Why something on a stream did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shapes do not fit each other.
    #[error("{operation} got {got}; it needs {needs}")]
    Shapes {
        /// What was to be done.
        operation: &'static str,
        /// The shapes that it got.
        got: String,
        /// Those that fit.
        needs: &'static str,
    },
    /// The operation would wait for itself.
    #[error("{0} got its output as an input; give it a matrix of its own")]
    OutputIsInput(&'static str),
    /// A matrix is of another device than the stream.
    #[error("{0} got something of another device than its stream's; make both with the same `Device`")]
    OtherDevice(&'static str),
    /// An operation on an in-process stream panicked.
    #[error(transparent)]
    Panicked(#[from] LaunchPanicked),
    /// The GPU's driver refused it, or says that something before has failed.
    #[error("the CUDA driver says {0}")]
    Driver(String),
    /// cuBLAS refused it, or is not there.
    #[error("{0}")]
    Blas(String),
    /// An in-process stream cannot be captured.
    #[error("in-process streams have no graphs; capture on the stream of a GPU")]
    NoGraphs,
    /// The ranks did not find each other, or lost each other; or NCCL refused it.
    #[error("{0}")]
    Ranks(String),
}

impl Error {
    /// Says what `operation` needs unless `fits`. The last operand is the output.
    pub(crate) fn unless(
        fits: bool,
        operation: &'static str,
        needs: &'static str,
        operands: &[&Matrix],
    ) -> Result<(), Error> {
        if !fits {
            let shapes: Vec<_> = operands.iter().map(|m| format!("{}x{}", m.rows(), m.cols())).collect();
            return Err(Error::Shapes { operation, got: shapes.join(", "), needs });
        }
        let Some((out, inputs)) = operands.split_last() else { return Ok(()) };
        if inputs.iter().any(|input| input.is_same_as(out)) {
            return Err(Error::OutputIsInput(operation));
        }
        Ok(())
    }
}
