//! What a mark leaves in the program, in one place: the attribute macros emit a call of one of these, with the tokens that
//! carry the user's spans, and nothing else that is static.

/// Declares the namespace of a crate, once, at the crate root.
///
/// ```
/// warpline::namespace!("demo", "vector arithmetic");
/// # fn main() {}
/// ```
///
/// Every range of the crate is named `demo.…`. The first argument follows the rules of [`catalog::name`](crate::catalog::name),
/// the second says what the crate is. Both are checked while the crate compiles.
#[macro_export]
macro_rules! namespace {
    ($name:literal, $about:literal $(,)?) => {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        pub(crate) struct put_warpline_namespace_at_the_crate_root;

        #[allow(dead_code)]
        impl put_warpline_namespace_at_the_crate_root {
            pub(crate) const NAMESPACE: &'static str = $name;
        }

        const _: () = {
            const SPEC: $crate::__private::NamespaceSpec = $crate::__private::NamespaceSpec::new(
                $name,
                $about,
                ::core::module_path!(),
                ::core::option_env!("CARGO_PKG_VERSION"),
                ::core::file!(),
                ::core::line!(),
            );
            const _: () = SPEC.check();
    $crate::__note!(of_namespace SPEC);
            #[$crate::__private::linkme::distributed_slice($crate::__private::WARPLINE_NAMESPACES_V1)]
            #[linkme(crate = $crate::__private::linkme)]
            static NAMESPACE: $crate::__private::NamespaceSpec = SPEC;
        };

        #[allow(unused_macros)]
        macro_rules! __warpline_claim {
            ($krate:path, $own:ident) => {
                $crate::__private::claim!($name, $own);
            };
        }
        #[allow(unused_imports)]
        pub(crate) use __warpline_claim;
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`namespace!` takes two string literals: `warpline::namespace!(\"demo\", \"what it is\")`"
        );
    };
}

/// Declares one range: its facts, checked here and now, its note and its place in the slice.
///
/// The macros emit it with the path of the namespace type, the checked facts and the identifier that claims the name.
#[doc(hidden)]
#[macro_export]
macro_rules! __range {
    ($(#[$attr:meta])* $vis:vis static $range:ident = { $($facts:tt)* }; check $check:ident;) => {
        $(#[$attr])*
        #[$crate::__private::linkme::distributed_slice($crate::__private::WARPLINE_RANGES_V1)]
        #[linkme(crate = $crate::__private::linkme)]
        $vis static $range: $crate::RangeSpec = {
            const FACTS: $crate::__private::Facts = $crate::__private::Facts { $($facts)* };
            const _: () = FACTS.$check();
            $crate::__note!(of_range FACTS);
            $crate::RangeSpec::new(FACTS)
        };
    };
}

/// Puts a note into the binary's own section, where the linker keeps it.
#[doc(hidden)]
#[macro_export]
macro_rules! __note {
    ($of:ident $facts:ident) => {
        #[used]
        #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__TEXT,__warpline"))]
        #[cfg_attr(windows, unsafe(link_section = ".wrpln"))]
        #[cfg_attr(not(any(target_vendor = "apple", windows)), unsafe(link_section = ".note.warpline"))]
        static NOTE: $crate::__private::Note<{ $facts.note_len() }> = $crate::__private::Note::$of(&$facts);
    };
}
