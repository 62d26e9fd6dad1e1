//! In-process collectives between processes: each rank sends a byte for a collective, and gets one back when all have come. It moves no
//! data. A communicator is a socket of each rank to the hub; a rank that shuts its socket down ends it for all.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use warpline::HostStream;

/// Listens for ranks, in a thread that ends with the process.
pub fn start(ranks: u32) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("hub".to_owned()).spawn(move || {
        let mut waiting: HashMap<u64, Vec<TcpStream>> = HashMap::new();
        for socket in listener.incoming() {
            // One that does not say which communicator it wants is no rank.
            let Ok((id, socket)) = socket.and_then(hello) else { continue };
            let came = waiting.entry(id).or_default();
            came.push(socket);
            if came.len() == ranks as usize {
                let all = waiting.remove(&id).unwrap_or_default();
                // Without a thread the ranks wait, and the driver gives up.
                let _ = thread::Builder::new().name("communicator".to_owned()).spawn(move || serve(all));
            }
        }
    })?;
    Ok(address)
}

fn hello(mut socket: TcpStream) -> io::Result<(u64, TcpStream)> {
    let mut id = [0; 8];
    socket.set_nodelay(true)?;
    socket.read_exact(&mut id)?;
    Ok((u64::from_le_bytes(id), socket))
}

fn serve(mut ranks: Vec<TcpStream>) {
    while ranks.iter_mut().all(|rank| rank.read_exact(&mut [0]).is_ok()) {
        if !ranks.iter_mut().all(|rank| rank.write_all(&[1]).is_ok()) {
            return;
        }
    }
    // Dropping them ends the waits of the others.
}

/// A rank's end of a communicator.
pub struct Seat {
    socket: Arc<Mutex<TcpStream>>,
    /// The same, to end a wait of another thread.
    same: TcpStream,
}

impl Seat {
    pub fn new(hub: &str, id: u64) -> io::Result<Seat> {
        let mut socket = TcpStream::connect(hub)?;
        socket.set_nodelay(true)?;
        socket.write_all(&id.to_le_bytes())?;
        let same = socket.try_clone()?;
        Ok(Seat { socket: Arc::new(Mutex::new(socket)), same })
    }

    /// Queues a collective.
    pub fn meet(&self, stream: &HostStream) {
        let socket = Arc::clone(&self.socket);
        stream.launch(move || {
            let mut socket = socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            // After an abort there is nobody to meet.
            let _ = socket.write_all(&[1]).and_then(|()| socket.read_exact(&mut [0]));
        });
    }

    pub fn abort(self) {
        // What waits there ends.
        let _ = self.same.shutdown(std::net::Shutdown::Both);
    }
}
