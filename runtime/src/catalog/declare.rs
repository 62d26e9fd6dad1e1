//! What a mark leaves in the program, in one place: the attribute macros emit a call of one of these, with the tokens that
//! carry the user's spans, and nothing else that is static.
//!
//! They expand in the user's crate: every path is absolute, and nothing may need `unsafe` code or a lint level that a
//! strict crate forbids.

use super::spec::{Facts, Kind, Level, RangeSpec};

/// Declares the namespace of a crate, once, at the crate root.
///
/// ```
/// warpline::namespace!("demo", "vector arithmetic");
/// # fn main() {}
/// ```
///
/// Every range of the crate is named `demo.…`. The first argument follows the rules of [`catalog::name`](crate::catalog::name),
/// the second says what the crate is. Both are checked while the crate compiles.
///
/// # Errors
/// The crate does not compile when the namespace breaks a rule, when it is declared twice or below the crate root, and
/// when a mark or [`range!`](crate::range) finds no `namespace!` at the crate root.
#[macro_export]
macro_rules! namespace {
    ($name:literal, $about:literal $(,)?) => {
        // A module, so that a second `namespace!` is one error and not three.
        #[doc(hidden)]
        #[allow(dead_code, unused_imports, unused_macros)]
        mod put_warpline_namespace_at_the_crate_root {
            pub(crate) const NAMESPACE: &::core::primitive::str = $name;

            /// Has one const for each range of the crate, so that two of one name are a duplicate definition.
            pub(crate) struct Claims;

            macro_rules! claim {
                ($function:ident) => {
                    $crate::__private::claim! { $name, $function }
                };
            }
            pub(crate) use claim;
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
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`namespace!` takes two string literals; write `warpline::namespace!(\"demo\", \"what it is\");`"
        );
    };
}

/// Declares one range: its facts, checked here and now, its claim to the name, its note and its place in the slice.
///
/// The macros emit it. `$namespace` and `$check` carry the span where an error about the name has to point.
#[doc(hidden)]
#[allow(clippy::crate_in_macro_def, reason = "it is the user's crate whose namespace is meant")]
#[macro_export]
macro_rules! __range {
    // Named after its function: the name is put together here, and only `namespace!` can spell the claim.
    ($head:tt $range:ident $namespace:ident own $own:literal $function:ident $($facts:tt)*) => {
        $crate::__range! {
            $head $range $namespace
            [$crate::__private::label(&$crate::__private::join::<
                { namespace::NAMESPACE.len() + 1 + $own.len() + 1 },
            >(namespace::NAMESPACE, $own))]
            [namespace::claim! { $function }]
            $($facts)*
        }
    };
    (
        [$($head:tt)*] $range:ident $namespace:ident [$label:expr] [$($claim:tt)*] [$($check:tt)*]
        $description:literal $kind:ident $level:ident [$($lane:literal)?] [$($color:literal)?] [$($field:literal),*]
    ) => {
        #[$crate::__private::linkme::distributed_slice($crate::__private::WARPLINE_RANGES_V1)]
        #[linkme(crate = $crate::__private::linkme)]
        $($head)* static $range: $crate::RangeSpec = {
            use crate::$namespace as namespace;
            const FACTS: $crate::__private::Facts = $crate::__private::Facts {
                namespace: namespace::NAMESPACE,
                label: $label,
                description: $description,
                kind: $crate::Kind::$kind,
                level: $crate::Level::$level,
                lane: $crate::__option!($($lane)?),
                color: $crate::__option!($($color)?),
                fields: &[$($field),*],
                module: ::core::module_path!(),
                version: ::core::option_env!("CARGO_PKG_VERSION"),
                file: ::core::file!(),
                line: ::core::line!(),
            };
            const _: () = $($check)*;
            // Nobody reads a claim, and it has to be in the namespace of the whole crate.
            #[allow(dead_code, non_local_definitions)]
            impl namespace::Claims {
                $($claim)*
            }
            $crate::__note!(of_range FACTS);
            $crate::RangeSpec::new(FACTS)
        };
    };
}

/// What was written, or nothing.
#[doc(hidden)]
#[macro_export]
macro_rules! __option {
    () => {
        ::core::option::Option::None
    };
    ($written:literal) => {
        ::core::option::Option::Some($written)
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

/// `namespace.own` and a NUL, for a range that is named after its function. `N` is its length, the NUL included.
pub const fn join<const N: usize>(namespace: &str, own: &str) -> [u8; N] {
    let mut joined = [0; N];
    let (head, tail) = joined.split_at_mut(namespace.len());
    head.copy_from_slice(namespace.as_bytes());
    tail[0] = b'.';
    tail.split_at_mut(1).1.split_at_mut(own.len()).0.copy_from_slice(own.as_bytes());
    joined
}

/// The joined name as text.
pub const fn label(joined: &'static [u8]) -> &'static str {
    match std::str::from_utf8(joined) {
        Ok(label) => label,
        Err(_) => "",
    }
}

/// Stands in for a range whose declaration has an error, so that those who use it have none.
pub const fn refused() -> RangeSpec {
    RangeSpec::new(Facts {
        namespace: "",
        label: "",
        description: "",
        kind: Kind::Host,
        level: Level::Coarse,
        lane: None,
        color: None,
        fields: &[],
        module: "",
        version: None,
        file: "",
        line: 0,
    })
}
