//! How the file of a flight recorder is laid out.
//!
//! ```text
//! header        4 KiB: what the file is, and how large its parts are
//! areas         open zones twice, in turn, and the last incident: 64 KiB each
//! segments      a ring of them, all of one size
//! ```
//!
//! Areas and segments hold a *piece* each: a header and packets of a Perfetto trace that can be read without any other
//! piece. A piece counts once its header says so, which is written last: what stands in the file is whole, whenever the
//! process dies. The recorder writes it, and `read.rs` reads it back, also for the command `warpline`.

/// The first bytes of the file.
pub const MAGIC: [u8; 16] = *b"warpline flight\x01";

/// Bytes before the areas.
pub const HEADER_BYTES: u64 = 4096;

/// Bytes of an area.
pub const AREA_BYTES: u32 = 64 << 10;

/// Areas: open zones in the first two, the last incident in the third.
pub const AREAS: u32 = 3;
pub const INCIDENT_AREA: u32 = 2;

/// What the segments together may have.
pub const LEAST_BYTES: u64 = 256 << 10;
pub const MOST_BYTES: u64 = 64 << 30;

/// The most and the fewest bytes of a segment; a record has to fit into one.
const LARGEST_SEGMENT: u64 = 1 << 20;
const SMALLEST_SEGMENT: u64 = 32 << 10;

/// About so many segments: what is overwritten at a time is a small part of the whole.
const SEGMENTS: u64 = 64;

/// The most bytes of the process's name that are kept.
const NAME: usize = 256;

/// The parts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a segment.
    pub segment: u32,
    pub segments: u32,
    /// The process that wrote it.
    pub process_id: u32,
    pub process_name: String,
}

/// The header of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceHeader {
    /// From 1; goes up with each piece of its kind.
    pub sequence: u64,
    /// Zones in the pieces before it; in an area, open zones in it.
    pub before: u64,
    /// Zones in it.
    pub zones: u64,
    /// Bytes behind the header.
    pub len: u32,
    /// Their checksum.
    pub checksum: u32,
}

const PIECE_MAGIC: u32 = u32::from_le_bytes(*b"WPpc");

/// Bytes of a piece's header.
pub const PIECE_HEADER: usize = 40;

impl Layout {
    /// A ring of about so many bytes.
    pub fn with_size(bytes: u64, process_id: u32, process_name: &str) -> Layout {
        let bytes = bytes.clamp(LEAST_BYTES, MOST_BYTES);
        let segment = (bytes / SEGMENTS).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT);
        let end = (0..=process_name.len().min(NAME)).rev().find(|end| process_name.is_char_boundary(*end)).unwrap_or(0);
        let process_name = process_name[..end].to_owned();
        Layout { segment: segment as u32, segments: (bytes / segment) as u32, process_id, process_name }
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.segment_at(self.segments)
    }

    /// Where an area begins.
    pub fn area_at(&self, area: u32) -> u64 {
        HEADER_BYTES + u64::from(area) * u64::from(AREA_BYTES)
    }

    /// Where a segment begins.
    pub fn segment_at(&self, segment: u32) -> u64 {
        self.area_at(AREAS) + u64::from(segment) * u64::from(self.segment)
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.segment, self.segments, self.process_id, self.process_name.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.process_name.as_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// The layout that these first bytes of a file say; none where they are of no such file, or damaged.
    pub fn read(bytes: &[u8]) -> Option<Layout> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let [segment, segments, process_id, name] = [(); 4].map(|()| number(&mut rest));
        let name_bytes = rest.split_off(..usize::try_from(name?).ok().filter(|len| *len <= NAME)?)?;
        let said = bytes.len() - rest.len();
        if number(&mut rest)? != crc32fast::hash(&bytes[..said]) {
            return None;
        }
        let layout = Layout {
            segment: segment?,
            segments: segments?,
            process_id: process_id?,
            process_name: String::from_utf8_lossy(name_bytes).into_owned(),
        };
        let is_sound = (SMALLEST_SEGMENT..=LARGEST_SEGMENT).contains(&u64::from(layout.segment))
            && u64::from(layout.segments) * u64::from(layout.segment) <= MOST_BYTES;
        is_sound.then_some(layout)
    }
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

/// The checksum of a piece's content.
pub fn checksum(content: &[u8]) -> u32 {
    crc32fast::hash(content)
}

impl PieceHeader {
    pub fn to_bytes(self) -> [u8; PIECE_HEADER] {
        let mut bytes = [0; PIECE_HEADER];
        bytes[..4].copy_from_slice(&PIECE_MAGIC.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.before.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.zones.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.len.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// None where the bytes are no header, or one that was not written to its end.
    pub fn read(bytes: &[u8; PIECE_HEADER]) -> Option<PieceHeader> {
        let long = |at: usize| bytes[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let short = |at: usize| bytes[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        if short(0)? != PIECE_MAGIC || short(36)? != crc32fast::hash(&bytes[..36]) {
            return None;
        }
        Some(PieceHeader {
            sequence: long(4)?,
            before: long(12)?,
            zones: long(20)?,
            len: short(28)?,
            checksum: short(32)?,
        })
    }
}
