//! Generates the body of a marked function.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Error, Result};

use super::args::Args;
use super::item::Function;
use crate::options::{Grammar, Key, Kind};
use crate::spec::Name;
use crate::tokens::{at, mentions};
use crate::zone::Range;

/// The function with its zone.
pub fn function(grammar: &Grammar, args: Args, function: &Function) -> Result<TokenStream> {
    let Args { range, mut options } = args;
    let range = range.unwrap_or_else(|| Range::New(Name::Function(function.name.clone())));
    options.kind = match grammar.takes(Key::Stream) {
        _ if grammar.is_collective => Kind::Collective,
        true => Kind::Gpu,
        false => Kind::Host,
    };
    if options.kind != Kind::Host && options.stream.is_none() {
        let stream = function.stream.as_ref().ok_or_else(|| {
            Error::new(
                range.span(),
                "which stream? write `stream = <expression>` in the mark, or name a parameter `stream`",
            )
        })?;
        options.stream = Some(quote!(#stream));
    }
    let err = options.span_of(Key::Err);
    if let (Some(span), None) = (err, &function.output) {
        return Err(Error::new(span, "`err` needs a `Result`, and this function returns nothing; take `err` away"));
    }
    let remedy = "write a doc comment on the function, or `description = \"…\"` in the mark";
    let begin = range.begin(&options, function.description.as_deref(), remedy, function.is_async)?;
    let Function { header, inner_attributes, body, .. } = function;
    let body = match err {
        Some(span) => with_outcome(function, at(span)),
        // The body stays a block: items at its start must not follow statements of ours.
        None => quote!(#body),
    };
    Ok(quote! {
        #header {
            #inner_attributes
            #begin
            #body
        }
    })
}

/// The body with `err`: its value is looked at on the way out. A value that is no `Result` is an error at `mixed`.
fn with_outcome(function: &Function, mixed: Span) -> TokenStream {
    let body = &function.body;
    // `impl Trait` can be written nowhere but in a signature.
    let output = function.output.as_ref().filter(|output| !mentions(output, "impl"));
    let outcome = if function.is_async {
        // Never runs: it tells the compiler what `?` in the body converts to.
        let hint = output.map(|output| {
            quote_spanned! {mixed=>
                #[allow(unreachable_code)]
                if false {
                    let hint: #output = loop {};
                    return hint;
                }
            }
        });
        quote_spanned!(mixed=> async move { #hint #body }.await)
    } else {
        // A closure, so that `?` and `return` in the body end it and not the function.
        let output = output.map(|output| quote_spanned!(mixed=> -> #output));
        quote_spanned!(mixed=> (move || #output { #body })())
    };
    quote_spanned! {mixed=>
        let outcome = #outcome;
        zone.outcome(&outcome);
        outcome
    }
}
