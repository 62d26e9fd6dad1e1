//! What differs between a build that records and one that does not, where both have the same function.

/// The first expression with feature `enable`, the second one without.
#[cfg(feature = "runtime")]
macro_rules! if_enabled {
    ($on:expr, $off:expr $(,)?) => {
        $on
    };
}

#[cfg(not(feature = "runtime"))]
macro_rules! if_enabled {
    ($on:expr, $off:expr $(,)?) => {
        $off
    };
}
