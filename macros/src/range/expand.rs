//! Generates the statics of `range!`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

use super::args::{Declaration, Range};
use crate::parameter::conditions;
use crate::spec::{self, Name, without_raw};
use crate::tokens::at;

/// The static of one declaration. One that is wrong leaves a static all the same, so that its users are not wrong too.
pub fn declaration(declaration: Declaration) -> TokenStream {
    let Declaration { attributes, visibility, variable, range, .. } = declaration;
    match (range, variable) {
        (Ok(range), Some(variable)) => {
            let description = &range.description;
            let docs = (!range.is_documented).then(|| quote!(#[doc = #description]));
            let head = quote!(#attributes #docs #visibility);
            let companion =
                companion(&attributes, &visibility, &variable, &shape(&range), &spec::runtime(&range.options));
            let declared = spec::declare(&head, &variable, &Name::Literal(range.name), description, &range.options);
            quote!(#declared #companion)
        }
        (Err(error), Some(variable)) => {
            let error = error.to_compile_error();
            let mixed = at(Span::call_site());
            let runtime = quote!(::warpline);
            let any = quote_spanned!(mixed=> #runtime::__private::Shape::ANY);
            let companion = companion(&attributes, &visibility, &variable, &any, &runtime);
            quote_spanned! {mixed=>
                #error
                #attributes #visibility static #variable: #runtime::__private::RangeSpec = #runtime::__private::refused();
                #companion
            }
        }
        (Err(error), None) => error.to_compile_error(),
        (Ok(_), None) => TokenStream::new(),
    }
}

/// A type with the name of the static, which is imported with it: what a mark can check while it compiles. No constant can read
/// the static itself, which changes while the program runs.
fn companion(
    attributes: &TokenStream,
    visibility: &TokenStream,
    variable: &Ident,
    shape: &TokenStream,
    runtime: &TokenStream,
) -> TokenStream {
    let conditions = conditions(&attributes.clone().into_iter().collect::<Vec<_>>());
    // No lint about the type's name: only the static is the user's.
    let mut name = variable.clone();
    name.set_span(at(variable.span()));
    quote_spanned! {at(Span::call_site())=>
        #conditions
        #[doc(hidden)]
        #visibility enum #name {}
        #conditions
        impl #name {
            #[doc(hidden)]
            pub const __SHAPE: #runtime::__private::Shape = #shape;
            #[doc(hidden)]
            #[inline(always)]
            pub fn __range() -> &'static #runtime::__private::RangeSpec {
                &#variable
            }
        }
    }
}

/// What a mark must have of this range.
fn shape(range: &Range) -> TokenStream {
    let runtime = spec::runtime(&range.options);
    let mixed = at(Span::call_site());
    let name = &range.name;
    let kind = Ident::new(range.options.kind.variant(), mixed);
    let fields = range.options.fields.iter().map(|field| without_raw(&field.name));
    quote_spanned!(mixed=> #runtime::__private::Shape::new(#name, #runtime::__private::Kind::#kind, &[#(#fields),*]))
}
