//! The content that the server of `warpline open` serves: one trace as it is on the disk, or several as one, packet
//! after packet.
//!
//! The ids in the traces of warpline's processes differ, so several traces are one if they follow one another. A trace
//! that a killed process left may end within a packet, so only whole packets are passed on. Nothing is written to the
//! disk, and memory does not depend on the sizes of the traces.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpline_trace::files;
use warpline_trace::write::perfetto::proto::{Buffer, PACKET};

use super::OpenError;
use crate::inputs::{self, TRACES};
use crate::trace::{self, Packets};

/// A source that is read while it is served.
pub(super) type Reading = Box<dyn Read + Send>;

/// The traces that are served.
pub(super) struct Content {
    /// The name that the UI shows.
    pub(super) name: String,
    traces: Arc<[Opened]>,
}

impl Content {
    /// Opens the traces, and determines their formats. They stay open, so a file that takes one of their names later is
    /// not served.
    ///
    /// # Errors
    /// A trace cannot be read, or cannot be opened together with others.
    pub(super) fn new(paths: &[PathBuf]) -> Result<Content, OpenError> {
        let paths = crate::files::expand(paths, TRACES)?;
        allow_files(paths.len());
        if let [path] = &paths[..] {
            let trace = Opened::new(path)?;
            // It can be read, and Perfetto reads gzip itself.
            let name = name(path);
            let name = if trace.is_zstd { name.trim_end_matches(".zst") } else { &name };
            return Ok(Content { name: name.to_owned(), traces: Arc::new([trace]) });
        }
        let mut by_begin = paths
            .iter()
            .map(|path| {
                let trace = Opened::new(path)?;
                Ok::<_, OpenError>((begin(path, &trace, paths.len())?, path, trace))
            })
            .collect::<Result<Vec<_>, _>>()?;
        // Perfetto takes the clocks of the traces in the order of the file, and none that goes back.
        by_begin.sort_by(|(a, a_path, _), (b, b_path, _)| (a, a_path).cmp(&(b, b_path)));
        let name = format!("{}-traces.pftrace", paths.len());
        Ok(Content { name, traces: by_begin.into_iter().map(|(.., trace)| trace).collect() })
    }

    /// Returns a reader of the content from its beginning, and its length in bytes, if that is known.
    ///
    /// # Errors
    /// A trace cannot be read any more.
    pub(super) fn open(&self) -> io::Result<(Reading, Option<u64>)> {
        if let [trace] = &self.traces[..] {
            if trace.is_zstd {
                return Ok((Box::new(inputs::unpacked(trace.read())?), None));
            }
            let len = trace.file.metadata()?.len();
            return Ok((Box::new(trace.read().take(len)), Some(len)));
        }
        let traces = Arc::clone(&self.traces);
        let parts = (0..traces.len()).map(move |at| Ok(Whole::new(inputs::unpacked(traces[at].read())?)));
        Ok((Box::new(Joined { parts, now: None }), None))
    }
}

/// An open trace, which several clients read at once.
struct Opened {
    file: Arc<File>,
    is_zstd: bool,
}

impl Opened {
    fn new(path: &Path) -> Result<Opened, OpenError> {
        let read = |error| OpenError::Read { path: path.to_owned(), error };
        let file = files::regular(path).map_err(read)?.ok_or_else(|| OpenError::NotAFile { path: path.to_owned() })?;
        let mut trace = Opened { file: file.into(), is_zstd: false };
        let mut begin = Vec::new();
        trace.read().take(4).read_to_end(&mut begin).map_err(read)?;
        trace.is_zstd = inputs::is_zstd(&begin);
        Ok(trace)
    }

    /// Returns a reader of the file, from its begin.
    fn read(&self) -> impl Read + Send + 'static {
        FromBegin { file: Arc::clone(&self.file), at: 0 }
    }
}

/// Reads a file that others read, too.
struct FromBegin {
    file: Arc<File>,
    at: u64,
}

