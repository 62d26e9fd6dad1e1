//! Generates the block with its zone.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{Error, Result};

use super::args::Args;
use crate::tokens::{at, awaits, visible};

/// The block with its zone, as one expression.
pub fn block(args: Args) -> Result<TokenStream> {
    let Args { range, docs, options, asyncness, mut body } = args;
    // The braces have the macro's span, so that the compiler does not lint them as unnecessary.
    body.set_span(at(body.span()));
    let remedy = "write `description = \"…\"`, or a doc comment before the name";
    // A guard that lives across an `.await` must not be one that nests on a thread.
    let is_async = !asyncness.is_empty() || awaits(body.stream());
    let begin = range.begin(&options, docs.as_deref(), remedy, is_async)?;
    Ok(quote!(#asyncness { #begin #body }))
}

/// The error, and the body, so that no follow-up error appears.
pub fn refused(error: &Error, input: TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    let body = visible(input).into_iter().filter_map(block_of).last();
    quote!({ #error #body })
}

/// The token if it is a block. Its braces get the macro's span here, too.
fn block_of(token: TokenTree) -> Option<Group> {
    match token {
        TokenTree::Group(mut group) if group.delimiter() == Delimiter::Brace => {
            group.set_span(at(group.span()));
            Some(group)
        }
        _ => None,
    }
}
