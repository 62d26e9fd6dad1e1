//! Generates the block with its zone.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{Error, Result};

use super::args::Args;
use crate::tokens::{at, mentions};

/// The block with its zone, as one expression.
pub fn block(args: Args) -> Result<TokenStream> {
    let Args { range, docs, options, mut body } = args;
    // The braces belong to the macro: nobody should be told that they are one pair too many.
    body.set_span(at(body.span()));
    let remedy = "write `description = \"…\"`, or a doc comment before the name";
    // A guard that lives across an `.await` must not be one that nests on a thread.
    let is_async = mentions(&body.stream(), "await");
    let begin = range.begin(&options, docs.as_deref(), remedy, is_async)?;
    Ok(quote!({ #begin #body }))
}

/// The error, and the body so that nothing else is wrong.
pub fn refused(error: &Error, input: TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    let body = input.into_iter().filter(is_block).last();
    quote!({ #error #body })
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}
