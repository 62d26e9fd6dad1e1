//! A mark adds a constant to the size of a future, and nothing to the depth of its type.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use warpline::host_zone;

warpline::range! {
    CHAIN = "api.futures.chain": "One call of a chain.", kind = host;
}

/// A value that goes through the chain.
type Buffer = [u8; 64];

/// A chain of `async` functions that each pass their parameters on, marked and unmarked.
macro_rules! chains {
    ($($name:ident $next:ident)*) => {
        mod plain {
            use super::Buffer;
            pub async fn last(buffer: Buffer, times: u8) -> Result<u8, String> {
                std::future::ready(()).await;
                buffer.first().map(|first| first + times).ok_or_else(|| "empty".to_owned())
            }
            $(pub async fn $name(buffer: Buffer, times: u8) -> Result<u8, String> {
                let n = $next(buffer, times + 1).await?;
                Ok(n.max(buffer[0]))
            })*
        }
        mod marked {
            use super::{Buffer, CHAIN, host_zone};
            #[host_zone(CHAIN, err)]
            pub async fn last(buffer: Buffer, times: u8) -> Result<u8, String> {
                std::future::ready(()).await;
                buffer.first().map(|first| first + times).ok_or_else(|| "empty".to_owned())
            }
            $(#[host_zone(CHAIN, err)]
            pub async fn $name(buffer: Buffer, times: u8) -> Result<u8, String> {
                let n = $next(buffer, times + 1).await?;
                Ok(n.max(buffer[0]))
            })*
        }
    };
}

chains! {
    c1 last c2 c1 c3 c2 c4 c3 c5 c4 c6 c5 c7 c6 c8 c7 c9 c8 c10 c9 c11 c10 c12 c11 c13 c12 c14 c13 c15 c14 c16 c15
    c17 c16 c18 c17 c19 c18 c20 c19 c21 c20 c22 c21 c23 c22 c24 c23 c25 c24 c26 c25 c27 c26 c28 c27 c29 c28 c30 c29
}

fn is_send<T: Send>(value: T) -> T {
    value
}

/// What a zone may add to a future: its guard, the function that makes a text of the error, and the alignment of both.
const ZONE: usize = 40;

#[test]
fn a_mark_with_err_adds_its_zone_to_a_future_and_nothing_else() {
    let buffer = [1; 64];
    let depth = |plain: usize, marked: usize, calls: usize| {
        assert!(marked <= plain + calls * ZONE, "{marked} bytes at {calls} calls, unmarked {plain}");
    };
    depth(size_of_val(&plain::last(buffer, 0)), size_of_val(&marked::last(buffer, 0)), 1);
    depth(size_of_val(&plain::c1(buffer, 0)), size_of_val(&marked::c1(buffer, 0)), 2);
    depth(size_of_val(&plain::c8(buffer, 0)), size_of_val(&marked::c8(buffer, 0)), 9);
    depth(size_of_val(&plain::c30(buffer, 0)), size_of_val(&marked::c30(buffer, 0)), 31);
}

#[test]
fn a_chain_of_marked_futures_compiles_as_deep_as_an_unmarked_one() {
    // Its zones are not those of another test's session.
    let _turn = warpline_tests::alone();
    let buffer = [1; 64];
    let mut context = Context::from_waker(Waker::noop());
    let plain = pin!(is_send(plain::c30(buffer, 0))).poll(&mut context);
    let marked = pin!(is_send(marked::c30(buffer, 0))).poll(&mut context);
    assert_eq!(plain, Poll::Ready(Ok(31)));
    assert_eq!(marked, plain);
}
