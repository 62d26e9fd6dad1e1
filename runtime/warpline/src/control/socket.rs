//! The socket that a program listens on: made so that nobody else gets at it, and taken away again.
//!
//! Only the directory of this user is touched, and in it only sockets of this user; no link is ever followed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::sys;
use warpline_core::environment;
use warpline_core::fork::NotInChildren;
use warpline_core::peer::{Peer, out_of_descriptors};
use warpline_trace::control::place;
use warpline_trace::control::place::{ProcessView, SocketOwner};
use warpline_trace::control::protocol;
use warpline_trace::control::protocol::{Kind, Refusal};

pub(super) struct Socket {
    /// A forked process does not listen for this one.
    _not_in_children: NotInChildren,
    listener: UnixListener,
    path: PathBuf,
    /// The file that was made: another one in its place is not ours.
    file: (u64, u64),
    user: u32,
    /// Closed for a moment when no descriptor is left for a new connection.
    spare: Option<File>,
}

impl Socket {
    /// Listens.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(super) fn listen() -> Result<Socket, String> {
        let user = sys::user();
        let directory = directory(user)?;
        let here = ProcessView::look().map_err(|error| {
            let other = || format!("`/proc` does not say when this process began: {error}; mount it");
            out_of_descriptors(&error).map_or_else(other, str::to_owned)
        })?;
        clean(&directory, user, &here);
        let name = here.owner.socket_name();
        let path = directory.join(&name);
        // It gets its name when it listens: whoever sees it can connect, unless its process is over.
        let unnamed = directory.join(format!(".{name}.new"));
        remove_socket(&unnamed, user);
        let cannot = |error: std::io::Error| {
            let remedy = "set XDG_RUNTIME_DIR to a directory of yours with a short name";
            let other = || format!("cannot make a socket in `{}`: {error}; {remedy}", directory.display());
            out_of_descriptors(&error).map_or_else(other, str::to_owned)
        };
        let listener = UnixListener::bind(&unnamed).map_err(cannot)?;
        let listening = (|| {
            fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let file = fs::symlink_metadata(&unnamed)?;
            // What stands in its place, such as a link, is replaced and not followed.
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

    /// The next one that connects, if it is this user; others are sent away, and so is everybody while no file descriptor is
    /// left.
    ///
    /// # Errors
    /// Nobody connects, or somebody has to wait for a descriptor.
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

    /// Accepts with the spare descriptor, only to say that no other is left.
    fn send_away(&mut self, error: io::Error) -> io::Result<()> {
        if self.spare.take().is_none() {
            self.spare = spare();
            return Err(error);
        }
        // Linux says that no descriptor is left before it looks whether somebody connects. Another thread of the program may
        // also have taken the spare one.
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

/// Sends a refusal, as far as there is room for it at once.
pub(super) fn refuse(stream: &UnixStream, refusal: &Refusal) {
    let mut bytes = Vec::new();
    protocol::frame(Kind::Json, refusal.to_json().as_bytes(), &mut bytes);
    let _ = sys::send(stream, &bytes);
}

/// A descriptor to give up when no other is left.
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

/// The directory of this user, made where it is not there yet.
fn directory(user: u32) -> Result<PathBuf, String> {
    let given = environment::var_os("XDG_RUNTIME_DIR");
    // One that another user has left in the environment, as `su` does, is not this user's.
    let given =
        given.filter(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user));
    let directory = place::directory(given.as_deref(), user);
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
    // Where anybody may rename, whose it is now says nothing.
    let is_open = above.is_some_and(|above| above.mode() & 0o002 != 0 && above.mode() & 0o1000 == 0);
    let fault = is_open.then(|| "anybody may put something else in its place".to_owned());
    match fault.or_else(|| place::fault(&metadata, user)) {
        Some(fault) => Err(cannot(fault)),
        None => Ok(directory),
    }
}

/// Removes the sockets of processes that are over.
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

/// Removes a socket of this user, and nothing else.
fn remove_socket(path: &Path, user: u32) {
    if fs::symlink_metadata(path).is_ok_and(|metadata| place::is_socket_of(&metadata, user)) {
        let _ = fs::remove_file(path);
    }
}
