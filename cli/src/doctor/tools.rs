//! Findings about the tools that show zones live: NVTX tools and Tracy.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use object::{NameOrOrdinal, Object};

use super::{Finding, PartState, Wanted};

const VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// The value that means no tool.
const NO_TOOL: &str = "./.";
const ENTRY: &[u8] = b"InitializeInjectionNvtx2";

/// The most bytes that are read of a tool's library.
const LIBRARY_BYTES: u64 = 1 << 30;

/// Where Tracy's client listens without TRACY_PORT: at the first of these that is free.
const TRACY_PORT: u16 = 8086;
const TRACY_PORTS: u16 = 20;

/// The NVTX tool. Its library is read and not loaded: a tool could begin to profile.
pub(super) fn nvtx(wanted: &Wanted) -> Finding {
    let asked = wanted.asks.nvtx;
    if asked == Some(false) {
        return Finding::new("NVTX", PartState::Off, "`nvtx=off`: no zone reaches an NVTX tool");
    }
    let attach =
        "run the program under `nsys profile` or `ncu --nvtx`, or name a tool's library in NVTX_INJECTION64_PATH";
    match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) if path == NO_TOOL => {
            let what = format!("{VARIABLE}={NO_TOOL} turns NVTX tools off");
            let state = if asked == Some(true) { PartState::Missing } else { PartState::Off };
            Finding::new("NVTX", state, what).asked_for(asked == Some(true)).remedy(format!("unset {VARIABLE}"))
        }
        Some(path) => injected(Path::new(&path)).asked_for(true),
        None if advertised() => {
            Finding::new("NVTX", PartState::Untried, "an NVTX tool is registered with the CUDA driver")
        }
        None if asked == Some(true) => {
            let what = "no NVTX tool is set up in this environment";
            Finding::new("NVTX", PartState::Limited, what).asked_for(true).remedy(attach)
        }
        None => Finding::new("NVTX", PartState::Off, "no NVTX tool is set up in this environment").remedy(attach),
    }
}

/// The tool that the variable names.
fn injected(path: &Path) -> Finding {
    let name = path.display();
    let correct = format!("correct the path in {VARIABLE}, or unset it");
    if path.components().count() == 1 {
        let what = format!("`{name}` is looked up by the loader, and not checked here");
        return Finding::new("NVTX", PartState::Limited, what).remedy(format!("write the whole path into {VARIABLE}"));
    }
    let length = match fs::metadata(path) {
        Ok(file) if file.is_file() => file.len(),
        Ok(_) => return Finding::new("NVTX", PartState::Missing, format!("`{name}` is not a file")).remedy(correct),
        Err(error) => return Finding::new("NVTX", PartState::Missing, format!("`{name}`: {error}")).remedy(correct),
    };
    let data = if length <= LIBRARY_BYTES { fs::read(path).ok() } else { None };
    let file = data.as_deref().and_then(|data| object::File::parse(data).ok());
    let Some(file) = file else {
        return Finding::new("NVTX", PartState::Missing, format!("`{name}` is not a readable library")).remedy(correct);
    };
    let has_entry =
        file.exports().is_ok_and(|exports| exports.flatten().any(|export| export.name() == NameOrOrdinal::Name(ENTRY)));
    if !has_entry {
        let what = format!("`{name}` has no InitializeInjectionNvtx2: it is not an NVTX tool");
        return Finding::new("NVTX", PartState::Missing, what).remedy(correct);
    }
    let what = format!("`{name}` is an NVTX tool, and is not loaded here, because it could begin to profile");
    Finding::new("NVTX", PartState::Untried, what).remedy(
        "run the program: if the tool does not work, the reason is on standard error, after `no zone reaches NVTX`",
    )
}

/// Whether a tool says that it comes with the driver, in the files in which NVIDIA's client looks.
fn advertised() -> bool {
    const FILE: &str = "nvidia/nvtx/nvtx-cuda.yaml";
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folders = [Some(PathBuf::from("/run")), of_user];
    folders.into_iter().flatten().any(|folder| folder.join(FILE).exists())
}

/// Whether Tracy's client finds a port. Whether the program has feature `tracy`, only its build says.
pub(super) fn tracy(wanted: &Wanted) -> Finding {
    let asked = wanted.asks.tracy;
    let given =
        std::env::var("TRACY_PORT").ok().and_then(|port| port.trim().parse::<u16>().ok()).filter(|port| *port != 0);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    let program = if asked { "; the program needs feature `tracy`" } else { "" };
    let found = match given {
        Some(port) if is_free(&port) => {
            Finding::new("Tracy", PartState::Works, format!("port {port} (TRACY_PORT) is free{program}"))
        }
        Some(port) => Finding::new("Tracy", PartState::Missing, format!("port {port} (TRACY_PORT) is taken"))
            .remedy("end the other program, or give this one another TRACY_PORT"),
        None => match (TRACY_PORT..TRACY_PORT + TRACY_PORTS).find(is_free) {
            Some(TRACY_PORT) => Finding::new("Tracy", PartState::Works, format!("port {TRACY_PORT} is free{program}")),
            Some(port) => {
                let what = format!("port {TRACY_PORT} is taken; the client takes {port}{program}");
                Finding::new("Tracy", PartState::Limited, what).remedy(format!("let the viewer connect to port {port}"))
            }
            None => {
                let last = TRACY_PORT + TRACY_PORTS - 1;
                Finding::new("Tracy", PartState::Missing, format!("all ports from {TRACY_PORT} to {last} are taken"))
                    .remedy("end the other programs, or set TRACY_PORT")
            }
        },
    };
    found.asked_for(asked)
}
