//! Changes bytes at random, as fuzzers do: bits, numbers at the edges of their types, pieces that are cut out, doubled, moved or
//! taken from another input.

use fastrand::Rng;

use super::harness::skewed;

/// What readers compare lengths, counts and offsets with.
const EDGES: [u64; 12] =
    [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, i64::MAX as u64, u64::MAX];

/// Changes `bytes`, mostly in one or two places, with pieces of `other`. They get no longer than `most`.
pub(crate) fn mutate(random: &mut Rng, bytes: &mut Vec<u8>, other: &[u8], most: usize) {
    for _ in 0..skewed(random, 1, 16) {
        change(random, bytes, other);
        bytes.truncate(most);
    }
}

fn change(random: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.usize(..=bytes.len());
    let piece = |random: &mut Rng, of: &[u8]| {
        let begin = random.usize(..=of.len());
        let len = skewed(random, 0, (of.len() - begin) as u64) as usize;
        of[begin..begin + len].to_vec()
    };
    match random.u8(0..10) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.u8(0..8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.u8(..);
            }
        }
        3 | 4 => {
            let number = random.choice(EDGES).unwrap_or(0).wrapping_add_signed(random.i64(-1..=1));
            let mut number = number.to_le_bytes();
            let width = random.choice([1, 2, 4, 8]).unwrap_or(8);
            if random.bool() {
                number[..width].reverse();
            }
            let end = bytes.len().min(at + width);
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        5 => bytes.truncate(at),
        6 => {
            let end = at + skewed(random, 0, (bytes.len() - at) as u64) as usize;
            bytes.drain(at..end);
        }
        7 => {
            // Doubled, up to some hundred times: nesting and counts.
            let piece = piece(random, bytes).repeat(skewed(random, 1, 300) as usize);
            bytes.splice(at..at, piece.into_iter().take(1 << 20));
        }
        8 => {
            let piece = piece(random, other);
            let end = at + random.usize(..=piece.len().min(bytes.len() - at));
            bytes.splice(at..end, piece);
        }
        _ => {
            let piece: Vec<_> = (0..random.usize(1..16)).map(|_| random.u8(..)).collect();
            bytes.splice(at..at, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_bytes_and_another_one_makes_others() {
        let made = |seed| {
            let (mut random, mut bytes) = (Rng::with_seed(seed), b"a frame of many bytes".to_vec());
            mutate(&mut random, &mut bytes, b"another", 64);
            assert!(bytes.len() <= 64);
            bytes
        };
        assert_eq!(made(1), made(1));
        let all: std::collections::HashSet<_> = (0..500).map(made).collect();
        assert!(all.len() > 350, "{}", all.len());
    }
}
