//! Futures of many shapes, as `shapes.rs` has functions. Edition 2015 has no `async fn`.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::shapes::{event, events, pair, stream, Buffer, Pair};

/// Pending once.
struct Once(bool);

impl Future for Once {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        event("pending");
        Poll::Pending
    }
}

fn pause() -> Once {
    Once(false)
}

/// Polls the future as often, and drops it then.
fn polled<T: std::fmt::Debug>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    let value = (0..times).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    });
    event("future dropped");
    drop(future);
    value
}

macro_rules! futures {
    ($($name:ident ($($parameters:tt)*) ($($argument:expr),*) $body:tt)*) => {
        futures!(@module plain [] $($name ($($parameters)*) $body)*);
        futures!(@module host [#[warpline::host_zone(crate::HOST)]] $($name ($($parameters)*) $body)*);
        futures!(@module gpu [#[warpline::gpu_zone(crate::GPU, stream = stream())]] $($name ($($parameters)*) $body)*);
        futures!(@module err [#[warpline::host_zone(crate::HOST, err)]] $($name ($($parameters)*) $body)*);

        /// What differs from the unmarked function, by shape and mark.
        pub fn differences(count: &Cell<usize>) -> Vec<String> {
            let mut found = Vec::new();
            for times in 0..4 {
                $(
                    let expected = events(|| polled(times, plain::$name($($argument),*)));
                    for (mark, seen) in [
                        ("host_zone", events(|| polled(times, host::$name($($argument),*)))),
                        ("gpu_zone", events(|| polled(times, gpu::$name($($argument),*)))),
                        ("err", events(|| polled(times, err::$name($($argument),*)))),
                    ] {
                        count.set(count.get() + 1);
                        if seen != expected {
                            let name = stringify!($name);
                            found.push(format!("{name} ({mark}, {times} polls): {seen:?}, unmarked {expected:?}"));
                        }
                    }
                )*
            }
            found
        }
    };
    (@module $module:ident $mark:tt $($name:ident $parameters:tt $body:tt)*) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $(futures! { @one $mark $name $parameters $body })*
        }
    };
    (@one [$($mark:tt)*] $name:ident $parameters:tt $body:tt) => {
        $($mark)*
        pub async fn $name $parameters -> Result<usize, String> $body
    };
}

futures! {
    tail () () { let local = Buffer("local"); Buffer("temporary").launch(&local) }
    tail_after_a_pause () () { let local = Buffer("local"); pause().await; Buffer("temporary").launch(&local) }
    two (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { pause().await; a.launch(&b) }
    two_in_the_other_order (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { b.launch(&a)?; pause().await; Ok(1) }
    one_of_two_used (a: Buffer, _b: Buffer) (Buffer("a"), Buffer("b")) { pause().await; a.get() }
    none_used (_a: Buffer, _b: Buffer) (Buffer("a"), Buffer("b")) { pause().await; Ok(0) }
    moved (a: Buffer, b: Buffer, c: Buffer) (Buffer("a"), Buffer("b"), Buffer("c")) { drop(b); pause().await; c.launch(&a) }
    failed (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { pause().await; let _c = Buffer("c"); b.fail()?; a.get() }
    not_named (_a: Buffer, _: Buffer, c: Buffer) (Buffer("a"), Buffer("unnamed"), Buffer("c")) { pause().await; c.get() }
    in_a_pattern (Pair { left, right }: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { pause().await; c.launch(&left)?; right.get() }
    rest_of_a_pattern ((a, _): (Buffer, Buffer), c: Buffer) ((Buffer("a"), Buffer("rest")), Buffer("c")) { pause().await; c.launch(&a) }
    part_by_reference ((ref a, b): (Buffer, Buffer), c: Buffer) ((Buffer("a"), Buffer("b")), Buffer("c")) { pause().await; b.launch(a)?; c.get() }
    rest_of_a_struct (Pair { left, .. }: Pair, c: Buffer) (pair("left", "right"), Buffer("c")) { pause().await; c.launch(&left) }
    a_block_with_exits (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) {
        let inner = async { pause().await; if a.len() > 9 { return Ok(0); } a.fail()?; Ok::<usize, String>(1) };
        inner.await.or_else(|_| b.launch(&a))?;
        let _c = Buffer("c");
        pause().await;
        Err(Buffer("error").0)?
    }
    returned_early (a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { if b.len() > 0 { return b.launch(&a); } pause().await; Ok(0) }
    tail_match (a: Buffer) (Buffer("a")) { let _local = Buffer("local"); match Buffer("scrutinee").some() { Some(n) => { pause().await; Ok(n) } None => a.get() } }
    mutated (mut a: Buffer, b: Buffer) (Buffer("a"), Buffer("b")) { a = Buffer("new a"); pause().await; b.launch(&a) }
}
