//! Requests for single zones: who asked for which zone, and the ticket with which a zone answers.
//!
//! `requests` keeps who asked for what, `answers` and `pending` are the two ends of an answer, and `outside` is the way of zones that no
//! session has: the engine above registers it. `waiting` counts those who wait. Nothing here runs while nobody has asked.

pub mod answers;
pub mod error;
pub mod outside;
pub mod pending;
pub mod requests;
pub mod waiting;

pub use error::ProfileError;
pub use pending::{PendingZone, PendingZones};
#[cfg(feature = "enable")]
pub(crate) use {
    outside::{context, host_context},
    requests::{ask_now, is_asked, take},
};
