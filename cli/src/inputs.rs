//! The files that a user named: folders stand for the files in them, and compressed files are read as what they contain.
//!
//! The commands that read several traces call it. A file is recognised as compressed by its first bytes and not by its name, so a
//! renamed file and a pipe (`<(zstd -dc …)`) are read, too.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use ruzstd::decoding::StreamingDecoder;

/// The endings of the names of Perfetto traces.
pub(crate) const PERFETTO: &[&str] = &["pftrace", "perfetto-trace"];

/// The endings of the names of compressed files.
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// The maximum size of a decompressed file, in bytes.
const MAX_UNPACKED: u64 = 64 << 30;

/// Folders in folders are searched to this depth: `RUN/HOST/RANK/trace.pftrace`.
const DEPTH: usize = 4;

const CHUNK: usize = 256 << 10;

const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Why a folder stands for no file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error("{}: {error}; name a folder that can be read", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error(
        "{}: no file in the folder has a name that ends in `.{}`, also with `.gz` or `.zst`; name the folder of the traces",
        path.display(),
        endings.join("` or `.")
    )]
    Nothing { path: PathBuf, endings: &'static [&'static str] },
}

/// Replaces each folder with the files in it and in its folders whose names have one of these endings, in the order of their names.
///
/// # Errors
/// A folder cannot be read, or has no such file.
pub(crate) fn expand(paths: &[PathBuf], endings: &'static [&'static str]) -> Result<Vec<PathBuf>, InputError> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let before = all.len();
        find(path, endings, DEPTH, &mut all).map_err(|error| InputError::Folder { path: path.clone(), error })?;
        if all.len() == before {
            return Err(InputError::Nothing { path: path.clone(), endings });
        }
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
            if depth > 1 {
                find(&path, endings, depth - 1, all)?;
            }
        } else if has_ending(&name, endings) {
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

fn has_ending(name: &str, endings: &[&str]) -> bool {
    let name = name.to_lowercase();
    let packed = COMPRESSED.iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'));
    let name = packed.unwrap_or(&name);
    endings.iter().any(|ending| name.strip_suffix(ending).is_some_and(|stem| stem.ends_with('.')))
}

/// Whether a file begins like a compressed one.
pub(crate) fn is_compressed(begin: &[u8]) -> bool {
    begin.starts_with(&GZIP) || begin.starts_with(&ZSTD)
}

/// Opens a file, and decompresses it if it is compressed with gzip or zstd. The bar counts the bytes of the file.
///
/// # Errors
/// Those of the system, and a header of a compressed file that is damaged.
pub(crate) fn open(path: &Path, bar: &ProgressBar) -> io::Result<Box<dyn BufRead>> {
    unpacked(bar.wrap_read(File::open(path)?))
}

/// The content of a file, decompressed if it is compressed.
///
/// # Errors
/// Those of [`open`].
pub(crate) fn unpacked(file: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(CHUNK, file);
    let begin = file.fill_buf()?;
    if begin.starts_with(&GZIP) {
        return Ok(Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(file).take(MAX_UNPACKED))));
    }
    if begin.starts_with(&ZSTD) {
        let frames = Frames { file: Some(file), frame: None };
        return Ok(Box::new(BufReader::with_capacity(CHUNK, frames.take(MAX_UNPACKED))));
    }
    Ok(Box::new(file))
}

/// The frames of a file in zstd's format, one after the other.
struct Frames<R: Read> {
    /// The file between two frames.
    file: Option<BufReader<R>>,
    frame: Option<StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>,
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                match frame.read(into)? {
                    0 if !into.is_empty() => self.file = self.frame.take().map(StreamingDecoder::into_inner),
                    count => return Ok(count),
                }
            }
            let Some(mut file) = self.file.take() else { return Ok(0) };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd data: {error}"));
            self.frame = Some(StreamingDecoder::new(file).map_err(damaged)?);
        }
    }
}

/// A bar over the bytes of files. It is drawn only if standard error is a terminal.
pub(crate) fn bar(paths: &[PathBuf], what: &'static str) -> ProgressBar {
    let bytes = paths.iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum();
    ProgressBar::new(bytes).with_message(what).with_style(
        ProgressStyle::with_template("{msg} {wide_bar} {percent} %").unwrap_or_else(|_| ProgressStyle::default_bar()),
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
        let packed = zstd(&text);
        fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        assert!(open(&path, &ProgressBar::hidden()).unwrap().read_to_end(&mut Vec::new()).is_err(), "it is cut");
    }
}
