//! The pages of a file that is in memory, decompressed with one decompressor for each thread. The Parquet reader makes
//! a compressor and a decompressor for each column of each file, and a file of one rank has a few hundred bytes a
//! column: to make them took most of the time. Called by `read`, for files with one group of rows and nothing but zstd.

use std::cell::RefCell;
use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::parquet::arrow::arrow_reader::RowGroups;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::parquet::file::serialized_reader::SerializedPageReader;
use zstd::bulk::Decompressor;

thread_local! {
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// A file with one group of rows.
pub struct OneGroup {
    bytes: Arc<Bytes>,
    facts: Arc<ParquetMetaData>,
}

impl OneGroup {
    /// The pages of a file whose columns are compressed with zstd or not at all; none for another file.
    pub fn of(bytes: Bytes, facts: &Arc<ParquetMetaData>) -> Option<Self> {
        let [group] = facts.row_groups() else { return None };
        let is_known = |compression| matches!(compression, Compression::ZSTD(_) | Compression::UNCOMPRESSED);
        let all = group.columns().iter().all(|column| is_known(column.compression()));
        all.then(|| Self { bytes: Arc::new(bytes), facts: facts.clone() })
    }
}

impl RowGroups for OneGroup {
    fn num_rows(&self) -> usize {
        self.facts.row_groups().iter().map(|group| usize::try_from(group.num_rows()).unwrap_or(0)).sum()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let group = self.facts.row_group(0);
        let chunk = group.column(column);
        let is_compressed = chunk.compression() != Compression::UNCOMPRESSED;
        let most = usize::try_from(chunk.uncompressed_size()).unwrap_or(0);
        // Read as if it were not compressed, so that the reader makes no decompressor.
        let plain = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let pages = SerializedPageReader::new(self.bytes.clone(), &plain, self.num_rows(), None)?;
        Ok(Box::new(OneChunk(Some(Box::new(Pages { pages, most: is_compressed.then_some(most) })))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.facts.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.facts
    }
}

/// The pages of a column in the one group.
struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}

struct Pages {
    pages: SerializedPageReader<Bytes>,
    /// The most bytes that a page may have; none if they are not compressed.
    most: Option<usize>,
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(mut page) = self.pages.get_next_page()? else { return Ok(None) };
        let Some(most) = self.most else { return Ok(Some(page)) };
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = decompressed(buf, 0, most)?,
            // The levels are before the values, and never compressed.
            Page::DataPageV2 { buf, is_compressed: true, def_levels_byte_len, rep_levels_byte_len, .. } => {
                *buf = decompressed(buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize, most)?;
            }
            Page::DataPageV2 { .. } => {}
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

/// The bytes, of which those from `from` on are one frame of zstd. It says how large its content is, because it was
/// made in one go.
fn decompressed(bytes: &Bytes, from: usize, most: usize) -> Result<Bytes> {
    let wrong = |why: &str| ParquetError::General(format!("a page is damaged: {why}"));
    let Some(frame) = bytes.get(from..) else { return Err(wrong("its levels are longer than it is")) };
    // A page without a value.
    if frame.is_empty() {
        return Ok(bytes.clone());
    }
    let size = zstd::zstd_safe::get_frame_content_size(frame).map_err(|_| wrong("it is not compressed with zstd"))?;
    let size = size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size <= most);
    let size = size.ok_or_else(|| wrong("it is larger than its column"))?;
    let mut all = Vec::with_capacity(from + size);
    all.extend_from_slice(&bytes[..from]);
    let mut end = Cursor::new(all);
    end.set_position(from as u64);
    DECOMPRESSOR.with_borrow_mut(|known| {
        let decompressor = match known {
            Some(decompressor) => decompressor,
            None => known.insert(Decompressor::new()?),
        };
        decompressor.decompress_to_buffer(frame, &mut end).map(drop)
    })?;
    Ok(end.into_inner().into())
}
