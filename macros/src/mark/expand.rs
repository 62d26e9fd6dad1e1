//! Generates the body of a marked function.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Error, Result};

use super::args::Args;
use super::future::{self, Tail};
use super::item::Function;
use super::linted;
use super::outcome::Fallible;
use crate::key::Key;
use crate::options::{Grammar, Kind};
use crate::spec::{self, Name};
use crate::tokens::{at, kept};
use crate::zone::{self, Range};

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
                "no stream is given; write `stream = <expression>` in the mark, or name a parameter `stream`; for work of the thread itself, write `host_zone`",
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
    let keep_stream = tail.as_ref().and_then(|_| zone::keep_stream(&options, &runtime));
    options.keeps_stream = keep_stream.is_some();
    let begin = range.begin(&options, function.description.as_deref(), remedy, is_async)?;
    let conditions = &options.stream_conditions;
    let output = match &tail {
        Some(_) => function.output.as_ref().and_then(future::output),
        None => function.output.clone(),
    };
    if linted::is_wanted() {
        return Ok(function.with_body(linted::body(&function.body, &quote!(#keep_stream #begin))));
    }
    // The body stays a block: items at its start must not follow statements of ours. The block around it has the macro's edition, by
    // which the zone ends after the temporaries of the body.
    let block = tail.as_ref().map_or(&function.body, Tail::block).clone();
    let timed = match err {
        Some(span) => {
            let body = Fallible { block: &block, output: output.as_ref(), is_async, runtime: &runtime, err: at(span) };
            // The parameters of a function that returns a future are not in its future unless the body moves them there.
            body.timed(tail.is_none().then_some(&mut function))
        }
        None => kept(&block).into(),
    };
    // A block without `move` would borrow it.
    let moved = keep_stream
        .as_ref()
        .map(|_| quote_spanned!(at(Span::call_site())=> #conditions let __warpline_stream = __warpline_stream;));
    let timed = quote_spanned!(at(Span::call_site())=> { #moved #begin #timed });
    let body = match tail {
        Some(tail) => tail.with(timed, keep_stream.unwrap_or_default()),
        None => timed,
    };
    Ok(function.with_body(body))
}
