//! The block: its weights, what flows through it, and its sections.

use tensor::{Batch, Blas, Comm, Device, Error, Heads, Matrix, Stream};
use warpline::gpu_zone;

use crate::weights;

/// The sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Numbers of a token.
    pub width: usize,
    /// Heads of the attention.
    pub heads: usize,
}

impl Shape {
    /// Those of the block in PyTorch's tutorial on graph annotations.
    pub const TUTORIAL: Shape = Shape { batch: 4, tokens: 256, width: 1024, heads: 8 };

    /// Tokens of all sequences.
    pub fn rows(self) -> usize {
        self.batch * self.tokens
    }

    /// Hidden units of the MLP.
    pub fn hidden(self) -> usize {
        4 * self.width
    }
}

/// A block on a stream of its own; with a group, one rank's part of it. Its methods queue work, and wait only where they say so.
#[derive(Debug)]
pub struct Block {
    /// When it is dropped its work is awaited, so it goes before what that uses.
    stream: Stream,
    shape: Shape,
    /// This rank's heads.
    heads: Heads,
    blas: Blas,
    comm: Option<Comm>,
    /// Weights.
    qkv_weights: Matrix,
    out_weights: Matrix,
    up: Matrix,
    down: Matrix,
    /// What flows through it. The input is only read, so that the block can run again.
    x: Matrix,
    normed: Matrix,
    qkv: Matrix,
    queries: Matrix,
    keys: Matrix,
    values: Matrix,
    scores: Matrix,
    attended: Matrix,
    joined: Matrix,
    middle: Matrix,
    hidden: Matrix,
    y: Matrix,
}

impl Block {
    /// A block with its weights, and the input of number 0. With a group, the heads and hidden units are shared among its ranks.
    ///
    /// # Errors
    /// The sizes cannot be shared so, the GPU has no room, or it has no cuBLAS.
    pub fn new(device: &Device, shape: Shape, comm: Option<Comm>) -> Result<Block, Error> {
        let (rank, ranks) = comm.as_ref().map_or((0, 1), |comm| (comm.group().rank() as usize, comm.group().size()));
        let Shape { tokens, width, heads, .. } = shape;
        if heads == 0 || !width.is_multiple_of(heads) || !heads.is_multiple_of(ranks) {
            let why = format!(
                "{ranks} ranks cannot share {heads} heads of a width of {width}; take a number that divides them"
            );
            return Err(Error::Ranks(why));
        }
        let heads = Heads { heads: heads / ranks, tokens };
        let (rows, part, hidden) = (shape.rows(), width / ranks, shape.hidden() / ranks);
        let stream = device.stream("block")?;
        let zeros = |rows, cols| Matrix::zeros(device, rows, cols);
        let of_heads = || zeros(rows * heads.heads, part / heads.heads);
        // The columns of the queries that are this rank's, then those of the keys, then those of the values.
        let column = |col: usize| col / part * width + rank * part + col % part;
        Ok(Block {
            shape,
            heads,
            blas: Blas::new(&stream)?,
            qkv_weights: Matrix::from_fn(device, width, 3 * part, |row, col| weights::qkv(shape, row, column(col)))?,
            out_weights: Matrix::from_fn(device, part, width, |row, col| weights::out(shape, rank * part + row, col))?,
            up: Matrix::from_fn(device, width, hidden, |row, col| weights::up(shape, row, rank * hidden + col))?,
            down: Matrix::from_fn(device, hidden, width, |row, col| weights::down(shape, rank * hidden + row, col))?,
            x: Matrix::from_fn(device, rows, width, |row, col| weights::input(0, row, col))?,
            normed: zeros(rows, width)?,
            qkv: zeros(rows, 3 * part)?,
            queries: of_heads()?,
            keys: of_heads()?,
            values: of_heads()?,
            scores: zeros(rows * heads.heads, tokens)?,
            attended: of_heads()?,
            joined: zeros(rows, part)?,
            middle: zeros(rows, width)?,
            hidden: zeros(rows, hidden)?,
            y: zeros(rows, width)?,
            comm,
            stream,
        })
    }

