//! The same block on the host, slowly, in f64 and from the definitions: what some tokens of a sequence become.

use crate::block::Shape;
use crate::weights;

/// How far a result may be off, in parts of what it should be (and of 1, if that is less): products of 4,096 numbers in f32.
pub const TOLERANCE: f64 = 1e-3;

/// The output for these tokens of a sequence, by the input of this number, one after the other.
pub fn tokens(shape: Shape, number: usize, sequence: usize, tokens: &[usize]) -> Vec<Vec<f64>> {
    let Shape { tokens: count, width, .. } = shape;
    let x: Vec<Vec<f64>> = (0..count)
        .map(|token| (0..width).map(|col| f64::from(weights::input(number, sequence * count + token, col))).collect())
        .collect();
    let normed: Vec<Vec<f64>> = x.iter().map(|row| layernorm(row)).collect();
    // Keys and values of the whole sequence, the queries of these tokens.
    let keys_and_values = times(&normed, 2 * width, |row, col| weights::qkv(shape, row, width + col));
    let asked: Vec<Vec<f64>> = tokens.iter().map(|token| normed[*token].clone()).collect();
    let queries = times(&asked, width, |row, col| weights::qkv(shape, row, col));
    let attended: Vec<Vec<f64>> = queries.iter().map(|query| attend(shape, query, &keys_and_values)).collect();
    let mut middle = times(&attended, width, |row, col| weights::out(shape, row, col));
    for (middle, token) in middle.iter_mut().zip(tokens) {
        middle.iter_mut().zip(&x[*token]).for_each(|(sum, x)| *sum += x);
    }
    let normed: Vec<Vec<f64>> = middle.iter().map(|row| layernorm(row)).collect();
    let mut hidden = times(&normed, shape.hidden(), |row, col| weights::up(shape, row, col));
    hidden.iter_mut().flatten().for_each(|v| *v = gelu(*v));
    let mut y = times(&hidden, width, |row, col| weights::down(shape, row, col));
    for (y, middle) in y.iter_mut().zip(&middle) {
        y.iter_mut().zip(middle).for_each(|(sum, x)| *sum += x);
    }
    y
}

/// Compares an output of the whole block with the reference at three tokens of a sequence, and says how much was compared.
///
/// # Errors
/// A number is further off than [`TOLERANCE`], or there are not as many as there should be.
pub fn check(shape: Shape, number: usize, output: &[f32]) -> Result<usize, String> {
    if output.len() != shape.rows() * shape.width {
        return Err(format!("{} numbers, and there should be {}", output.len(), shape.rows() * shape.width));
    }
    let (sequence, asked) = (shape.batch - 1, [0, shape.tokens / 2, shape.tokens - 1]);
    let wanted = tokens(shape, number, sequence, &asked);
    for (token, wanted) in asked.iter().zip(&wanted) {
        let row = sequence * shape.tokens + token;
        let is = &output[row * shape.width..][..shape.width];
        for (col, (is, wanted)) in is.iter().zip(wanted).enumerate() {
            let off = (f64::from(*is) - wanted).abs() / wanted.abs().max(1.0);
            if off.is_nan() || off > TOLERANCE {
                return Err(format!("token {row}, number {col} is {is}, and {wanted} by the reference"));
            }
        }
    }
    Ok(asked.len() * shape.width)
}

/// Each row of `x` by a matrix of so many columns.
fn times(x: &[Vec<f64>], cols: usize, weight: impl Fn(usize, usize) -> f32) -> Vec<Vec<f64>> {
    let mut out = vec![vec![0.0; cols]; x.len()];
    for row in 0..x.first().map_or(0, Vec::len) {
        let weights: Vec<f64> = (0..cols).map(|col| f64::from(weight(row, col))).collect();
        for (x, out) in x.iter().zip(&mut out) {
            out.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum += x[row] * weight);
        }
    }
    out
}

fn layernorm(x: &[f64]) -> Vec<f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
    x.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt()).collect()
}

/// One token's heads over its sequence.
fn attend(shape: Shape, query: &[f64], keys_and_values: &[Vec<f64>]) -> Vec<f64> {
    let part = shape.width / shape.heads;
    let mut out = vec![0.0; shape.width];
    for head in 0..shape.heads {
        let (from, to) = (head * part, (head + 1) * part);
        let score = |of: &Vec<f64>| -> f64 {
            query[from..to].iter().zip(&of[from..to]).map(|(q, k)| q * k).sum::<f64>() / (part as f64).sqrt()
        };
        let scores: Vec<f64> = keys_and_values.iter().map(score).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let all: f64 = weights.iter().sum();
        for (weight, of) in weights.iter().zip(keys_and_values) {
            let values = &of[shape.width + from..shape.width + to];
            out[from..to].iter_mut().zip(values).for_each(|(sum, value)| *sum += weight / all * value);
        }
    }
    out
}

fn gelu(v: f64) -> f64 {
    0.5 * v * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (v + 0.044_715 * v.powi(3))).tanh())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;
    use tensor::{Comm, Device, Rendezvous};

    const SMALL: Shape = Shape { batch: 2, tokens: 12, width: 32, heads: 4 };

    fn run(block: &Block, number: usize) -> Vec<f32> {
        block.set_input(number).unwrap();
        block.forward().unwrap();
        block.output().unwrap()
    }

    #[test]
    fn a_block_on_the_host_is_the_reference() {
        let block = Block::new(&Device::host(), SMALL, None).unwrap();
        for number in [0, 1, 0] {
            let output = run(&block, number);
            assert_eq!(check(SMALL, number, &output), Ok(3 * SMALL.width));
            assert!(check(SMALL, number + 1, &output).is_err(), "another input gives another output");
        }
    }

    #[test]
    fn a_wrong_number_is_found() {
        let block = Block::new(&Device::host(), SMALL, None).unwrap();
        let mut output = run(&block, 0);
        let place = output.len() - 1;
        output[place] += 0.01;
        assert!(check(SMALL, 0, &output).unwrap_err().contains("token 23, number 31"));
        output[place] = f32::NAN;
        assert!(check(SMALL, 0, &output).is_err());
        assert!(check(SMALL, 0, &output[1..]).unwrap_err().contains("767 numbers"));
    }

    #[test]
    fn ranks_compute_together_what_one_does_alone() {
        let alone = run(&Block::new(&Device::host(), SMALL, None).unwrap(), 1);
        let ranks = Rendezvous::threads(2).into_iter().map(|rendezvous| {
            std::thread::spawn(move || {
                let device = Device::host();
                let comm = Comm::new("tp0", &device, rendezvous).unwrap();
                run(&Block::new(&device, SMALL, Some(comm)).unwrap(), 1)
            })
        });
        let outputs: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect();
        assert_eq!(outputs[0], outputs[1]);
        for output in &outputs {
            assert_eq!(check(SMALL, 1, output), Ok(3 * SMALL.width));
            assert!(output.iter().zip(&alone).all(|(is, alone)| (is - alone).abs() < 1e-4));
        }
    }

    #[test]
    fn heads_that_ranks_cannot_share_are_refused() {
        let shape = Shape { heads: 5, ..SMALL };
        let error = Block::new(&Device::host(), shape, None).unwrap_err().to_string();
        assert_eq!(error, "1 ranks cannot share 5 heads of a width of 32; take a number that divides them");
    }
}
