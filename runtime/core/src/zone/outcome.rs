//! How a function whose mark has `err` ends: what the mark writes at its exits, so that the zone has the text of an
//! `Err`.

use std::fmt::Display;
#[cfg(not(feature = "enable"))]
use std::marker::PhantomData;
use std::task::Poll;

/// The return types that `err` in a mark accepts.
#[diagnostic::on_unimplemented(
    message = "`err` needs a function that returns a `Result` whose error has a `Display`",
    label = "returns `{Self}`",
    note = "remove `err` from the mark, or return a `Result`"
)]
pub trait Outcome {
    /// The error.
    type Error;

    /// Returns the text of the error, if there is one.
    fn text(exit: Exit<'_, Self, Self::Error>) -> Option<String>;
}

impl<T, E: Display> Outcome for Result<T, E> {
    type Error = E;

    fn text(exit: Exit<'_, Self, E>) -> Option<String> {
        match exit {
            Exit::Value(value) => value.as_ref().err().map(ToString::to_string),
            Exit::Error(error) => Some(error.to_string()),
        }
    }
}

/// What a function leaves with.
pub enum Exit<'a, R: ?Sized, E> {
    /// The value that it returns.
    Value(&'a R),
    /// The error of a `?`.
    Error(&'a E),
}

/// What `ensure!` returns in a function that returns `R`, if it does not fail.
pub type Check<R> = Result<(), <R as Outcome>::Error>;

/// A zone of a function that may fail.
pub trait Failing {
    /// Gives the zone the text of the function's error, if the zone is recorded.
    fn fail(&mut self, text: impl FnOnce() -> Option<String>);
}

/// The zone of a function that returns `R` and may fail with `E`. Dropping it ends the zone.
///
/// It holds what [`Outcome`] gives it, so that a type which is none is an error at `err` and not at each exit.
pub struct Exits<R, E, Z> {
    zone: Z,
    text: Text<R, E>,
}

#[cfg(feature = "enable")]
type Text<R, E> = fn(Exit<'_, R, E>) -> Option<String>;
#[cfg(not(feature = "enable"))]
type Text<R, E> = PhantomData<fn(R, E)>;

/// Returns the exits of a function.
#[inline(always)]
pub fn exits<R: Outcome<Error = E>, E, Z>(zone: Z) -> Exits<R, E, Z> {
    #[cfg(feature = "enable")]
    let text = R::text;
    #[cfg(not(feature = "enable"))]
    let text = PhantomData;
    Exits { zone, text }
}

/// Returns the exits of a function that returned the outcome.
#[inline(always)]
pub fn exits_with<R: Outcome<Error = E>, E, Z>(_: &R, zone: Z) -> Exits<R, E, Z> {
    exits(zone)
}

impl<R, E, Z: Failing> Exits<R, E, Z> {
    /// Gives the zone the text of the error.
    #[cfg(feature = "enable")]
    #[inline(always)]
    fn see(&mut self, exit: Exit<'_, R, E>) {
        let text = self.text;
        self.zone.fail(|| text(exit));
    }

    #[cfg(not(feature = "enable"))]
    #[inline(always)]
    fn see(&mut self, _: Exit<'_, R, E>) {}
}

/// Returns the value that the function returns.
#[inline(always)]
pub fn returned<R, E, Z: Failing>(value: R, exits: &mut Exits<R, E, Z>) -> R {
    exits.see(Exit::Value(&value));
    value
}

/// What `?` accepts in a function that returns a `Result`. A mark calls the method before each `?`, which then converts
/// nothing.
pub trait Tried {
    /// The error.
    type Error;
    /// The same with another error.
    type With<E>;

    /// Converts the error to that of the function.
    fn __warpline_tried<R, E: From<Self::Error>, Z: Failing>(self, exits: &mut Exits<R, E, Z>) -> Self::With<E>;
}

impl<T, F> Tried for Result<T, F> {
    type Error = F;
    type With<E> = Result<T, E>;

    // A conversion may record where the error comes from.
    #[inline(always)]
    #[track_caller]
    fn __warpline_tried<R, E: From<F>, Z: Failing>(self, exits: &mut Exits<R, E, Z>) -> Result<T, E> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => {
                let error = E::from(error);
                exits.see(Exit::Error(&error));
                Err(error)
            }
        }
    }
}

impl<T, F> Tried for Poll<Result<T, F>> {
    type Error = F;
    type With<E> = Poll<Result<T, E>>;

    #[inline(always)]
    #[track_caller]
    fn __warpline_tried<R, E: From<F>, Z: Failing>(self, exits: &mut Exits<R, E, Z>) -> Poll<Result<T, E>> {
        match self {
            Poll::Ready(result) => Poll::Ready(result.__warpline_tried(exits)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T, F> Tried for Poll<Option<Result<T, F>>> {
    type Error = F;
    type With<E> = Poll<Option<Result<T, E>>>;

    #[inline(always)]
    #[track_caller]
    fn __warpline_tried<R, E: From<F>, Z: Failing>(self, exits: &mut Exits<R, E, Z>) -> Poll<Option<Result<T, E>>> {
        match self {
            Poll::Ready(Some(result)) => Poll::Ready(Some(result.__warpline_tried(exits))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Returns a value of any type. This code never runs; it tells the compiler the type of a body.
pub fn never<T>() -> T {
    std::process::abort()
}

/// Runs the body of a function with `err`. The bound allows the closure to return borrows of its captures.
#[inline(always)]
pub fn once<T>(body: impl FnOnce() -> T) -> T {
    body()
}
