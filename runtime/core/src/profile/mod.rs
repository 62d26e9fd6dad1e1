//! Requests for individual zones, and the tickets with which zones answer them.
//!
//! `requests` stores the requests, and `answers` and `pending` are the two ends of an answer. `outside` finds the contexts of zones that no
//! session records; the engine above registers itself there. `waiting` counts the handles that wait. Nothing here runs while there are no
//! requests.

pub mod answers;
pub mod error;
#[cfg(feature = "runtime")]
pub mod outside;
pub mod pending;
#[cfg(feature = "runtime")]
pub mod requests;
pub mod submission;
pub mod waiting;

pub use error::ProfileError;
pub use pending::{PendingSubmission, PendingZone, PendingZones};
#[cfg(feature = "enable")]
pub(crate) use {
    outside::{context, host_context},
    requests::{ask_now, is_asked, take},
};
