//! Reads the file of a flight recorder. Its pieces, oldest first, are a trace.
//!
//! A session that writes a trace calls it, and so does `warpline recover`, which has nothing but the file. Any bytes are possible input:
//! it always ends, with a trace or an error.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::format::{AREA_BYTES, HEADER_BYTES, INCIDENT_AREA, Layout, MAGIC, PIECE_HEADER, PieceHeader};
use warpline_core::recovered::{RecoverError, Recovered};

/// Writes what is whole in the file to `trace`, oldest first, as a Perfetto trace.
///
/// The program may be writing to the file meanwhile: a piece that it overwrites is left out.
///
/// # Errors
/// See [`RecoverError`]; what was written to `trace` until then is no whole trace.
pub fn recover(file: &mut (impl Read + Seek), trace: &mut impl Write) -> Result<Recovered, RecoverError> {
    let layout = layout(file)?;
    let (process_id, process_name) = (layout.process_id, layout.process_name.clone());
    let mut reader = PieceReader { found: Recovered { process_id, process_name, ..Recovered::default() }, file };
    let room = layout.segment - PIECE_HEADER as u32;
    let mut segments = Vec::new();
    for segment in 0..layout.segments {
        let at = layout.segment_at(segment);
        if reader.found.missing > 0 {
            // The file ends before: so it does before all that follow.
            reader.found.missing += u64::from(layout.segments - segment);
            break;
        }
        segments.extend(reader.header(at, room)?.map(|header| (header.sequence, at, header)));
    }
    segments.sort_unstable_by_key(|(sequence, ..)| *sequence);
    let mut content = Vec::new();
    for (_, at, header) in segments {
        if reader.content(at, header, &mut content)? {
            if reader.found.pieces == 0 {
                reader.found.zones_before = header.before;
            }
            // Whatever the file says, also what no program comes to.
            reader.found.zones = reader.found.zones.saturating_add(header.zones);
            reader.write(&content, trace)?;
        }
    }
    // What is open is written twice, in turn: one of the two is always whole, and the other one may be half-written.
    let mut open: Vec<_> = Vec::new();
    for area in 0..INCIDENT_AREA {
        open.extend(reader.area(&layout, area)?);
    }
    if let Some((header, content)) = open.into_iter().max_by_key(|(header, _)| header.sequence) {
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

fn layout(file: &mut (impl Read + Seek)) -> Result<Layout, RecoverError> {
    file.seek(SeekFrom::Start(0)).map_err(RecoverError::Read)?;
    let mut header = Vec::new();
    file.by_ref().take(HEADER_BYTES).read_to_end(&mut header).map_err(RecoverError::Read)?;
    match Layout::read(&header) {
        Some(layout) => Ok(layout),
        None if header.is_empty() => Err(RecoverError::Empty),
        None if header.starts_with(&MAGIC) => Err(RecoverError::Damaged),
        // The version stands in the last byte.
        None if header.starts_with(&MAGIC[..MAGIC.len() - 1]) => Err(RecoverError::Damaged),
        None => Err(RecoverError::Foreign),
    }
}

/// Reads pieces, and keeps account of what it finds.
struct PieceReader<'a, F> {
    file: &'a mut F,
    found: Recovered,
}

impl<F: Read + Seek> PieceReader<'_, F> {
    /// The header of the piece that begins there; none where there is no piece, or no whole one.
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

    /// Reads a piece; false where it is not what its header says.
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

    /// The piece in an area, if there is a whole one.
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

/// Fills the buffer from there; false where the file ends before.
fn read_all(file: &mut (impl Read + Seek), at: u64, buffer: &mut [u8]) -> Result<bool, RecoverError> {
    file.seek(SeekFrom::Start(at)).map_err(RecoverError::Read)?;
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(RecoverError::Read(error)),
    }
}
