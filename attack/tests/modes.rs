//! The modes of what a program leaves in the file system: of files what the umask leaves, of the socket the user's alone.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Records with this umask until the session has started and `look` has looked at the folder, and until its end.
fn record(umask: u32, settings: &str, look: impl FnOnce(&Path)) -> tempfile::TempDir {
    // The path of a socket is short.
    let folder = tempfile::Builder::new().prefix("wl").tempdir_in("/tmp").expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-attack"));
    command.args(["worker", "record", "light", "finished"]).current_dir(folder.path());
    command.env("WARPLINE", settings).env("XDG_RUNTIME_DIR", folder.path());
    let set_umask = move || {
        // SAFETY: the call takes a number.
        unsafe { libc::umask(umask) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call.
    unsafe { command.pre_exec(set_umask) };
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(program.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("UTF-8");
    assert_eq!(line, "started\n");
    look(folder.path());
    drop(program.stdin.take());
    assert!(program.wait().expect("it ends").success());
    folder
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o7777
}

#[test]
fn files_have_the_mode_that_the_umask_leaves() {
    for umask in [0o077, 0o027, 0o000] {
        let folder = record(umask, "quiet,perfetto=t.pftrace,chrome=t.json,flight=256KiB:t.flight", |_| ());
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        for path in names {
            assert_eq!(mode(&path), 0o666 & !umask, "{} under umask {umask:04o}", path.display());
        }
    }
}

#[test]
fn the_socket_is_the_users_alone_under_any_umask() {
    for umask in [0o000, 0o022] {
        record(umask, "quiet,control,perfetto=t.pftrace", |folder| {
            let sockets = folder.join("warpline");
            assert_eq!(mode(&sockets), 0o700, "under umask {umask:04o}");
            let all: Vec<_> = fs::read_dir(&sockets).expect("a folder").flatten().map(|entry| entry.path()).collect();
            let [socket] = &all[..] else { panic!("one socket: {all:?}") };
            assert_eq!(mode(socket), 0o600, "under umask {umask:04o}");
        });
    }
}