    /// The sizes.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The stream that it runs on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Gives it the input of this number. It waits for what the block does before.
    ///
    /// # Errors
    /// What has failed on the stream.
    pub fn set_input(&self, number: usize) -> Result<(), Error> {
        self.stream.synchronize()?;
        self.x.overwrite(|row, col| weights::input(number, row, col))
    }

    /// Queues the whole block.
    ///
    /// # Errors
    /// What the device says.
    pub fn forward(&self) -> Result<(), Error> {
        self.qkv_proj()?;
        self.attention()?;
        self.out_proj()?;
        self.mlp()
    }

    /// What came of it, the same on all ranks. It waits for it.
    ///
    /// # Errors
    /// What has failed on the stream, or in a collective.
    pub fn output(&self) -> Result<Vec<f32>, Error> {
        self.synchronize()?;
        self.y.to_vec()
    }

    /// Waits until everything that is queued has run.
    ///
    /// # Errors
    /// What has failed on the stream, or in a collective.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.stream.synchronize()?;
        self.comm.as_ref().map_or(Ok(()), Comm::failure)
    }

    /// Normalises the input, and makes queries, keys and values of it.
    #[gpu_zone("transformer.qkv_proj", stream = self.stream, fields(rows = self.shape.rows()))]
    fn qkv_proj(&self) -> Result<(), Error> {
        tensor::layernorm(&self.stream, &self.x, &self.normed)?;
        tensor::product(&self.stream, &self.blas, &self.normed, &self.qkv_weights, &self.qkv)
    }

    /// Lets every token look at all tokens of its sequence, for each head.
    #[gpu_zone("transformer.attention", stream = self.stream, lane = "attention", fields(heads = self.heads.heads))]
    fn attention(&self) -> Result<(), Error> {
        let Block { stream, blas, heads, queries, keys, values, .. } = self;
        let (count, width) = (self.shape.batch * heads.heads, queries.cols());
        tensor::split_heads(stream, *heads, &self.qkv, queries, keys, values)?;
        let scores = Batch { count, is_transposed: true, factor: 1.0 / (width as f32).sqrt() };
        tensor::products(stream, blas, scores, queries, keys, &self.scores)?;
        tensor::softmax(stream, &self.scores)?;
        let sums = Batch { count, is_transposed: false, factor: 1.0 };
        tensor::products(stream, blas, sums, &self.scores, values, &self.attended)?;
        tensor::join_heads(stream, *heads, &self.attended, &self.joined)
    }

    /// Brings the heads together, and adds the input.
    #[gpu_zone("transformer.out_proj", stream = self.stream, fields(rows = self.shape.rows()))]
    fn out_proj(&self) -> Result<(), Error> {
        tensor::product(&self.stream, &self.blas, &self.joined, &self.out_weights, &self.middle)?;
        self.sum(&self.middle)?;
        tensor::add(&self.stream, &self.x, &self.middle)
    }

    /// Computes on each token alone, and adds what it came from.
    #[gpu_zone("transformer.mlp", stream = self.stream, lane = "mlp", fields(hidden = self.hidden.cols()))]
    fn mlp(&self) -> Result<(), Error> {
        tensor::layernorm(&self.stream, &self.middle, &self.normed)?;
        tensor::product(&self.stream, &self.blas, &self.normed, &self.up, &self.hidden)?;
        tensor::gelu(&self.stream, &self.hidden)?;
        tensor::product(&self.stream, &self.blas, &self.hidden, &self.down, &self.y)?;
        self.sum(&self.y)?;
        tensor::add(&self.stream, &self.middle, &self.y)
    }

    /// Sums over the ranks, if there are any others.
    fn sum(&self, part: &Matrix) -> Result<(), Error> {
        self.comm.as_ref().map_or(Ok(()), |comm| tensor::all_reduce(&self.stream, comm, part))
    }
}
