//! Reads the file of a flight recorder: its pieces, oldest first, are a trace.
//!
//! Called by the session that writes a trace out, and by `warpline recover`, which has nothing but the file: whatever
//! stands in it, also garbage, comes to an end and to an answer.

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
    let mut found =
        Recovered { process_id: layout.process_id, process_name: layout.process_name.clone(), ..Recovered::default() };
    let room = layout.segment - PIECE_HEADER as u32;
    let mut segments = Vec::new();
    for segment in 0..layout.segments {
        let at = layout.segment_at(segment);
        if found.missing > 0 {
            // The file ends before: so it does before all that follow.
            found.missing += u64::from(layout.segments - segment);
            break;
        }
        segments.extend(found.header(file, at, room)?.map(|header| (header.sequence, at, header)));
    }
    segments.sort_unstable_by_key(|(sequence, ..)| *sequence);
    let mut content = Vec::new();
    for (_, at, header) in segments {
        if found.content(file, at, header, &mut content)? {
            if found.pieces == 0 {
                found.zones_before = header.before;
            }
            // Whatever the file says, also what no program comes to.
            found.zones = found.zones.saturating_add(header.zones);
            found.write(&content, trace)?;
        }
    }
    // What is open is written twice, in turn: one of the two is always whole, and the other one may be half-written.
    let mut open: Vec<_> = Vec::new();
    for area in 0..INCIDENT_AREA {
        open.extend(found.area(file, &layout, area)?);
    }
    if let Some((header, content)) = open.into_iter().max_by_key(|(header, _)| header.sequence) {
        found.open_zones = header.before;
        found.write(&content, trace)?;
    }
    if let Some((header, content)) = found.area(file, &layout, INCIDENT_AREA)? {
        found.has_incident = true;
        found.open_zones = found.open_zones.max(header.before);
        found.write(&content, trace)?;
    }
    if found.pieces == 0 {
        return Err(RecoverError::NoPiece { damaged: found.damaged, missing: found.missing });
    }
    trace.flush().map_err(RecoverError::Write)?;
    Ok(found)
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

impl Recovered {
    /// The header of the piece that begins there; none where there is no piece, or no whole one.
    fn header(
        &mut self,
        file: &mut (impl Read + Seek),
        at: u64,
        room: u32,
    ) -> Result<Option<PieceHeader>, RecoverError> {
        let mut bytes = [0; PIECE_HEADER];
        if !read_all(file, at, &mut bytes)? {
            self.missing += 1;
            return Ok(None);
        }
        if bytes == [0; PIECE_HEADER] {
            return Ok(None);
        }
        let header = PieceHeader::read(&bytes).filter(|header| header.len <= room);
        self.damaged += u64::from(header.is_none());
        Ok(header)
    }

    /// Reads a piece; false where it is not what its header says.
    fn content(
        &mut self,
        file: &mut (impl Read + Seek),
        at: u64,
        header: PieceHeader,
        content: &mut Vec<u8>,
    ) -> Result<bool, RecoverError> {
        content.clear();
        content.resize(header.len as usize, 0);
        if !read_all(file, at + PIECE_HEADER as u64, content)? {
            self.missing += 1;
            return Ok(false);
        }
        let is_whole = crc32fast::hash(content) == header.checksum;
        self.damaged += u64::from(!is_whole);
        Ok(is_whole)
    }

    /// The piece in an area, if there is a whole one.
    fn area(
        &mut self,
        file: &mut (impl Read + Seek),
        layout: &Layout,
        area: u32,
    ) -> Result<Option<(PieceHeader, Vec<u8>)>, RecoverError> {
        let (at, damaged) = (layout.area_at(area), self.damaged);
        let mut content = Vec::new();
        let header = self.header(file, at, AREA_BYTES - PIECE_HEADER as u32)?;
        let whole = match header {
            Some(header) if self.content(file, at, header, &mut content)? => Some((header, content)),
            _ => None,
        };
        self.damaged = damaged;
        Ok(whole)
    }

    fn write(&mut self, content: &[u8], trace: &mut impl Write) -> Result<(), RecoverError> {
        trace.write_all(content).map_err(RecoverError::Write)?;
        self.pieces += 1;
        self.bytes += content.len() as u64;
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
