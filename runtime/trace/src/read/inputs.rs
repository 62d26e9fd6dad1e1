//! The files that a user named: folders stand for the files in them, and compressed files are read as what they contain.
//!
//! Every command that reads traces or the files of flight recorders calls it. A file is recognised as
//! compressed by its first bytes and not by its name, so a renamed file is read, too. What is decompressed has at most 64 GiB, or the bytes that
//! the caller allows, and at most 1,100 times the bytes of the file. A pipe, a device and a folder are refused, and not waited for.

use std::borrow::Cow;
use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use warpline_core::text::printable;

use super::annotations::is_annotations;
use super::document::{Refused, TooLong};
pub use super::endings::{CHROME, FLIGHT, PERFETTO, TRACES, has_ending, stem, uncompressed};
use crate::files;

/// The maximum size of a decompressed file, in bytes.
const MAX_UNPACKED: u64 = 64 << 30;

/// The most times as long as its file a decompressed file is, beyond [`SMALL`]. Gzip reaches 1,032 times; zstd packs gigabytes of one letter into some
/// kilobytes, which no trace is.
const RATIO: u64 = 1_100;

/// The size up to which a decompressed file may be any number of times as long as its file.
const SMALL: u64 = 64 << 20;

/// Folders in folders are searched to this depth: `RUN/HOST/RANK/trace.pftrace`.
const DEPTH: usize = 4;

const CHUNK: usize = 256 << 10;

const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Why a folder stands for no file.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{}: {error}; name a folder that can be read", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error(
        "{}: no file in the folder has a name that ends in `.{}`, also with `.gz` or `.zst`; name the folder in which they are",
        path.display(),
        endings.join("` or `.")
    )]
    Nothing { path: PathBuf, endings: &'static [&'static str] },
}

/// Replaces each folder with the files in it and in its folders whose names have one of these endings, in the order of their names. Links to
/// folders are not followed, several links to one file stand for it once, and annotations of CUDA graphs are no traces.
///
/// # Errors
/// A folder cannot be read, or has no such file.
pub fn expand(paths: &[PathBuf], endings: &'static [&'static str]) -> Result<Vec<PathBuf>, InputError> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let mut found = Vec::new();
        find(path, endings, DEPTH, &mut found).map_err(|error| InputError::Folder { path: path.clone(), error })?;
        let mut known = HashSet::new();
        found.retain(|file| file.canonicalize().map_or(true, |file| known.insert(file)));
        if found.is_empty() {
            return Err(InputError::Nothing { path: path.clone(), endings });
        }
        all.append(&mut found);
    }
    Ok(all)
}

fn find(folder: &Path, endings: &[&str], depth: usize, all: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut found = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    found.sort_by_key(|entry| natural(&entry.file_name().to_string_lossy()));
    for entry in found {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        // Hidden files are temporary ones.
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if depth > 1 && !path.is_symlink() {
                find(&path, endings, depth - 1, all)?;
            }
        } else if has_ending(&name, endings) && path.is_file() && !is_annotations(&path) {
            all.push(path);
        }
    }
    Ok(())
}

/// Orders `rank10` behind `rank9`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let parts = name.split_inclusive(|letter: char| !letter.is_ascii_digit());
    let part = |part: &str| {
        let digits = part.len() - part.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        (part[..digits].parse().unwrap_or(0), part[digits..].to_owned())
    };
    parts.map(part).collect()
}

/// Whether a file begins like a compressed one.
pub fn is_compressed(begin: &[u8]) -> bool {
    begin.starts_with(&GZIP) || is_zstd(begin)
}

/// Whether a file begins like one in zstd's format.
pub fn is_zstd(begin: &[u8]) -> bool {
    begin.starts_with(&ZSTD)
}

/// Opens a file, and decompresses it if it is compressed with gzip or zstd. The bar counts the bytes of the file.
///
/// # Errors
/// Those of the system, that it is no regular file, and a header of a compressed file that is damaged.
pub fn open(path: &Path, bar: &ProgressBar) -> io::Result<Box<dyn BufRead + Send>> {
    let file = files::regular(path)?.ok_or_else(|| io::Error::other(Refused("it is not a file".to_owned())))?;
    unpacked(bar.wrap_read(file))
}

/// The content of a file, decompressed if it is compressed.
///
/// # Errors
/// Those of [`open`].
pub fn unpacked(file: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(Box::new(within(file, None)?))
}

/// Opens a file that is read twice; none if it is a pipe, a device or a folder. After `limit` decompressed bytes, reads fail with [`TooLong`].
/// `on_bytes` is called with the number of bytes that each read takes from the file.
///
/// # Errors
/// Those of the system, and a header of a compressed file that is damaged.
pub fn open_within<'a>(
    path: &Path,
    limit: u64,
    on_bytes: impl FnMut(u64) + 'a,
) -> io::Result<Option<Box<dyn BufRead + 'a>>> {
    let Some(file) = files::regular(path)? else { return Ok(None) };
    Ok(Some(Box::new(within(Observed { inner: file, on_bytes }, Some(limit))?)))
}

