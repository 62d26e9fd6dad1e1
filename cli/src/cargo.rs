//! Builds with Cargo and finds the binaries of the build: the first half of `cargo warpline`.
//!
//! Cargo's own messages go to the terminal unchanged. The paths of the binaries come from Cargo's JSON messages; no
//! path is guessed.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cargo_metadata::{Artifact, Message, MetadataCommand, PackageId, TargetKind};

use crate::args::Build;
use crate::output;

/// Why there is no binary to read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CargoError {
    #[error("cannot run `{cargo}`: {error}; run this as `cargo warpline`, or put Cargo on the PATH")]
    Start { cargo: String, error: io::Error },
    #[error("cannot read Cargo's output: {0}; try again")]
    Read(io::Error),
    #[error("`cargo build` failed; see its messages above")]
    Build,
    #[error("{0}")]
    Metadata(#[from] cargo_metadata::Error),
    #[error("no package matches `{0}`; `cargo metadata` lists them")]
    Package(String),
    #[error("the build produced no binary; choose a target with `--bin`, `--example`, `--test` or `--lib`")]
    Nothing,
    #[error("the build produced {} binaries; choose one with `--bin`, `--example`, `--test` or `-p`:{}", .0.len(), lines(.0))]
    Several(Vec<PathBuf>),
}

/// Builds, and returns the binaries. The list is not empty.
pub(crate) fn build(build: &Build) -> Result<Vec<PathBuf>, CargoError> {
    let artifacts = run(build)?;
    let roots = roots(build)?;
    // Dependencies also have libraries, but they were not requested.
    let of_root = |artifact: &Artifact| roots.contains(&artifact.package_id);
    let (programs, libraries): (Vec<_>, Vec<_>) =
        artifacts.into_iter().filter(of_root).partition(|artifact| !is_library(artifact));
    let mut wanted = programs;
    if build.lib || wanted.is_empty() {
        wanted.extend(libraries);
    }
    let paths: Vec<PathBuf> = wanted.iter().filter_map(linked).collect();
    if paths.is_empty() { Err(CargoError::Nothing) } else { Ok(paths) }
}

/// Returns the only binary, or an error if there are several.
pub(crate) fn only_one(mut paths: Vec<PathBuf>) -> Result<PathBuf, CargoError> {
    match (paths.pop(), paths.is_empty()) {
        (Some(path), true) => Ok(path),
        (Some(path), false) => {
            paths.push(path);
            Err(CargoError::Several(paths))
        }
        (None, _) => Err(CargoError::Nothing),
    }
}

fn run(build: &Build) -> Result<Vec<Artifact>, CargoError> {
    let cargo = cargo();
    let start = |error| CargoError::Start { cargo: cargo.to_string_lossy().into_owned(), error };
    let mut child = Command::new(&cargo)
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(build_args(build))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut artifacts = Vec::new();
    let mut read = Ok(());
    if let Some(stdout) = child.stdout.take() {
        for message in Message::parse_stream(BufReader::new(stdout)) {
            match message {
                Ok(Message::CompilerArtifact(artifact)) => artifacts.push(artifact),
                Ok(Message::TextLine(line)) => output::complain(line),
                Ok(_) => {}
                Err(error) => read = Err(CargoError::Read(error)),
            }
        }
    }
    // Wait in any case, so that no build continues after an error.
    let status = child.wait().map_err(CargoError::Read)?;
    read?;
    if status.success() { Ok(artifacts) } else { Err(CargoError::Build) }
}

/// Returns the requested packages.
fn roots(build: &Build) -> Result<Vec<PackageId>, CargoError> {
    let mut command = MetadataCommand::new();
    command.cargo_path(cargo()).no_deps().other_options(
        [("--locked", build.locked), ("--offline", build.offline), ("--frozen", build.frozen)]
            .into_iter()
            .filter(|(_, on)| *on)
            .map(|(flag, _)| flag.to_owned())
            .collect::<Vec<_>>(),
    );
    if let Some(path) = &build.manifest_path {
        command.manifest_path(path);
    }
    let metadata = command.exec()?;
    if build.workspace {
        return Ok(metadata.workspace_members);
    }
    if build.package.is_empty() {
        return Ok(metadata.workspace_default_members.to_vec());
    }
    build.package.iter().map(|spec| package_id(build, spec)).collect()
}

/// Resolves a package specification with Cargo.
fn package_id(build: &Build, spec: &str) -> Result<PackageId, CargoError> {
    let cargo = cargo();
    let mut command = Command::new(&cargo);
    command.arg("pkgid").stderr(Stdio::inherit());
    if let Some(path) = &build.manifest_path {
        command.arg("--manifest-path").arg(path);
    }
    let start = |error| CargoError::Start { cargo: cargo.to_string_lossy().into_owned(), error };
    let output = command.args(["--", spec]).output().map_err(start)?;
    if !output.status.success() {
        return Err(CargoError::Package(spec.to_owned()));
    }
    Ok(PackageId { repr: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
}

/// Returns the Cargo that started this process, or the one on the PATH.
fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn build_args(build: &Build) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let flags = [
        ("--workspace", build.workspace),
        ("--lib", build.lib),
        ("--bins", build.bins),
        ("--examples", build.examples),
        ("--release", build.release),
        ("--all-features", build.all_features),
        ("--no-default-features", build.no_default_features),
        ("--locked", build.locked),
        ("--offline", build.offline),
        ("--frozen", build.frozen),
    ];
    args.extend(flags.into_iter().filter(|(_, on)| *on).map(|(flag, _)| OsString::from(flag)));
    let lists = [
        ("--package", &build.package),
        ("--bin", &build.bin),
        ("--example", &build.example),
        ("--test", &build.test),
        ("--features", &build.features),
    ];
    for (option, values) in lists {
        args.extend(values.iter().flat_map(|value| [option.into(), value.into()]));
    }
    let values = [
        ("--profile", build.profile.as_ref().map(OsString::from)),
        ("--target", build.target.as_ref().map(OsString::from)),
        ("--target-dir", build.target_dir.as_ref().map(OsString::from)),
        ("--manifest-path", build.manifest_path.as_ref().map(OsString::from)),
    ];
    args.extend(values.into_iter().filter_map(|(option, value)| Some([option.into(), value?])).flatten());
    args
}

fn is_library(artifact: &Artifact) -> bool {
    !artifact
        .target
        .kind
        .iter()
        .any(|kind| matches!(kind, TargetKind::Bin | TargetKind::Example | TargetKind::Test | TargetKind::Bench))
}

/// Returns the file to read: the executable, or else the linked library, or else the archive. Returns none for a build
/// script or a procedural macro.
fn linked(artifact: &Artifact) -> Option<PathBuf> {
    if artifact.target.kind.iter().any(|kind| matches!(kind, TargetKind::CustomBuild | TargetKind::ProcMacro)) {
        return None;
    }
    if let Some(executable) = &artifact.executable {
        return Some(executable.clone().into());
    }
    ["so", "dylib", "dll", "rlib", "a", "lib"].into_iter().find_map(|extension| {
        artifact.filenames.iter().find(|path| path.extension() == Some(extension)).map(|path| path.clone().into())
    })
}

fn lines(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!(" {}", path.display())).collect()
}
