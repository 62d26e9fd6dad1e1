//! A program that answers whatever a test wants: a thread of the test process listens where a program of this process would.

use std::fs::{self, DirBuilder};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use serde_json::Value;
use warpline_trace::control::protocol::{Decoder, Kind, MAX_REQUEST_BYTES, frame};
use warpline_trace::control::socket::SocketOwner;

/// The directory of the sockets, made where it is not there yet.
pub fn sockets_dir(runtime_dir: &Path) -> PathBuf {
    let folder = runtime_dir.join("warpline");
    if !folder.is_dir() {
        DirBuilder::new().mode(0o700).create(&folder).expect("a directory");
    }
    folder
}

/// Answers each request with `answer`, which is given the request and the connection, in a thread of its own. The number of
/// the process that is to be asked is this one's.
pub fn listen(runtime_dir: &Path, answer: impl Fn(Value, &UnixStream) + Clone + Send + 'static) -> String {
    let me = SocketOwner::read("self").expect("this process");
    listen_as(&sockets_dir(runtime_dir).join(me.socket_name()), answer);
    me.process.to_string()
}

/// The same on any socket.
pub fn listen_as(socket: &Path, answer: impl Fn(Value, &UnixStream) + Clone + Send + 'static) {
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer) = (stream.expect("a connection"), answer.clone());
            std::thread::spawn(move || {
                let mut decoder = Decoder::new(MAX_REQUEST_BYTES);
                let request = loop {
                    let mut byte = [0];
                    match (&stream).read(&mut byte) {
                        Ok(1) => decoder.feed(&byte),
                        // Whoever connects only to look has nothing to ask.
                        _ => return,
                    }
                    if let Some((_, body)) = decoder.take().expect("a request") {
                        break serde_json::from_slice(&body).expect("JSON");
                    }
                };
                answer(request, &stream);
            });
        }
    });
}

/// Replies as they are sent.
pub fn replies(replies: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    replies.iter().for_each(|reply| frame(Kind::Json, reply.to_string().as_bytes(), &mut bytes));
    bytes
}
