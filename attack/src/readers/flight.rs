//! Any bytes as the file of a flight recorder: the whole way of `warpline recover`, but for the files.
//!
//! What begins as such a file does is one. Anything else is the parts of one, as no mutation finds a checksum and no input is as
//! long as a ring: a byte that says whether checksums are mended, then of each part the place (a byte: the header, the areas, the
//! segments), its length (two bytes) and its bytes. `fuzz/seeds/flight_reader.py` makes the seeds.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use warpline::recovery::recover;

const HEADER_BYTES: u64 = 4096;
const AREA_BYTES: u64 = 64 << 10;
const AREAS: u64 = 3;
const PIECE_HEADER: usize = 40;

/// Recovers what the bytes hold.
pub fn flight(bytes: &[u8]) {
    if bytes.starts_with(b"warpline flight") {
        check(&mut Cursor::new(bytes));
    } else if let Some(mut file) = Parts::read(bytes) {
        check(&mut file);
    }
}

fn check(file: &mut (impl Read + Seek)) {
    let mut trace = Vec::new();
    match recover(file, &mut trace) {
        Ok(found) => assert!(found.pieces > 0 && found.bytes == trace.len() as u64, "{found:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A file that has zeros between its parts.
struct Parts {
    parts: Vec<(u64, Vec<u8>)>,
    at: u64,
}

impl Parts {
    fn read(bytes: &[u8]) -> Option<Parts> {
        let (is_mended, mut rest) = bytes.split_first().map(|(byte, rest)| (byte & 1 == 1, rest))?;
        let mut parts = Vec::new();
        let mut segment_bytes = 0;
        while let [place, len_low, len_high, content @ ..] = rest {
            let len = usize::from(u16::from_le_bytes([*len_low, *len_high])).min(content.len());
            let (content, behind) = content.split_at(len);
            rest = behind;
            let (place, mut content) = (u64::from(*place), content.to_vec());
            if place == 0 {
                if is_mended {
                    mend_header(&mut content);
                }
                segment_bytes = content.get(16..20).map_or(0, |bytes| u64::from(number(bytes)));
            } else if is_mended {
                mend_piece(&mut content);
            }
            let at = match place {
                0 => 0,
                1..=AREAS => HEADER_BYTES + (place - 1) * AREA_BYTES,
                _ => HEADER_BYTES + AREAS * AREA_BYTES + (place - 1 - AREAS) * segment_bytes,
            };
            parts.push((at, content));
        }
        Some(Parts { parts, at: 0 })
    }

    fn end(&self) -> u64 {
        self.parts.iter().map(|(at, content)| at + content.len() as u64).max().unwrap_or(0)
    }
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.end().saturating_sub(self.at).min(buffer.len() as u64) as usize;
        buffer[..count].fill(0);
        for (at, content) in &self.parts {
            let begin = (*at).clamp(self.at, self.at + count as u64);
            let end = (at + content.len() as u64).clamp(begin, self.at + count as u64);
            if begin < end {
                let from = &content[(begin - at) as usize..(end - at) as usize];
                buffer[(begin - self.at) as usize..(end - self.at) as usize].copy_from_slice(from);
            }
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Parts {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let SeekFrom::Start(at) = to else { return Err(io::ErrorKind::Unsupported.into()) };
        self.at = at;
        Ok(at)
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn mend_header(header: &mut [u8]) {
    let name = header.get(28..32).map_or(0, |bytes| number(bytes) as usize);
    let Some((said, checksum)) = header.split_at_mut_checked(32 + name) else { return };
    if let Some(checksum) = checksum.first_chunk_mut() {
        *checksum = crc32fast::hash(said).to_le_bytes();
    }
}

/// Makes the checksums of a piece right, of its content first: the header's is over both.
fn mend_piece(piece: &mut [u8]) {
    let Some((header, content)) = piece.split_at_mut_checked(PIECE_HEADER) else { return };
    // What is said to be there and is not is zeros, or the next part: that is as damaged as it can be.
    let content = content.get(..number(&header[28..]) as usize).unwrap_or(content);
    header[32..36].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    let checksum = crc32fast::hash(&header[..36]);
    header[36..].copy_from_slice(&checksum.to_le_bytes());
}
