//! The stream of a zone that begins in a future which a function returns.
//!
//! Such a future may outlive what lends the stream, as in the trait `Service` of `tower`. The stream is kept when the function is called: a clone if
//! it can be cloned, otherwise the reference. It is kept only while something records, so the mark costs the call what every mark costs.

use super::builder::ZoneBuilder;
use super::request::ZoneRequest;
use crate::backend::AsStream;

/// The stream, if something recorded when the function was called. Without `enable` it has no size.
#[doc(hidden)]
#[derive(Debug)]
pub struct KeptStream<S>(MaybeStream<S>);

#[cfg(feature = "enable")]
type MaybeStream<S> = Option<S>;
#[cfg(not(feature = "enable"))]
type MaybeStream<S> = std::marker::PhantomData<fn() -> S>;

impl<S> KeptStream<S> {
    /// Keeps the stream. It is not evaluated while nothing records.
    #[inline(always)]
    pub fn new(stream: impl FnOnce() -> S) -> KeptStream<S> {
        crate::if_feature!("enable", KeptStream(crate::switch::is_set().then(stream)), {
            let _ = stream;
            KeptStream(std::marker::PhantomData)
        })
    }
}

impl<S: AsStream> KeptStream<S> {
    /// Takes a slot of the stream's ring; none if nothing recorded when the function was called.
    #[inline(always)]
    pub fn begin(&self, request: ZoneRequest) -> Option<ZoneBuilder> {
        crate::if_feature!("enable", request.on(self.0.as_ref()?), {
            let _ = request;
            None
        })
    }
}

/// A stream that is to be kept: `Keep(&stream).kept()` is a clone of it if it can be cloned, and otherwise the reference, by [`KeepReference`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Keep<'a, S: ?Sized>(pub &'a S);

impl<S: Clone> Keep<'_, S> {
    /// Returns a clone.
    #[inline(always)]
    pub fn kept(&self) -> S {
        self.0.clone()
    }
}

/// Keeps a stream that cannot be cloned.
#[doc(hidden)]
pub trait KeepReference<'a, S: ?Sized> {
    /// Returns the reference.
    fn kept(&self) -> &'a S;
}

impl<'a, S: ?Sized> KeepReference<'a, S> for Keep<'a, S> {
    #[inline(always)]
    fn kept(&self) -> &'a S {
        self.0
    }
}
