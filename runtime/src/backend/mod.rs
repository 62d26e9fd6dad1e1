//! What a GPU must do for us: a small object-safe trait, and one implementation a kind of device.
//!
//! A [`Backend`] is one stream. Launching threads call [`Event::record`] and nothing else; every other method is the
//! collector's. No method blocks.

pub mod fault;
pub mod host;
#[cfg(feature = "enable")]
mod host_event;

#[cfg(feature = "enable")]
pub(crate) use traits::*;

#[cfg(feature = "enable")]
mod traits {
    use std::any::Any;
    use std::fmt;

    use crate::record::DeviceInfo;

    /// One stream of one device. Dropping it must not wait for the stream.
    pub(crate) trait Backend: Send + Sync {
        /// The stream's name, if it has one.
        fn name(&self) -> Option<String>;

        /// The device that the stream belongs to.
        fn device(&self) -> DeviceInfo;

        /// Makes an event of this stream.
        fn create_event(&self) -> Result<Box<dyn Event>, BackendError>;

        /// An event that is complete, with the host time at which it was.
        fn anchor(&self) -> Result<Anchor, BackendError>;

        /// What an empty pair of events reads on this device, in ns; measured, not looked up.
        fn bracket_ns(&self) -> i64;
    }

    /// A point in a stream's work. It can be recorded again once the collector has read it.
    pub(crate) trait Event: Send + Sync {
        /// Puts the event behind the work that is on the stream now.
        fn record(&self) -> Result<(), BackendError>;

        /// Whether the stream has reached the event.
        fn is_complete(&self) -> Result<bool, BackendError>;

        /// The time from `since` to this event, in ns of the device's clock; none while either is not complete.
        fn elapsed_ns(&self, since: &dyn Event) -> Result<Option<i64>, BackendError>;

        /// For the backend to find its own type again.
        fn as_any(&self) -> &dyn Any;
    }

    /// Ties a device's clock to the host's.
    pub(crate) struct Anchor {
        pub(crate) event: Box<dyn Event>,
        pub(crate) host_ns: i64,
        pub(crate) uncertainty_ns: i64,
    }

    /// Why a stream did not do what was asked.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct BackendError(pub(crate) String);

    impl fmt::Display for BackendError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }
}
