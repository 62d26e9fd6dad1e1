//! Any bytes as annotations and as a trace: the whole way of `warpline annotate`, but for the printing.
//!
//! The first byte says how they are joined and what is written, the next two how many bytes are annotations; the rest is the
//! trace. `fuzz/seeds/annotate.py` makes the seeds.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use warpline_annotate::{By, Options};
use warpline_cli::stragglers::Calls;

/// More is refused, which bounds what a packed input may become.
const LIMIT: u64 = 16 << 20;

/// Joins the bytes as annotations and a trace.
pub fn annotate(bytes: &[u8]) {
    let [options, low, high, content @ ..] = bytes else { return };
    let (annotations, trace) = content.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(content.len()));
    let folder = folder();
    let output = ["out.pftrace", "out.json", "out.pftrace.gz", "out.json.gz"][usize::from(options >> 1 & 3)];
    let options = Options {
        annotations: folder.join("annotations"),
        trace: folder.join("trace"),
        output: folder.join(output),
        by: if options & 1 == 0 { By::Id } else { By::Order },
        limit: LIMIT,
    };
    fs::write(&options.annotations, annotations).expect("the folder can be written to");
    fs::write(&options.trace, trace).expect("the folder can be written to");
    match warpline_annotate::annotate(&options, &()) {
        Ok(summary) => {
            assert!(summary.joined > 0 && summary.joined <= summary.events, "{summary:?}");
            assert!(summary.graphs.0 > 0 && summary.graphs.0 <= summary.graphs.1, "{summary:?}");
            let written = fs::read(&options.output).expect("an output");
            match output {
                "out.json" => drop(serde_json::from_slice::<serde_json::Value>(&written).expect("JSON")),
                "out.pftrace" => drop(Calls::default().read(&written[..]).expect("a Perfetto trace")),
                _ => assert_eq!(written[..2], [0x1F, 0x8B]),
            }
            fs::remove_file(&options.output).expect("nobody else removes it");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    // Nothing is left, neither of an output nor of a part of one.
    assert_eq!(fs::read_dir(folder).expect("the folder can be read").count(), 2);
}

/// Where the files of this process go, instead of a folder that it makes in memory.
pub(crate) const FOLDER: &str = "WARPLINE_ATTACK_FOLDER";

/// A folder of this process.
fn folder() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let given = std::env::var_os(FOLDER).map(PathBuf::from);
        let folder = given.unwrap_or_else(|| place.join(format!("warpline-fuzz-annotate-{}", std::process::id())));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    })
}
