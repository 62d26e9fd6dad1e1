//! Handles on single zones in a program that was built without feature `enable`: they say so, and hold nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::ProfileError;
use crate::record::ZoneRecord;

/// A zone that somebody asked for. Without feature `enable` there is none: each call says [`ProfileError::NotEnabled`] at
/// once.
#[must_use = "dropping it takes the request back"]
#[derive(Debug)]
pub struct PendingZone(());

/// Several zones that somebody asked for. Without feature `enable` there are none: [`PendingZone`].
#[must_use = "dropping it takes the request back"]
#[derive(Debug)]
pub struct PendingZones(());

impl PendingZone {
    pub(super) const NONE: PendingZone = PendingZone(());

    /// Why there is none.
    pub fn try_get(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        Some(Err(ProfileError::NotEnabled))
    }

    /// Does not wait.
    ///
    /// # Errors
    /// [`ProfileError::NotEnabled`].
    pub fn wait(&self, timeout: Duration) -> Result<ZoneRecord, ProfileError> {
        let _ = timeout;
        Err(ProfileError::NotEnabled)
    }
}

impl PendingZones {
    pub(super) const NONE: PendingZones = PendingZones(());

    /// None.
    pub fn to_come(&self) -> u32 {
        0
    }

    /// None.
    pub fn try_next(&self) -> Option<Result<ZoneRecord, ProfileError>> {
        None
    }

    /// None; it does not wait.
    pub fn next(&self, timeout: Duration) -> Option<Result<ZoneRecord, ProfileError>> {
        let _ = timeout;
        None
    }

    /// Why there are none; it does not wait.
    pub fn wait(&self, timeout: Duration) -> Vec<Result<ZoneRecord, ProfileError>> {
        let _ = timeout;
        vec![Err(ProfileError::NotEnabled)]
    }
}

impl Future for PendingZone {
    type Output = Result<ZoneRecord, ProfileError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(ProfileError::NotEnabled))
    }
}

impl Future for PendingZones {
    type Output = Vec<Result<ZoneRecord, ProfileError>>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(vec![Err(ProfileError::NotEnabled)])
    }
}
