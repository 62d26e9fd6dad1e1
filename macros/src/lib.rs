//! The attribute macros of warpline. Use them through the crate `warpline`, which re-exports them.
//!
//! They know the grammar of marks and nothing of GPUs: what they emit calls the hidden functions and macros of the
//! runtime. A function's header is scanned as tokens, its body is handed on as it is.
#![forbid(unsafe_code)]

mod block;
mod claim;
mod collective;
mod mark;
mod options;
mod range;
mod spec;
mod tokens;
mod zone;

use proc_macro::{Literal, TokenStream, TokenTree};

/// Marks a function.
#[proc_macro_attribute]
pub fn gpu_zone(args: TokenStream, item: TokenStream) -> TokenStream {
    mark::expand(&mark::GPU, args.into(), item.into()).into()
}

/// Marks a function.
#[proc_macro_attribute]
pub fn host_zone(args: TokenStream, item: TokenStream) -> TokenStream {
    mark::expand(&mark::HOST, args.into(), item.into()).into()
}

/// Marks a function.
#[proc_macro_attribute]
pub fn collective(args: TokenStream, item: TokenStream) -> TokenStream {
    mark::expand(&collective::MARK, args.into(), item.into()).into()
}

/// Block.
#[proc_macro]
pub fn collective_block(input: TokenStream) -> TokenStream {
    block::expand(block::On::Ranks, input.into()).into()
}

/// Block.
#[proc_macro]
pub fn gpu_zone_block(input: TokenStream) -> TokenStream {
    block::expand(block::On::Stream, input.into()).into()
}

/// Block.
#[proc_macro]
pub fn host_zone_block(input: TokenStream) -> TokenStream {
    block::expand(block::On::Thread, input.into()).into()
}

/// Range.
#[proc_macro]
pub fn range(input: TokenStream) -> TokenStream {
    range::expand(input.into()).into()
}

/// What `namespace!` calls to claim the name of a mark that is named after its function. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __claim(input: TokenStream) -> TokenStream {
    claim::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The version of the package that is being compiled, as a literal that `concat!` takes. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __version(_: TokenStream) -> TokenStream {
    TokenTree::from(Literal::string(&spec::version())).into()
}

/// The name of the package that is being compiled, as a literal that `concat!` takes. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __package(_: TokenStream) -> TokenStream {
    TokenTree::from(Literal::string(&spec::package())).into()
}
