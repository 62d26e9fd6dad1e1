//! What differs between a build with a feature and one without, where both have the same function.

/// The first expression with the feature, of the crate that expands this; the second one without.
#[doc(hidden)]
#[macro_export]
macro_rules! if_feature {
    ($feature:tt, $on:expr, $off:expr $(,)?) => {{
        #[cfg(feature = $feature)]
        let value = $on;
        #[cfg(not(feature = $feature))]
        let value = $off;
        value
    }};
}