/// The one reader of all files. Without a limit, a compressed file has at most [`MAX_UNPACKED`] bytes, and another one as many as it has.
fn within<R: Read>(file: R, limit: Option<u64>) -> io::Result<impl BufRead + use<R>> {
    let taken = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&taken);
    let on_bytes = move |count| {
        counter.fetch_add(count, Ordering::Relaxed);
    };
    let mut file = BufReader::with_capacity(CHUNK, Observed { inner: file, on_bytes });
    let begin = file.fill_buf()?;
    let (is_gzip, is_zstd) = (begin.starts_with(&GZIP), is_zstd(begin));
    let limit = limit.unwrap_or(if is_gzip || is_zstd { MAX_UNPACKED } else { u64::MAX });
    let is_packed = is_gzip || is_zstd;
    let inner = match (is_gzip, is_zstd) {
        (true, _) => Packing::Gzip(MultiGzDecoder::new(file)),
        (_, true) => Packing::Zstd(Frames { file: Some(file), frame: None }),
        _ => Packing::None(file),
    };
    // Of a file that is not compressed, large reads pass both buffers by.
    Ok(BufReader::with_capacity(CHUNK, Limited { inner, given: 0, limit, taken: is_packed.then_some(taken) }))
}

/// Whether an error of [`open`]'s reader is that the compressed file is damaged or cut. What came before it is sound.
pub fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

/// Calls back with what is read.
struct Observed<R, F> {
    inner: R,
    on_bytes: F,
}

impl<R: Read, F: FnMut(u64)> Read for Observed<R, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        (self.on_bytes)(count as u64);
        Ok(count)
    }
}

/// Fails after so many bytes, and where a compressed file becomes too many times as long.
struct Limited<R> {
    inner: R,
    given: u64,
    limit: u64,
    /// The bytes of the compressed file that were taken.
    taken: Option<Arc<AtomicU64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.given += count as u64;
        if self.given > self.limit {
            return Err(io::Error::other(TooLong(self.limit)));
        }
        if let Some(taken) = &self.taken
            && self.given > SMALL.max(taken.load(Ordering::Relaxed).saturating_mul(RATIO))
        {
            let text = format!(
                "it has more than {} MiB and {RATIO} times as many bytes when it is decompressed, as no trace has; if it is one, decompress it",
                SMALL >> 20
            );
            return Err(io::Error::other(Refused(text)));
        }
        Ok(count)
    }
}

/// How a file is compressed.
enum Packing<R: Read> {
    None(BufReader<R>),
    Gzip(MultiGzDecoder<BufReader<R>>),
    Zstd(Frames<R>),
}

impl<R: Read> Read for Packing<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Packing::None(file) => file.read(into),
            Packing::Gzip(file) => file.read(into),
            Packing::Zstd(file) => file.read(into),
        }
    }
}

/// The frames of a file in zstd's format, one after the other.
struct Frames<R: Read> {
    /// The file between two frames.
    file: Option<BufReader<R>>,
    frame: Option<Box<StreamingDecoder<BufReader<R>, FrameDecoder>>>,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(into).map_err(of_frame)? {
                    0 if !into.is_empty() => self.file = self.frame.take().map(|frame| frame.into_inner()),
                    count => return Ok(count),
                }
            }
            let Some(mut file) = self.file.take() else { return Ok(0) };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(Box::new(StreamingDecoder::new(file).map_err(|error| of_zstd(&error))?));
        }
    }
}

/// The error of zstd's decoder is within one of reading.
fn of_frame(error: io::Error) -> io::Error {
    match error.get_ref() {
        Some(inner) => of_zstd(inner),
        None => error,
    }
}

/// What an error of zstd's decoder says of the file: that it cannot be read, that it is cut, that it takes too much memory, or that it is damaged.
fn of_zstd(error: &(dyn Error + 'static)) -> io::Error {
    if let Some(FrameDecoderError::WindowSizeTooBig { max, .. }) = error.downcast_ref() {
        let text =
            format!("it takes more than {} MiB of memory to decompress; compress it with a smaller window", max >> 20);
        return io::Error::other(Refused(text));
    }
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let text = match error.kind() {
                io::ErrorKind::UnexpectedEof => "the zstd data is cut".to_owned(),
                _ => error.to_string(),
            };
            return io::Error::new(error.kind(), text);
        }
        cause = error.source();
    }
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// A bar over the bytes of files. It is drawn only if standard error is a terminal.
pub fn bar(paths: &[PathBuf], what: impl Into<Cow<'static, str>>) -> ProgressBar {
    steps(paths.iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum(), what)
}

