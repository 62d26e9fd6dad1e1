//! Generates the block with its zone.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{Error, Result};

use super::args::Args;
use crate::tokens::{at, awaits, kept, visible, with_statements};

/// The block with its zone, as one expression. A temporary at its end may live longer than the zone, as the edition of the braces says.
pub fn block(args: Args) -> Result<TokenStream> {
    let Args { range, docs, options, asyncness, body } = args;
    let remedy = "write `description = \"…\"`, or a doc comment before the name";
    // A guard that lives across an `.await` must not be one that nests on a thread.
    let is_async = !asyncness.is_empty() || awaits(body.stream());
    let begin = range.begin(&options, docs.as_deref(), remedy, is_async)?;
    let inner = kept(&body);
    if asyncness.is_empty() {
        return Ok(kept(&with_statements(&body, quote!(#begin #inner))).into());
    }
    let timed = with_statements(&body, quote_spanned!(at(Span::call_site())=> { #begin #inner }));
    Ok(quote!(#asyncness #timed))
}

/// The error, and the body, so that no follow-up error appears.
pub fn refused(error: &Error, input: TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    let body = visible(input).into_iter().filter_map(block_of).last();
    quote!({ #error #body })
}

/// The token if it is a block, as an expression.
fn block_of(token: TokenTree) -> Option<TokenTree> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(kept(&group)),
        _ => None,
    }
}
