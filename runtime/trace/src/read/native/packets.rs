//! The packets of a trace that is read whole: what is no packet of PyTorch's profiler ends the translation with the reason.

use std::io::{self, Read};

use crate::read::document::Refused;
use crate::read::packets::{MAX_PACKET, Packets, Unsound};
use crate::read::parts::Packet;
use crate::read::wire::Malformed;

/// Reads the next packet with `read`; none after the last one.
///
/// # Errors
/// The file cannot be read, is truncated, or is no trace that this reader understands.
pub(super) fn next<T>(
    packets: &mut Packets<impl Read>,
    read: impl FnOnce(&Packet<'_>) -> Result<T, Stop>,
) -> io::Result<Option<T>> {
    let begin = packets.place();
    let damaged = |why: String| {
        let text = format!("damaged at byte {begin}: {why}; name a trace that PyTorch's profiler wrote");
        io::Error::other(Refused(text))
    };
    let bytes = packets.next_sound().map_err(|unsound| match unsound {
        Unsound::Io(error) => error,
        Unsound::Cut => {
            let why = format!("the trace is truncated in the packet at byte {begin}; export it or copy it again");
            io::Error::other(Refused(why))
        }
        Unsound::NoPacket => damaged("no packet of a Perfetto trace".to_owned()),
        Unsound::TooLarge(_) => damaged(format!("a packet of more than {} MiB", MAX_PACKET >> 20)),
    })?;
    let Some(bytes) = bytes else { return Ok(None) };
    let read = Packet::read(bytes).map_err(Stop::from).and_then(|packet| {
        if packet.is_compressed {
            return Err(Stop::Other("compressed packets, which PyTorch's profiler does not write"));
        }
        // From 64, clocks are of the sequence's own, which may count differences.
        if packet.clock.is_some_and(|clock| clock >= 64) {
            return Err(Stop::Other("times of a clock that PyTorch's profiler does not use"));
        }
        read(&packet)
    });
    read.map(Some).map_err(|stop| match stop {
        Stop::Other(why) => damaged(why.to_owned()),
        Stop::Full(error) => error,
    })
}

/// Why a packet ends the translation.
pub(super) enum Stop {
    /// What is wrong with it.
    Other(&'static str),
    /// A limit on memory.
    Full(io::Error),
}

impl From<Malformed> for Stop {
    fn from(_: Malformed) -> Stop {
        Stop::Other("a message that is cut")
    }
}
