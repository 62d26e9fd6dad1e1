//! The layout of a flight recorder's file.
//!
//! ```text
//! header        4 KiB: what the file is, and how large its parts are
//! areas         open zones twice, in turn, and the last incident: 64 KiB each
//! segments      a ring of segments, all of the same size
//! ```
//!
//! Areas and segments each hold a *piece*: a header and packets of a Perfetto trace that can be read without any other piece. A
//! piece counts once its header, which is written last, says so: the contents of the file are consistent whenever the process dies.
//! The recorder writes the file, and `read.rs` reads it, also for the command `warpline`.

use warpline_core::fields::cut;

/// The first bytes of the file.
pub const MAGIC: [u8; 16] = *b"warpline flight\x01";

/// The number of bytes before the areas.
pub const HEADER_BYTES: u64 = 4096;

/// The size of an area, in bytes.
pub const AREA_BYTES: u32 = 64 << 10;

/// The number of areas: the first two hold open zones, the third holds the last incident.
pub const AREAS: u32 = 3;
pub const INCIDENT_AREA: u32 = 2;

/// The limits for the total size of the segments.
pub const LEAST_BYTES: u64 = 256 << 10;
pub const MOST_BYTES: u64 = 64 << 30;

/// The largest and smallest size of a segment, in bytes. A record has to fit into one.
const LARGEST_SEGMENT: u64 = 1 << 20;
const SMALLEST_SEGMENT: u64 = 32 << 10;

/// The approximate number of segments: each overwrite affects a small part of the whole.
const SEGMENTS: u64 = 64;

/// The longest part of the process's name that is kept, in bytes.
const NAME: usize = 256;

/// The parts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of a segment, in bytes.
    pub segment: u32,
    pub segments: u32,
    /// The process that wrote the file.
    pub process_id: u32,
    pub process_name: String,
}

/// The header of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceHeader {
    /// The number of the piece, from 1, counted per kind.
    pub sequence: u64,
    /// The number of zones in earlier pieces. In an area, the number of open zones in it.
    pub before: u64,
    /// The number of zones in the piece.
    pub zones: u64,
    /// The number of bytes after the header.
    pub len: u32,
    /// The checksum of these bytes.
    pub checksum: u32,
}

const PIECE_MAGIC: u32 = u32::from_le_bytes(*b"WPpc");

/// The size of a piece's header, in bytes.
pub const PIECE_HEADER: usize = 40;

impl Layout {
    /// Returns the layout of a ring of about this many bytes.
    pub fn with_size(bytes: u64, process_id: u32, process_name: &str) -> Layout {
        let bytes = bytes.clamp(LEAST_BYTES, MOST_BYTES);
        let segment = (bytes / SEGMENTS).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT);
        let process_name = cut(process_name, NAME).to_owned();
        Layout { segment: segment as u32, segments: (bytes / segment) as u32, process_id, process_name }
    }

    /// Returns the size of the whole file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.segment_at(self.segments)
    }

    /// Returns the position of an area.
    pub fn area_at(&self, area: u32) -> u64 {
        HEADER_BYTES + u64::from(area) * u64::from(AREA_BYTES)
    }

    /// Returns the position of a segment.
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

    /// Reads the layout from the first bytes of a file. Returns none if they are damaged or from a different kind of file.
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

/// Returns the checksum of a piece's content.
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

    /// Returns none if the bytes are not a header, or an incompletely written one.
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
