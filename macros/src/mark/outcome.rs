//! The body of a mark with `err`, whose zone sees the value that the function returns.
//!
//! Where all exits of the body are found, the zone sees the value at each of them, and the body stays where it is. Elsewhere the body runs
//! in a closure or in an `async` block, which takes the parameters.

use proc_macro2::{Group, Span, TokenStream};
use quote::quote_spanned;

use super::exits::Exits;
use super::item::Function;
use crate::parameter::Parameter;
use crate::tokens::{at, kept, mentions};

/// A body that returns a `Result`.
pub struct Fallible<'a> {
    pub block: &'a Group,
    /// The return type, if it is known.
    pub output: Option<&'a TokenStream>,
    pub is_async: bool,
    /// The path of warpline.
    pub runtime: &'a TokenStream,
    /// The position of `err`, where a value that is not a `Result` is an error.
    pub err: Span,
}

impl Fallible<'_> {
    /// The body behind the statements that begin `__warpline_zone`. A body that runs in a closure takes the parameters of `function`.
    pub fn timed(&self, function: Option<&mut Function>) -> TokenStream {
        // `impl Trait` is allowed only in a signature.
        let output = self.output.filter(|output| !mentions(output, "impl"));
        let seen = output.and_then(|output| Some((output, Exits { runtime: self.runtime, output }.seen(self.block)?)));
        match seen {
            Some((output, seen)) => self.in_place(&seen, output),
            None => self.in_a_closure(output, function.map(order_of_drops)),
        }
    }

    /// The body with its exits seen.
    fn in_place(&self, seen: &Group, output: &TokenStream) -> TokenStream {
        let Fallible { runtime, err, .. } = *self;
        let body = kept(seen);
        // What stands behind a body that never ends is not unreachable for the compiler's lint.
        quote_spanned! {err=>
            use #runtime::__private::Tried as _;
            let mut __warpline_exits = #runtime::__private::exits::<#output, _, _>(__warpline_zone);
            let __warpline_outcome: #output = if true { #body } else { #runtime::__private::never::<#output>() };
            #runtime::__private::returned(__warpline_outcome, &mut __warpline_exits)
        }
    }

    /// The body in a closure or an `async` block. The zone sees what that returns.
    fn in_a_closure(&self, output: Option<&TokenStream>, order: Option<TokenStream>) -> TokenStream {
        let Fallible { runtime, err, .. } = *self;
        let body = kept(self.block);
        let outcome = if self.is_async {
            // Never runs: it tells the compiler what `?` in the body converts to.
            let hint = output.map(|output| {
                quote_spanned! {err=>
                    if false {
                        return #runtime::__private::never::<#output>();
                    }
                }
            });
            quote_spanned!(err=> async move { #order #hint #body }.await)
        } else {
            // A closure, so that `?` and `return` in the body end it and not the function; an `FnOnce`, so that the body may
            // return what it borrows from the parameters.
            let output = output.map(|output| quote_spanned!(err=> -> #output));
            quote_spanned!(err=> #runtime::__private::once(move || #output { #order #body }))
        };
        quote_spanned! {err=>
            let __warpline_outcome = #outcome;
            let mut __warpline_exits = #runtime::__private::exits_with(&__warpline_outcome, __warpline_zone);
            #runtime::__private::returned(__warpline_outcome, &mut __warpline_exits)
        }
    }
}

/// What makes a closure or a future capture all parameters that drop something, in the order in which a function drops them: captures
/// drop in the order in which they are first named. It never runs.
fn order_of_drops(function: &mut Function) -> TokenStream {
    let mixed = at(Span::call_site());
    function.name_parameters();
    let owned: Vec<_> = function
        .parameters
        .iter()
        .flat_map(|parameter| parameter.owned().iter().map(|name| (&parameter.conditions, name)))
        .rev()
        .map(|(conditions, name)| quote_spanned!(mixed=> #conditions let __warpline_moved = #name;))
        .collect();
    // `self` is the first parameter and so the last capture, named or not.
    let receiver = usize::from(function.parameters.iter().any(Parameter::is_owned_receiver));
    if owned.len() + receiver < 2 {
        return TokenStream::new();
    }
    // Without end, so that what is moved here counts as there behind it.
    quote_spanned!(mixed=> if false { #(#owned)* loop {} })
}
