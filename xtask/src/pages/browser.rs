//! What opens a page: a Chromium, and Playwright to drive it. On a new machine both are installed: Debian's package by `apt-get`, if root
//! runs this, and the npm package of `tests/pages/package-lock.json` into that folder. Where that cannot be, the error says what to install.

use std::path::{Path, PathBuf};

use crate::shell::{Stop, line, root};

/// A browser that is there and ready.
pub struct Browser {
    /// Its program.
    pub program: PathBuf,
}

/// The names that systems give it.
const PROGRAMS: [&str; 6] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// Debian's packages, the smaller one first.
const PACKAGES: [&str; 2] = ["chromium-headless-shell", "chromium"];

/// Without a font, a picture has no text.
const FONTS: &str = "fonts-dejavu-core";

/// Another process may hold the lock of the packages for a while.
const APT: &str = "apt-get -qq -o DPkg::Lock::Timeout=300";

impl Browser {
    /// Finds or installs it.
    ///
    /// # Errors
    /// What to install, and how.
    pub fn ready() -> Result<Self, Stop> {
        node_is_there()?;
        playwright()?;
        let program = match found() {
            Some(program) => program,
            None => installed()?,
        };
        Ok(Self { program })
    }
}

/// `CHROMIUM` names it, or it is on the `PATH`.
fn found() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("CHROMIUM").filter(|program| !program.is_empty()) {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    PROGRAMS.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|program| program.is_file()))
}

fn installed() -> Result<PathBuf, Stop> {
    if !rustix::process::geteuid().is_root() {
        return Err(lacks("only root can install one"));
    }
    let apt = |words: &str| line(&format!("{APT} {words}")).with("DEBIAN_FRONTEND", "noninteractive").run();
    apt("update").map_err(|_| lacks("`apt-get update` fails: there is no network, or this is not Debian"))?;
    let is_known =
        |package: &&&str| line(&format!("apt-cache show {package}")).output().is_some_and(|text| !text.is_empty());
    let Some(package) = PACKAGES.iter().find(is_known) else {
        return Err(lacks("this system has no package of that name"));
    };
    apt(&format!("install -y --no-install-recommends {package} {FONTS}"))
        .map_err(|_| lacks(&format!("`apt-get install {package}` fails, as it says above")))?;
    found().ok_or_else(|| lacks(&format!("the package `{package}` has no program of a known name")))
}

fn node_is_there() -> Result<(), Stop> {
    let version = line("node --version").output();
    let major = version.and_then(|text| text.trim().trim_start_matches('v').split('.').next()?.parse::<u32>().ok());
    if major.is_some_and(|major| major >= 20) && line("npm --version").output().is_some() {
        return Ok(());
    }
    Err(failed("they need Node 20 or newer with npm: https://nodejs.org, or your system's packages `nodejs` and `npm`"))
}

/// Puts Playwright beside the tests, unless what is there is of this lock file.
fn playwright() -> Result<(), Stop> {
    let folder = root().join("tests/pages");
    let (lock, stamp) = (folder.join("package-lock.json"), folder.join("node_modules/.warpline-lock.json"));
    let wanted = read(&lock)?;
    if read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    line("npm --prefix tests/pages ci --ignore-scripts --no-audit --no-fund --loglevel=error").run().map_err(|_| {
        failed("Playwright cannot be installed, as npm says above; with a connection to the npm registry, run `npm ci` in `tests/pages` once")
    })?;
    std::fs::write(&stamp, wanted).map_err(|error| failed(&format!("cannot write `{}`: {error}", stamp.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, Stop> {
    std::fs::read(path).map_err(|error| failed(&format!("cannot read `{}`: {error}", path.display())))
}

fn lacks(why: &str) -> Stop {
    failed(&format!(
        "no Chromium is on the PATH, and {why}; install one, with `apt-get install {}` or `apt-get install {}`, or set CHROMIUM to its program",
        PACKAGES[0], PACKAGES[1]
    ))
}

/// No page is taken as tested where no browser has opened it, so this is no [`Stop::Lacks`].
fn failed(why: &str) -> Stop {
    Stop::Failed(format!("the tests of pages cannot run: {why}"))
}