impl Read for FromBegin {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let count = std::os::unix::fs::FileExt::read_at(&*self.file, into, self.at)?;
        #[cfg(windows)]
        let count = std::os::windows::fs::FileExt::seek_read(&*self.file, into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Raises the limit of open files of this process to this number plus that of its connections, as far as the system
/// allows.
#[cfg(unix)]
fn allow_files(count: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let (mut limit, wanted) = (getrlimit(Resource::Nofile), count as u64 + 64);
    if limit.current.is_some_and(|now| now < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // If this fails, opening a trace fails, with an error that names it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

#[cfg(not(unix))]
fn allow_files(_count: usize) {}

/// The time at which a trace begins, which may be one of several.
fn begin(path: &Path, trace: &Opened, count: usize) -> Result<Option<u64>, OpenError> {
    let read = |error| OpenError::Read { path: path.to_owned(), error };
    let mut trace = inputs::unpacked(trace.read()).map_err(read)?;
    match trace.fill_buf().map_err(read)? {
        begin if trace::is_json(begin) => Err(OpenError::NotAlone { path: path.to_owned(), count }),
        begin if !trace::is_perfetto(begin) => Err(OpenError::NotATrace { path: path.to_owned() }),
        _ => trace::first_time(trace).map_err(read),
    }
}

/// The name of a trace in an address.
fn name(path: &Path) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' };
    path.file_name().unwrap_or_default().to_string_lossy().chars().map(plain).collect()
}

/// Reads traces one after the other, each of which is decompressed when its turn comes.
struct Joined<I, R> {
    parts: I,
    now: Option<Whole<R>>,
}

impl<R: Read, I: Iterator<Item = io::Result<Whole<R>>>> Read for Joined<I, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.now.as_mut().map_or(Ok(0), |now| now.read(into))? {
                0 if !into.is_empty() => match self.parts.next() {
                    Some(next) => self.now = Some(next?),
                    None => return Ok(0),
                },
                count => return Ok(count),
            }
        }
    }
}

/// Reads the whole packets of a trace.
struct Whole<R> {
    packets: Packets<R>,
    /// Packets with their headers, and how much of them was read.
    ready: Buffer,
    from: usize,
}

impl<R: Read> Whole<R> {
    fn new(trace: R) -> Whole<R> {
        Whole { packets: Packets::new(trace), ready: Buffer::default(), from: 0 }
    }
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.from == self.ready.len() {
            self.from = 0;
            self.ready.clear();
            while self.ready.len() < into.len()
                && let Some(packet) = self.packets.next_packet()?
            {
                self.ready.bytes(PACKET, packet);
            }
        }
        let count = into.len().min(self.ready.len() - self.from);
        into[..count].copy_from_slice(&self.ready.as_bytes()[self.from..self.from + count]);
        self.from += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_trace::write::perfetto::proto::packet;

    /// A trace of packets with these times, each of which is longer than what is read at once.
    fn trace(times: &[i64]) -> Vec<u8> {
        let mut trace = Buffer::default();
        for time in times {
            trace.packet(|packet| {
                packet.int(packet::TIMESTAMP, *time);
                packet.text(99, &"x".repeat(30_000));
            });
        }
        trace.as_bytes().to_vec()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn bytes(content: &Content) -> Vec<u8> {
        let (mut reader, len) = content.open().unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(len.is_none_or(|len| len == bytes.len() as u64), "{len:?}, not {}", bytes.len());
        bytes
    }

    #[test]
    fn several_traces_are_one_in_the_order_of_their_begins() {
        let folder = tempfile::tempdir().unwrap();
        let [late, cut, early] = [trace(&[300, 310]), trace(&[200, 210]), trace(&[100, 110])];
        for (name, content) in [
            ("rank0.pftrace", &late),
            ("rank1.pftrace", &cut[..cut.len() - 9].to_vec()),
            ("rank2.pftrace.zst", &zstd(&early)),
        ] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let content = Content::new(&[folder.path().to_owned()]).unwrap();
        assert_eq!(content.name, "3-traces.pftrace");
        assert!(bytes(&content) == [early, trace(&[200]), late].concat());
    }

    #[test]
    fn one_trace_is_served_as_it_is_and_zstd_decompressed() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, packed, text] = ["a b.json", "t.pftrace.zst", "notes"].map(|name| folder.path().join(name));
        std::fs::write(&plain, "[]").unwrap();
        std::fs::write(&packed, zstd(&trace(&[1]))).unwrap();
        std::fs::write(&text, "no trace").unwrap();
        let [json, one] = [&plain, &packed].map(|path| Content::new(std::slice::from_ref(path)).unwrap());
        assert_eq!((json.name.as_str(), bytes(&json)), ("a_b.json", b"[]".to_vec()));
        assert_eq!((one.name.as_str(), bytes(&one)), ("t.pftrace", trace(&[1])));
        for (other, why) in
            [(plain, "a b.json: a Chrome trace can only be opened alone, and 2 traces"), (text, "notes: not a trace")]
        {
            let refused = Content::new(&[packed.clone(), other]).err().expect("it opens alone").to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
