//! Why a program could not be asked, and what to do about it. Every file of `control` returns this error.

use std::io;
use std::path::PathBuf;

use super::flight;
use crate::output_file::PlaceError;
use crate::recover::RecoverFileError;
use crate::runtime::socket_peer::out_of_descriptors;

/// The limit of all replies to one request together. A recording has a limit of its own.
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// Why a program could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("there is no process {process}; `warpline ps` lists those that listen")]
    NoProcess { process: u32 },
    #[error("process {process} belongs to another user, {user}: run `warpline` as that user")]
    AnotherUser { process: u32, user: u32 },
    #[error("process {process} does not listen: start it with `WARPLINE=control`, alone or with other settings")]
    NotListening { process: u32 },
    #[error(
        "process {process} was started with `WARPLINE=control` and does not listen: its session has not begun yet or has \
         ended, or it runs with `off`, or it was built without warpline's feature `enable`; ask while it has a session"
    )]
    NotYet { process: u32 },
    #[error("process {process} cannot be reached: {fault}; correct this, and start the program again")]
    Directory { process: u32, fault: String },
    #[error("process {process} cannot be reached: {fault}; run `warpline` as the same user in the same container")]
    Hidden { process: u32, fault: String },
    #[error("process {process} cannot be reached at {}: {error}", socket.display())]
    Connect { process: u32, socket: PathBuf, error: io::Error },
    #[error("{} is not the socket of process {process}: user {user} listens there; tell the machine's administrator", socket.display())]
    Impostor { process: u32, socket: PathBuf, user: u32 },
    #[error("process {process} does not answer: it is stopped or too busy; {remedy}")]
    NoAnswer { process: u32, remedy: String },
    #[error(
        "{} is not the socket of process {process}: {} listens there; remove it if none of your programs created it",
        socket.display(),
        listener.map_or("a process that cannot be seen from here".to_owned(), |listener| format!("process {listener}"))
    )]
    Other { process: u32, socket: PathBuf, listener: Option<u32> },
    #[error("{text}")]
    Descriptors { text: &'static str },
    #[error("process {process} sent more than {MOST_BYTES} bytes, which no program with warpline does; end it")]
    TooMuch { process: u32 },
    #[error(
        "process {process} does not end the recording; everything that it sent is in {}; end the process if it does not \
         answer `warpline status` either",
        file.display()
    )]
    Endless { process: u32, file: PathBuf },
    #[error("process {process} ended, or closed the connection")]
    Gone { process: u32 },
    #[error("there is no process {process}; {remedy}")]
    NothingToDump { process: u32, remedy: String },
    #[error(
        "process {process} sent a reply that this `warpline` does not understand: {what}; use the `warpline` of its version"
    )]
    Strange { process: u32, what: String },
    #[error(
        "process {process} speaks another version of the protocol than this `warpline`, which is {}: {text}",
        env!("CARGO_PKG_VERSION")
    )]
    Version { process: u32, text: String },
    #[error("process {process}: {text}")]
    Refused { process: u32, text: String },
    #[error("process {process}: {text}")]
    Changing { process: u32, text: String },
    #[error("`{range}` is a pattern; name one range in full: `warpline catalog /proc/{process}/exe` lists them")]
    Pattern { process: u32, range: String },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("process {process}: its flight recorder {file}: {error}")]
    Dump { process: u32, file: String, error: Box<RecoverFileError> },
    #[error("cannot show anything on this terminal: {0}")]
    Terminal(io::Error),
    #[error("standard output is not a terminal; `warpline status {process}` prints what a script can read")]
    NoTerminal { process: u32 },
}

impl ControlError {
    /// The error for a program that does not answer, with the way to recover its flight recorder if it has one.
    pub(super) fn no_answer(process: u32) -> ControlError {
        let remedy = flight::remedy_if_silent(process).unwrap_or_else(|| "try again".to_owned());
        ControlError::NoAnswer { process, remedy }
    }

    /// The error for a call that failed because this process has no file descriptor left; none for another failure.
    pub(super) fn of_descriptors(error: &io::Error) -> Option<ControlError> {
        out_of_descriptors(error).map(|text| ControlError::Descriptors { text })
    }
}
