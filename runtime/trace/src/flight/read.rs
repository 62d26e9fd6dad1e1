//! Reads the file of a flight recorder. Its pieces, oldest first, are a trace.
//!
//! A session that writes a trace calls it, and so does `warpline recover`, which has only the file. Any bytes are possible input:
//! the reader always ends, with a trace or an error.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::format::{AREA_BYTES, HEADER_BYTES, INCIDENT_AREA, Layout, MAGIC, PIECE_HEADER, PieceHeader};
use warpline_core::recovered::{RecoverError, Recovered};
use warpline_core::sorting;

/// Writes the complete pieces in the file to `trace`, oldest first, as a Perfetto trace.
///
/// The program may still be writing to the file: a piece that it overwrites is left out.
///
/// # Errors
/// See [`RecoverError`]. After an error, the bytes written to `trace` are not a complete trace.
pub fn recover(file: &mut (impl Read + Seek), trace: &mut impl Write) -> Result<Recovered, RecoverError> {
    let layout = layout(file)?;
    let (process_id, process_name) = (layout.process_id, layout.process_name.clone());
    let mut reader = PieceReader { found: Recovered { process_id, process_name, ..Recovered::default() }, file };
    let room = layout.segment - PIECE_HEADER as u32;
    let mut segments = Vec::new();
    for segment in 0..layout.segments {
        let at = layout.segment_at(segment);
        if reader.found.missing > 0 {
            // The file ends before this segment, and so before all later ones.
            reader.found.missing += u64::from(layout.segments - segment);
            break;
        }
        segments.extend(reader.header(at, room)?.map(|header| (header.sequence, at, header)));
    }
    sorting::sort_by_key(&mut segments, |(sequence, ..)| *sequence);
    let mut content = Vec::new();
    for (_, at, header) in segments {
        if reader.content(at, header, &mut content)? {
            if reader.found.pieces == 0 {
                reader.found.zones_before = header.before;
            }
            // Saturates, because a damaged file can contain any number.
            reader.found.zones = reader.found.zones.saturating_add(header.zones);
            reader.write(&content, trace)?;
        }
    }
    if let Some((header, content)) = reader.open(&layout)? {
        reader.found.open_zones = header.before;
        reader.write(&content, trace)?;
    }
    if let Some((header, content)) = reader.area(&layout, INCIDENT_AREA)? {
        reader.found.has_incident = true;
        reader.found.open_zones = reader.found.open_zones.max(header.before);
        reader.write(&content, trace)?;
    }
    if reader.found.pieces == 0 {
        return Err(RecoverError::NoPiece { damaged: reader.found.damaged, missing: reader.found.missing });
    }
    trace.flush().map_err(RecoverError::Write)?;
    Ok(reader.found)
}

/// Returns the process that wrote the file, and the packets of the zones that were open when it last wrote; none if there were no such packets.
///
/// # Errors
/// As those of [`recover`].
#[cfg(feature = "read")]
pub(crate) fn open_piece(file: &mut (impl Read + Seek)) -> Result<(u32, Option<Vec<u8>>), RecoverError> {
    let layout = layout(file)?;
    let mut reader = PieceReader { found: Recovered::default(), file };
    let piece = reader.open(&layout)?;
    match reader.found.missing {
        missing @ 1.. if piece.is_none() => Err(RecoverError::NoPiece { damaged: 0, missing }),
        _ => Ok((layout.process_id, piece.map(|(_, content)| content))),
    }
}

fn layout(file: &mut (impl Read + Seek)) -> Result<Layout, RecoverError> {
    file.seek(SeekFrom::Start(0)).map_err(RecoverError::Read)?;
    let mut header = Vec::new();
    file.by_ref().take(HEADER_BYTES).read_to_end(&mut header).map_err(RecoverError::Read)?;
    match Layout::read(&header) {
        Some(layout) => Ok(layout),
        None if header.is_empty() => Err(RecoverError::Empty),
        None if header.starts_with(&MAGIC) => Err(RecoverError::Damaged),
        // The version is in the last byte.
        None if header.starts_with(&MAGIC[..MAGIC.len() - 1]) => Err(RecoverError::Damaged),
        None => Err(RecoverError::Foreign),
    }
}

/// Reads pieces and counts what it finds.
struct PieceReader<'a, F> {
    file: &'a mut F,
    found: Recovered,
}

impl<F: Read + Seek> PieceReader<'_, F> {
    /// Returns the header of the piece that begins at `at`, or none if there is no complete piece.
    fn header(&mut self, at: u64, room: u32) -> Result<Option<PieceHeader>, RecoverError> {
        let mut bytes = [0; PIECE_HEADER];
        if !read_all(self.file, at, &mut bytes)? {
            self.found.missing += 1;
            return Ok(None);
        }
        if bytes == [0; PIECE_HEADER] {
            return Ok(None);
        }
        let header = PieceHeader::read(&bytes).filter(|header| header.len <= room);
        self.found.damaged += u64::from(header.is_none());
        Ok(header)
    }

    /// Reads a piece. Returns false if it does not match its header.
    fn content(&mut self, at: u64, header: PieceHeader, content: &mut Vec<u8>) -> Result<bool, RecoverError> {
        content.clear();
        content.resize(header.len as usize, 0);
        if !read_all(self.file, at + PIECE_HEADER as u64, content)? {
            self.found.missing += 1;
            return Ok(false);
        }
        let is_whole = crc32fast::hash(content) == header.checksum;
        self.found.damaged += u64::from(!is_whole);
        Ok(is_whole)
    }

    /// Returns the open zones. They are written to two areas in turn: one of them is always complete, and the other may be half-written.
    fn open(&mut self, layout: &Layout) -> Result<Option<(PieceHeader, Vec<u8>)>, RecoverError> {
        let mut open = None;
        for area in 0..INCIDENT_AREA {
            let piece = self.area(layout, area)?;
            let is_newer = |open: &Option<(PieceHeader, Vec<u8>)>| match (&piece, open) {
                (Some((piece, _)), Some((open, _))) => piece.sequence > open.sequence,
                (piece, _) => piece.is_some(),
            };
            if is_newer(&open) {
                open = piece;
            }
        }
        Ok(open)
    }

    /// Returns the piece in an area, if it is complete.
    fn area(&mut self, layout: &Layout, area: u32) -> Result<Option<(PieceHeader, Vec<u8>)>, RecoverError> {
        let (at, damaged) = (layout.area_at(area), self.found.damaged);
        let mut content = Vec::new();
        let header = self.header(at, AREA_BYTES - PIECE_HEADER as u32)?;
        let whole = match header {
            Some(header) if self.content(at, header, &mut content)? => Some((header, content)),
            _ => None,
        };
        self.found.damaged = damaged;
        Ok(whole)
    }

    fn write(&mut self, content: &[u8], trace: &mut impl Write) -> Result<(), RecoverError> {
        trace.write_all(content).map_err(RecoverError::Write)?;
        self.found.pieces += 1;
        self.found.bytes += content.len() as u64;
        Ok(())
    }
}

/// Fills the buffer from `at` on. Returns false if the file ends before.
fn read_all(file: &mut (impl Read + Seek), at: u64, buffer: &mut [u8]) -> Result<bool, RecoverError> {
    file.seek(SeekFrom::Start(at)).map_err(RecoverError::Read)?;
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(RecoverError::Read(error)),
    }
}
