//! Streams of the stub driver as the timelines' tests need them.

use warpline::stream::StreamRef;
use warpline::{AsStream, RawStream};

use crate::harness::driver::{Handle, SUCCESS, Stub};
use crate::harness::zones::raw;
use crate::timelines::device::Device;

/// A stream of the stub, whose kernels take their time and compute nothing.
#[derive(Clone, Copy)]
pub struct Slow {
    pub driver: &'static Stub,
    pub stream: RawStream,
}

impl AsStream for Slow {
    fn as_stream(&self) -> StreamRef<'_> {
        self.stream.as_stream()
    }
}

pub struct Driver(pub &'static Stub);

impl Device for Driver {
    type Stream = Slow;
    type Word = ();

    fn stream(&self) -> Slow {
        Slow { driver: self.0, stream: raw(self.0.stream()) }
    }

    fn word(&self) {}

    fn write(stream: &Slow, (): &(), _: u32) {
        assert_eq!(stream.driver.stub_launch(stream.stream.as_ptr() as Handle, 20_000), SUCCESS);
    }

    fn copy(stream: &Slow, (): &(), (): &()) {
        Driver::write(stream, &(), 0);
    }

    fn read(&self, (): &()) -> Option<u32> {
        None
    }
}

/// The driver for as long as the process lives.
pub fn leaked() -> &'static Stub {
    Box::leak(Box::new(Stub::load()))
}
