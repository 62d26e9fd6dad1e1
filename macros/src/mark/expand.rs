//! Generates the body of a marked function.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{Error, Result};

use super::args::Args;
use super::future::{self, Tail};
use super::item::Function;
use crate::key::Key;
use crate::options::{Grammar, Kind};
use crate::parameter::Parameter;
use crate::spec::{self, Name};
use crate::tokens::{at, kept, mentions};
use crate::zone::Range;

/// The function with its zone.
pub fn function(grammar: &Grammar, args: Args, mut function: Function) -> Result<TokenStream> {
    let Args { range, mut options } = args;
    if let Some(span) = function.constness {
        let text = "a `const fn` cannot be marked: a zone begins at run time; mark its callers, or remove `const`";
        return Err(Error::new(span, text));
    }
    let range = range.unwrap_or_else(|| Range::New(Name::Function(function.name.clone())));
    options.kind = match grammar.takes(Key::Stream) {
        _ if grammar.is_collective => Kind::Collective,
        true => Kind::Gpu,
        false => Kind::Host,
    };
    if options.kind != Kind::Host && options.stream.is_none() {
        let (stream, conditions) = function.stream().ok_or_else(|| {
            Error::new(
                range.span(),
                "no stream is given; write `stream = <expression>` in the mark, or name a parameter `stream`",
            )
        })?;
        options.stream = Some(quote!(#stream));
        options.stream_conditions = conditions.clone();
    }
    let runtime = spec::runtime(&options);
    let err = options.span_of(Key::Err);
    if let (Some(span), None) = (err, &function.output) {
        return Err(Error::new(span, "`err` needs a `Result`, and this function returns nothing; remove `err`"));
    }
    let tail = if function.is_async { None } else { Tail::find(&function.body) };
    if !function.is_async && tail.is_none() && function.output.as_ref().is_some_and(future::is_future) {
        let text = format!(
            "`{}` returns a future, and a zone would end before its work begins; end the body with `async move {{ … }}` or \
             `Box::pin(async move {{ … }})`, or write an `async fn`",
            function.name
        );
        return Err(Error::new(range.span(), text));
    }
    // A future that the function returns may outlive its parameters, so it does not name them.
    if options.kind == Kind::Collective && !options.infers_nothing && tail.is_none() {
        options.infer(&function.parameters, &runtime);
    }
    let remedy = match function.is_documented_by_a_macro {
        true => "a mark cannot read documentation from a macro; write `description = \"…\"` in the mark",
        false => "write a doc comment on the function, or `description = \"…\"` in the mark",
    };
    let is_async = function.is_async || tail.is_some();
    let begin = range.begin(&options, function.description.as_deref(), remedy, is_async)?;
    let output = match &tail {
        Some(_) => function.output.as_ref().and_then(future::output),
        None => function.output.clone(),
    };
    // The parameters of a function that returns a future are not in its future unless the body moves them there.
    let order = match tail.is_none() && err.is_some() {
        true => order_of_drops(&mut function),
        false => TokenStream::new(),
    };
    // The body stays a block: items at its start must not follow statements of ours. The block around it has the macro's edition, by
    // which the zone ends after the temporaries of the body.
    let timed = |body: &Group| {
        let body = kept(body);
        let timed = match err {
            Some(span) => with_outcome(&body, &order, output.as_ref(), is_async, &runtime, at(span)),
            None => body.into(),
        };
        quote_spanned!(at(Span::call_site())=> { #begin #timed })
    };
    let body = match tail {
        Some(tail) => {
            let body = timed(tail.block());
            tail.with(body)
        }
        None => timed(&function.body),
    };
    Ok(function.with_body(body))
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

/// The body with `err`: the zone inspects its value at the return. A value that is not a `Result` is an error at `mixed`.
fn with_outcome(
    body: &TokenTree,
    order: &TokenStream,
    output: Option<&TokenStream>,
    is_async: bool,
    runtime: &TokenStream,
    mixed: Span,
) -> TokenStream {
    // `impl Trait` is allowed only in a signature.
    let output = output.filter(|output| !mentions(output, "impl"));
    let outcome = if is_async {
        // Never runs: it tells the compiler what `?` in the body converts to.
        let hint = output.map(|output| {
            quote_spanned! {mixed=>
                if false {
                    return #runtime::__private::never::<#output>();
                }
            }
        });
        quote_spanned!(mixed=> async move { #order #hint #body }.await)
    } else {
        // A closure, so that `?` and `return` in the body end it and not the function; an `FnOnce`, so that the body may
        // return what it borrows from the parameters.
        let output = output.map(|output| quote_spanned!(mixed=> -> #output));
        quote_spanned!(mixed=> #runtime::__private::once(move || #output { #order #body }))
    };
    quote_spanned! {mixed=>
        let __warpline_outcome = #outcome;
        __warpline_zone.outcome(&__warpline_outcome);
        __warpline_outcome
    }
}
