//! Code that differs between builds with and without a feature, where both builds have the same function.

/// Expands to the first expression if the crate that expands it has the feature, otherwise to the second one.
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
