//! The static data of a mark. Each attribute macro emits a call of one of these macros, with the tokens that carry the user's
//! spans, and no other static data.
//!
//! They expand in the user's crate: every path is absolute, and nothing may need `unsafe` code or a lint level that a strict
//! crate forbids.

/// Declares the namespace of a crate, once, at the crate root.
///
/// ```
/// warpline::namespace!("demo", "vector arithmetic");
/// # fn main() {}
/// ```
///
/// Every range of the crate is named `demo.…`. The first argument follows the rules of [`catalog::name`](crate::catalog::name), and
/// the second describes the crate. Both are checked while the crate compiles.
///
/// With `exclusive` at the end, the program does not link if another crate in it claims the namespace with `exclusive`, too: the linker
/// reports two definitions of the symbol `warpline_namespace_demo_is_exclusive__give_each_crate_its_own`. This includes two versions of
/// one crate. Crates that do not say `exclusive` are left to the start of a session and to `warpline check`, as is a program with
/// `lto = "thin"`.
///
/// ```
/// warpline::namespace!("demo", "vector arithmetic", exclusive);
/// # fn main() {}
/// ```
///
/// # Errors
/// The crate does not compile when the namespace breaks a rule, when it is declared twice or below the crate root, and
/// when a mark or `range!` finds no `namespace!` at the crate root.
#[macro_export]
macro_rules! namespace {
    ($name:literal, $about:literal $(,)?) => {
        $crate::__namespace! { $name }
        const _: () = {
            const SPEC: $crate::catalog::expansion::NamespaceSpec = $crate::catalog::expansion::NamespaceSpec::new(
                $name,
                $about,
                ::core::module_path!(),
                $crate::catalog::expansion::package!(),
                $crate::catalog::expansion::version!(),
                ::core::file!(),
                ::core::line!(),
            );
            const _: () = SPEC.check();
            $crate::__note! {
                of_namespace()
                $name, "\0", $about, "\0", ::core::module_path!(), "\0", ::core::file!(), "\0", ::core::line!(), "\0",
                $crate::catalog::expansion::version!(), "\0", $crate::catalog::expansion::package!(), "\0"
            }
            #[$crate::catalog::expansion::linkme::distributed_slice($crate::catalog::expansion::NAMESPACES)]
            #[linkme(crate = $crate::catalog::expansion::linkme)]
            static NAMESPACE: $crate::catalog::expansion::NamespaceSpec = SPEC;
        };
    };
    ($name:literal, $about:literal, exclusive $(,)?) => {
        $crate::namespace!($name, $about);
        // Beside the namespace's static, in one module: the compiler puts both into one object file. The linker reads that file of a
        // library for the static in the slice, and so finds every definition of the symbol. Not in a crate's own tests, which may
        // be linked with the crate itself, as a dependency of a dev-dependency.
        #[cfg(not(test))]
        const _: () = {
            #[used]
            // No spaces: a shared library lists its symbols in a script of the linker.
            #[unsafe(export_name = ::core::concat!("warpline_namespace_", $name, "_is_exclusive__give_each_crate_its_own"))]
            static EXCLUSIVE: ::core::primitive::u8 = 0;
        };
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`namespace!` takes two string literals, and `exclusive` where no other crate may have the namespace; write `warpline::namespace!(\"demo\", \"what it is\");`"
        );
        $crate::__namespace! { "" }
    };
}

/// The items that a crate's marks look up at its root. The macro `namespace!` emits them even with wrong arguments, so that there
/// is only one error.
///
/// They are in a module, so that a second `namespace!` is one error and not three. The module's name is the remedy: without
/// `namespace!`, each mark is an unresolved import that shows only this name. rustc reports such an import once per `use`, so there
/// is one error per mark. The only way to a single error, a fallback that a glob import of the crate root shadows, copies every
/// name of the root into every mark: 4,000 marks and 4,000 names take 6 GB to compile.
#[doc(hidden)]
#[macro_export]
macro_rules! __namespace {
    ($name:literal) => {
        #[doc(hidden)]
        mod write_warpline_namespace_with_a_name_and_a_description_once_in_lib_rs_or_main_rs_and_fn_main_in_a_doc_test {
            pub(crate) const NAMESPACE: &::core::primitive::str = $name;

            /// Contains one const per range of the crate, so that two ranges of one name are a duplicate definition.
            pub(crate) struct Claims;

            /// Returns a range that is named after its function: the namespace is known as a literal only here.
            macro_rules! spec {
                ($own:literal $function:ident $facts:tt) => {
                    $crate::__spec! {
                        [::core::concat!($name, $own)] [$crate::catalog::expansion::claim! { $name, $function }] $facts
                    }
                };
            }
            pub(crate) use spec;
        }
    };
}