/// A bar over one file, which its message names.
pub fn bar_of(path: &Path) -> ProgressBar {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    bar(&[path.to_owned()], format!("reading {}", printable(&name)))
}

/// A bar over so many steps of work. It is drawn only if standard error is a terminal.
pub fn steps(count: u64, what: impl Into<Cow<'static, str>>) -> ProgressBar {
    ProgressBar::new(count).with_message(what).with_style(
        ProgressStyle::with_template("{msg} {wide_bar} {percent} %").unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// A line that says how many bytes have come, and for how long. It is drawn only if standard error is a terminal.
#[cfg(target_os = "linux")]
pub fn received() -> ProgressBar {
    ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{elapsed}: {bytes} of trace")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_folder_stands_for_the_traces_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let (root, deep) = (folder.path(), folder.path().join("host1/rank3"));
        fs::create_dir_all(&deep).unwrap();
        for name in [
            "rank10.pftrace.gz",
            "rank9.pftrace",
            "b.perfetto-trace",
            "c.PFTRACE.ZST",
            "pftrace",
            "a.json",
            ".t.pftrace",
        ] {
            fs::write(root.join(name), "").unwrap();
        }
        fs::write(deep.join("t.pftrace"), "").unwrap();
        // None of these is a further trace.
        fs::write(root.join("kernel_annotations_rank0.json"), "{}").unwrap();
        #[cfg(unix)]
        for (to, link) in [("rank9.pftrace", "rank99.pftrace"), ("host1", "latest"), (".", "host1/again")] {
            std::os::unix::fs::symlink(root.join(to), root.join(link)).unwrap();
        }
        let found = expand(&[root.to_owned(), "x.json".into()], PERFETTO).unwrap();
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(root).unwrap_or(path).to_str().unwrap().to_owned()).collect();
        let expected = [
            "b.perfetto-trace",
            "c.PFTRACE.ZST",
            "host1/rank3/t.pftrace",
            "rank9.pftrace",
            "rank10.pftrace.gz",
            "x.json",
        ];
        assert_eq!(names, expected);
        let json = expand(&[root.to_owned()], CHROME).unwrap();
        assert_eq!(json, [root.join("a.json")]);
        let empty = root.join("host1/none");
        fs::create_dir(&empty).unwrap();
        let refusal = expand(&[empty], PERFETTO).unwrap_err().to_string();
        assert!(refusal.contains("ends in `.pftrace` or `.perfetto-trace`, also with `.gz`"), "{refusal}");
    }

    #[test]
    fn compressed_files_are_read_as_what_they_contain() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let text: Vec<u8> = (0..80_000_u32).flat_map(u32::to_le_bytes).collect();
        let halves = text.split_at(text.len() / 3);
        let gzip = |part: &[u8]| {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(part).unwrap();
            packed.finish().unwrap()
        };
        let zstd = |part: &[u8]| ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest);
        let several = |pack: &dyn Fn(&[u8]) -> Vec<u8>| [pack(halves.0), pack(halves.1)].concat();
        for packed in [text.clone(), gzip(&text), zstd(&text), several(&gzip), several(&zstd)] {
            fs::write(&path, &packed).unwrap();
            let mut unpacked = Vec::new();
            open(&path, &ProgressBar::hidden()).unwrap().read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == text, "{} of {} bytes", unpacked.len(), text.len());
        }
        for packed in [gzip(&text), zstd(&text)] {
            fs::write(&path, &packed[..packed.len() / 2]).unwrap();
            let error = open(&path, &ProgressBar::hidden()).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
            assert!(is_damage(&error) && error.kind() == io::ErrorKind::UnexpectedEof, "{error:?}");
            // A second file that is none.
            fs::write(&path, [&packed[..], b"and more"].concat()).unwrap();
            let mut unpacked = Vec::new();
            let error = open(&path, &ProgressBar::hidden()).unwrap().read_to_end(&mut unpacked).unwrap_err();
            assert!(is_damage(&error) && unpacked == text, "{error:?}");
        }
    }

    #[test]
    fn one_limit_holds_for_files_of_every_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let text = vec![b' '; 3 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(&*text, ruzstd::encoding::CompressionLevel::Fastest);
        for file in [text.clone(), gzip.finish().unwrap(), zstd] {
            fs::write(&path, &file).unwrap();
            let read = |limit| {
                let mut bytes = Vec::new();
                open_within(&path, limit, |_| ()).unwrap().unwrap().read_to_end(&mut bytes).map(|_| bytes)
            };
            assert!(read(3 << 20).unwrap() == text);
            let error = read(2 << 20).unwrap_err();
            assert_eq!(error.to_string(), "it has more than 2 MiB when it is decompressed");
            assert!(!is_damage(&error) && error.get_ref().unwrap().is::<TooLong>(), "{error:?}");
        }
    }
}
