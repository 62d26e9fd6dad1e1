//! The socket that the control server listens on. Only its user can reach it, and it is removed at the end.
//!
//! Only this user's directory is touched, and only this user's sockets in it. Symbolic links are never followed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::sys;
use warpline_core::environment;
use warpline_core::fork::NotInChildren;
use warpline_core::socket_peer::{Peer, out_of_descriptors};
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{Kind, Refusal};
use warpline_trace::control::socket;
use warpline_trace::control::socket::{ProcessView, SocketOwner};

pub(super) struct Socket {
    /// Closes the listener in forked children.
    _not_in_children: NotInChildren,
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file, so that a file that replaced it is not removed.
    file: (u64, u64),
    user: u32,
    /// A descriptor to release while a connection is refused because none is left.
    spare: Option<File>,
}

impl Socket {
    /// Creates the socket and listens on it.
    ///
    /// # Errors
    /// The reason and the remedy.
    pub(super) fn listen() -> Result<Socket, String> {
        let user = sys::user();
        let directory = directory(user)?;
        let here = ProcessView::read().map_err(|error| {
            let other = || format!("`/proc` does not give the start time of this process: {error}; mount it");
            out_of_descriptors(&error).map_or_else(other, str::to_owned)
        })?;
        clean(&directory, user, &here);
        let name = here.owner.socket_name();
        let path = directory.join(&name);
        // The socket is renamed once it listens, so a client that sees the name can connect unless the process has exited.
        let unnamed = directory.join(format!(".{name}.new"));
        remove_socket(&unnamed, user);
        let cannot = |error: std::io::Error| {
            let remedy = "set XDG_RUNTIME_DIR to a directory of yours with a short name";
            let other = || format!("cannot create a socket in `{}`: {error}; {remedy}", directory.display());
            out_of_descriptors(&error).map_or_else(other, str::to_owned)
        };
        let listener = UnixListener::bind(&unnamed).map_err(cannot)?;
        let listening = (|| {
            fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let file = fs::symlink_metadata(&unnamed)?;
            // Rename replaces a file or link of that name and does not follow it.
            fs::rename(&unnamed, &path)?;
            Ok((file.dev(), file.ino()))
        })();
        match listening {
            Ok(file) => {
                let _not_in_children = NotInChildren::new(&listener);
                Ok(Socket { _not_in_children, listener, path, file, user, spare: spare() })
            }
            Err(error) => {
                remove_socket(&unnamed, user);
                Err(cannot(error))
            }
        }
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Accepts the next connection. Returns none when the client is another user, or is refused because no file descriptor is left.
    ///
    /// # Errors
    /// No client is waiting, or one waits and not even the spare descriptor is available.
    pub(super) fn accept(&mut self) -> io::Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => Ok(self.of_user(stream)),
            Err(error) if out_of_descriptors(&error).is_some() => self.send_away(error).map(|()| None),
            Err(error) => Err(error),
        }
    }

    fn of_user(&self, stream: UnixStream) -> Option<UnixStream> {
        let is_user = Peer::from_stream(&stream).is_ok_and(|peer| peer.user == self.user);
        Some(stream).filter(|stream| is_user && stream.set_nonblocking(true).is_ok())
    }

    /// Accepts a connection with the spare descriptor, and refuses it because no other is left.
    fn send_away(&mut self, error: io::Error) -> io::Result<()> {
        if self.spare.take().is_none() {
            self.spare = spare();
            return Err(error);
        }
        // Linux reports missing descriptors before it checks for a connection, so there may be none. Another thread of the program may
        // also have taken the released descriptor.
        let accepted = self.listener.accept();
        let sent = accepted.map(|(stream, _)| {
            let text = match error.raw_os_error() {
                Some(libc::ENFILE) => {
                    "its machine has no file descriptor left; close files, or raise `sysctl fs.file-max`"
                }
                _ => "it has no file descriptor left; raise its `ulimit -n`, or wait until it has closed files",
            };
            if let Some(stream) = self.of_user(stream) {
                refuse(&stream, &Refusal::new("descriptors", text));
            }
        });
        self.spare = spare();
        sent
    }
}

/// Sends a refusal without blocking; what the socket does not accept at once is discarded.
pub(super) fn refuse(stream: &UnixStream, refusal: &Refusal) {
    let mut bytes = Vec::new();
    protocol::frame(Kind::Json, refusal.to_json().as_bytes(), &mut bytes);
    let _ = sys::send(stream, &bytes);
}

/// Opens the descriptor to release when no other is left.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Drop for Socket {
    fn drop(&mut self) {
        let metadata = fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns this user's socket directory, and creates it if it is missing.
fn directory(user: u32) -> Result<PathBuf, String> {
    let given = environment::var_os("XDG_RUNTIME_DIR");
    // Ignore a directory of another user: `su` leaves the variable in the environment.
    let given =
        given.filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user));
    let directory = socket::directory(given.as_deref(), user);
    let cannot = |why: String| {
        let remedy = "remove it, or set XDG_RUNTIME_DIR to a directory of yours";
        format!("cannot listen in `{}`: {why}; {remedy}", directory.display())
    };
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(cannot(error.to_string())),
        _ => {}
    }
    let metadata = fs::symlink_metadata(&directory).map_err(|error| cannot(error.to_string()))?;
    let above = directory.parent().and_then(|above| fs::metadata(above).ok());
    // In a world-writable parent without the sticky bit, anybody can replace the directory, so its owner proves nothing.
    let is_open = above.is_some_and(|above| above.mode() & 0o002 != 0 && above.mode() & 0o1000 == 0);
    let fault = is_open.then(|| "other users could replace it".to_owned());
    match fault.or_else(|| socket::fault(&metadata, user)) {
        Some(fault) => Err(cannot(fault)),
        None => Ok(directory),
    }
}

/// Removes the sockets of processes that have exited.
fn clean(directory: &Path, user: u32, here: &ProcessView) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let unnamed = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(".new"));
        let owner = SocketOwner::of_name(unnamed.map_or(&name, |name| name.as_ref()));
        if owner.is_some_and(|owner| here.is_over(&owner)) {
            remove_socket(&entry.path(), user);
        }
    }
}

/// Removes the file if it is a socket of this user.
fn remove_socket(path: &Path, user: u32) {
    if fs::symlink_metadata(path).is_ok_and(|metadata| socket::is_socket_of(&metadata, user)) {
        let _ = fs::remove_file(path);
    }
}