/// Declares one range: a static in the slice. The macros emit it.
///
/// linkme's attribute processes every token of the static twice, so its value is an unexpanded macro call.
#[doc(hidden)]
#[macro_export]
macro_rules! __range {
    ([$($head:tt)*] $range:ident [$($value:tt)*]) => {
        #[$crate::catalog::expansion::linkme::distributed_slice($crate::catalog::expansion::RANGES)]
        #[linkme(crate = $crate::catalog::expansion::linkme)]
        $($head)* static $range: $crate::catalog::RangeSpec = $($value)*;
    };
}

/// The value of a range's static: its facts, checked at compile time, with its claim to the name and its note.
///
/// `$namespace` and `$check`, a call of `$facts`, carry the span to which an error about the name must point. `$note` is the
/// constructor of the note; `$known` and `$rest` are its texts before and after the source location.
#[doc(hidden)]
#[allow(clippy::crate_in_macro_def, reason = "it is the user's crate whose namespace is meant")]
#[macro_export]
macro_rules! __spec {
    ([$($label:tt)*] [$($claim:tt)*] [
        $namespace:ident $facts:ident [$($check:tt)*] $note:ident $known:literal $rest:literal
        $description:literal $kind:ident $level:ident [$($lane:tt)*] [$($color:tt)*] [$($field:literal),*]
        [$($undescribed:literal),*] $version:literal
    ]) => {{
        // The imported item is in the module, so that the error points to the module's name, which has the span of the range's
        // name.
        use crate::$namespace::{Claims as __WarplineCrate, NAMESPACE as __WARPLINE_NAMESPACE};
        // The claim must be in the namespace of the whole crate. Named through a type declared here, it does not trigger the lint
        // `non_local_definitions`, which a crate may forbid.
        type __WarplineClaims = __WarplineCrate;
        impl __WarplineClaims {
            $($claim)*
        }
        $crate::__note! {
            $note(__WARPLINE_NAMESPACE,)
            $($label)*, $known, ::core::module_path!(), "\0", ::core::file!(), "\0", ::core::line!(), "\0", $rest
        }
        let $facts = $crate::catalog::expansion::RangeMeta {
            namespace: __WARPLINE_NAMESPACE,
            label: $($label)*,
            description: $description,
            kind: $crate::catalog::Kind::$kind,
            level: $crate::catalog::Level::$level,
            lane: ::core::option::Option::$($lane)*,
            color: ::core::option::Option::$($color)*,
            fields: &[$($field),*],
            undescribed: &[$($undescribed),*],
            module: ::core::module_path!(),
            version: $version,
            file: ::core::file!(),
            line: ::core::line!(),
        };
        $($check)*;
        $crate::catalog::RangeSpec::new($facts)
    }};
}

/// Puts a note into the binary's own section, where the linker keeps it.
#[doc(hidden)]
#[macro_export]
macro_rules! __note {
    ($of:ident($($namespace:tt)*) $($text:tt)*) => {
        #[used]
        #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__TEXT,__warpline"))]
        #[cfg_attr(windows, unsafe(link_section = ".wrpln"))]
        #[cfg_attr(not(any(target_vendor = "apple", windows)), unsafe(link_section = ".note.warpline"))]
        static NOTE: $crate::catalog::expansion::Note<{ ::core::concat!($($text)*).len() }> =
            $crate::catalog::expansion::Note::$of($($namespace)* ::core::concat!($($text)*));
    };
}
