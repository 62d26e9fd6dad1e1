//! What Clippy sees of a marked function: its body as the user wrote it, so that each lint finds there what it finds without the mark.
//!
//! A zone needs statements around the body, and many lints look no further than the last expression of a function, or take what is in an
//! expansion for foreign code. Clippy only checks, so for it the mark's expressions are in a closure that never runs. The compiler itself
//! gets the zone.

use std::ffi::OsString;
use std::sync::LazyLock;

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};

use crate::tokens::{at, ends_item, is_punct};

/// Whether Clippy's driver runs this macro and only checks the crate. A build by the driver, as with `RUSTC_WORKSPACE_WRAPPER=clippy-driver`,
/// gets the zones. Dependencies are compiled by `rustc` itself under `cargo clippy`.
pub fn is_wanted() -> bool {
    static IS_CLIPPY: LazyLock<bool> = LazyLock::new(|| {
        let driver = std::env::current_exe();
        driver.is_ok_and(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().contains("clippy-driver")))
            && only_checks(std::env::args_os())
    });
    *IS_CLIPPY
}

/// Whether a compiler with these arguments makes metadata at most, as under `cargo check` and `cargo clippy`.
fn only_checks(args: impl Iterator<Item = OsString>) -> bool {
    let mut emitted = Vec::new();
    let mut is_next = false;
    for arg in args {
        let arg = arg.to_string_lossy();
        let kinds = if is_next { Some(&*arg) } else { arg.strip_prefix("--emit=") };
        // A kind may have a path, as in `metadata=FILE`.
        let kind = |kind: &str| kind.split('=').next().unwrap_or_default().to_owned();
        emitted.extend(kinds.into_iter().flat_map(|kinds| kinds.split(',').map(kind)));
        is_next = !is_next && arg == "--emit";
    }
    // Without the argument, a compiler links.
    !emitted.is_empty() && emitted.iter().all(|kind| matches!(kind.as_str(), "metadata" | "dep-info"))
}

/// The statements of the body, with the statements of the mark in a closure that never runs. It uses what they use, so that a parameter
/// which only the mark names is not unused.
pub fn body(body: &Group, mark: &TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    // Items do not follow statements.
    let (items, statements) = tokens.split_at(items_end(&tokens));
    let used = quote_spanned!(at(Span::call_site())=> let _ = || { #mark };);
    quote!(#(#items)* #used #(#statements)*)
}

/// The number of tokens of the items at the start of a body.
fn items_end(tokens: &[TokenTree]) -> usize {
    let mut end = 0;
    while let Some(item) = item(tokens.get(end..).unwrap_or_default()) {
        end += item;
    }
    end
}

/// The number of tokens of the item that the tokens begin with.
fn item(tokens: &[TokenTree]) -> Option<usize> {
    let word = |i: usize| match tokens.get(i) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        _ => String::new(),
    };
    let mut i = 0;
    // Attributes, and the visibility.
    while is_punct(tokens.get(i), '#') {
        i += 2;
    }
    if word(i) == "pub" {
        i += 1;
        i += usize::from(matches!(tokens.get(i), Some(TokenTree::Group(_))));
    }
    let to = |is_end: fn(&TokenTree) -> bool| {
        let behind = tokens.get(i..)?;
        behind.iter().position(is_end).map(|end| i + end + 1)
    };
    match word(i).as_str() {
        "use" | "static" | "type" => to(is_semicolon),
        // Not `const { … }`.
        "const" if word(i + 1) == "fn" => to(ends_item),
        "const" if matches!(tokens.get(i + 1), Some(TokenTree::Ident(_))) => to(is_semicolon),
        "fn" | "struct" | "enum" | "trait" | "impl" | "mod" | "macro_rules" => to(ends_item),
        "union" if matches!(tokens.get(i + 1), Some(TokenTree::Ident(_))) => to(ends_item),
        // Not `async { … }` and `unsafe { … }`.
        "async" | "unsafe" | "extern"
            if !matches!(tokens.get(i + 1), Some(TokenTree::Group(_))) && word(i + 1) != "move" =>
        {
            to(ends_item)
        }
        _ => None,
    }
}

fn is_semicolon(token: &TokenTree) -> bool {
    is_punct(Some(token), ';')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_by_the_driver_of_clippy_is_no_check() {
        for (args, expected) in [
            ("clippy-driver rustc a.rs --emit=dep-info,metadata -C debuginfo=2", true),
            ("clippy-driver rustc a.rs --emit metadata=a.rmeta", true),
            ("clippy-driver rustc a.rs --emit=dep-info,metadata,link", false),
            ("clippy-driver rustc a.rs --emit=metadata --emit obj", false),
            ("clippy-driver rustc a.rs --emit dep-info,link --test", false),
            ("clippy-driver rustc a.rs", false),
        ] {
            assert_eq!(only_checks(args.split(' ').map(OsString::from)), expected, "{args}");
        }
    }

    #[test]
    fn the_items_at_the_start_of_a_body_are_found() {
        for (items, rest) in [
            ("use a::{b, c}; const N: usize = { 3 };", "let d = N;"),
            ("#[derive(Debug)] pub(crate) struct A { b: u8 } struct B(u8);", "A { b: 1 }.c()"),
            ("impl A { fn b() {} } fn c<T>(d: T) -> E where T: F { g }", "h"),
            ("async fn a() {} unsafe fn b() {} extern \"C\" fn c() {} const fn d() {}", "unsafe { b() }"),
            ("macro_rules! a { () => {} } static B: u8 = 1; type C = D; mod e { } enum F { G }", "async move { a }"),
            ("", "const { a }.b"),
            ("", "async |a| b"),
            ("", "#[cfg(a)] { b }"),
            ("", "if a { b } use c;"),
        ] {
            let tokens: Vec<TokenTree> =
                format!("{items} {rest}").parse::<TokenStream>().expect(items).into_iter().collect();
            let expected = items.parse::<TokenStream>().expect(items).into_iter().count();
            assert_eq!(items_end(&tokens), expected, "{items} {rest}");
        }
    }
}
