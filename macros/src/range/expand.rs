//! Generates the statics of `range!`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use super::args::Declaration;
use crate::spec;
use crate::tokens::at;

/// The static of one declaration. One that is wrong leaves a static all the same, so that its users are not wrong too.
pub fn declaration(declaration: Declaration) -> TokenStream {
    let Declaration { attributes, visibility, variable, range } = declaration;
    match (range, variable) {
        (Ok(range), Some(variable)) => {
            let description = &range.description;
            let docs = (!range.is_documented).then(|| quote!(#[doc = #description]));
            let head = quote!(#attributes #docs #visibility);
            spec::declare(&head, &variable, &range.name, description, &range.options)
        }
        (Err(error), Some(variable)) => {
            let error = error.to_compile_error();
            let mixed = at(Span::call_site());
            quote_spanned!(mixed=> #error #attributes #visibility static #variable: ::warpline::RangeSpec = ::warpline::__private::refused();)
        }
        (Err(error), None) => error.to_compile_error(),
        (Ok(_), None) => TokenStream::new(),
    }
}
