//! What marks and blocks share: the range of a zone, and the statements that begin it.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::parse::{Error, ParseStream, Result};
use syn::{Lit, LitStr, Token};

use crate::key::Key;
use crate::options::{Grammar, Kind, Options};
use crate::spec::{self, Name, without_raw};
use crate::tokens::{at, is_path, take_expression};

/// The range of a zone.
pub enum Range {
    /// The mark declares it.
    New(Name),
    /// `range!` declares it at this path.
    Declared(TokenStream),
}

impl Range {
    /// The first argument, if it is not an option.
    pub fn parse(grammar: &Grammar, input: ParseStream) -> Result<Option<Range>> {
        if input.is_empty() {
            return Ok(None);
        }
        if input.peek(Lit) {
            return parse_name(input).map(|name| Some(Range::New(Name::Literal(name))));
        }
        if starts_with_option(grammar, input) {
            return Ok(None);
        }
        let start = input.span();
        let path = take_expression(input)?;
        if !is_path(&path) {
            return Err(Error::new(
                start,
                "expected the range's name, `\"demo.add\"`, or the path of a range that `range!` declares",
            ));
        }
        Ok(Some(Range::Declared(path)))
    }

    /// Refuses options that belong to the declaration of a declared range.
    pub fn refuse_facts(&self, options: &Options) -> Result<()> {
        if matches!(self, Range::New(_)) {
            return Ok(());
        }
        for key in [Key::Description, Key::Level, Key::Lane, Key::Color] {
            // A lane that each zone has for itself is the mark's.
            let is_of_range = key != Key::Lane || options.lane.is_some();
            if let Some(span) = options.span_of(key).filter(|_| is_of_range) {
                let text = format!("`{}` belongs to the declared range; move it into its `range!`", key.name());
                return Err(Error::new(span, text));
            }
        }
        Ok(())
    }

    /// Where errors about the whole range point.
    pub fn span(&self) -> Span {
        match self {
            Range::New(name) => name.span(),
            Range::Declared(path) => start_of(path),
        }
    }

    /// The statements that begin a zone of this range. It ends with the block that they stand in.
    ///
    /// `docs` is the description where the options have none, and `remedy` is the hint if both are missing.
    pub fn begin(&self, options: &Options, docs: Option<&str>, remedy: &str, is_async: bool) -> Result<TokenStream> {
        let runtime = spec::runtime(options);
        let mixed = at(Span::call_site());
        let (declaration, range) = match self {
            Range::Declared(path) => (Some(check(path, options, &runtime)), declared(path, mixed)),
            Range::New(name) => {
                let written = options.description.as_ref().map(LitStr::value);
                let description = written
                    .as_deref()
                    .or(docs)
                    .ok_or_else(|| Error::new(name.span(), format!("this range has no description; {remedy}")))?;
                let variable = Ident::new("__RANGE", mixed);
                let declaration = spec::declare(&TokenStream::new(), &variable, name, description, options);
                // In a block of its own: the user may have a constant of this name.
                (None, quote_spanned!(mixed=> { #declaration &#variable }))
            }
        };
        let (none, start) = if is_async { ("AsyncZone", "start_async") } else { ("Zone", "start") };
        let (none, start) = (Ident::new(none, mixed), Ident::new(start, mixed));
        let on = on(options, mixed);
        let message = match options.kind {
            Kind::Collective => Some(options.message.value(options.seen(), &runtime, self.span(), mixed)?),
            _ => None,
        };
        let fill = fill(options, message, &runtime, mixed);
        let launch = options.at_launch.then(|| quote_spanned!(mixed=> .begin_at_launch()));
        // Before the zone, so that the zone ends inside its step. Its number is computed only where steps are taken.
        let step = options.step.as_ref().map(|number| {
            let begin = match number {
                Some(number) => quote_spanned!(at(start_of(number))=> numbered(|| #number)),
                None => quote_spanned!(mixed=> next()),
            };
            quote_spanned!(mixed=> let __warpline_step = #runtime::__private::StepGuard::#begin;)
        });
        // A pattern with the name of a constant matches that constant, so these names are ones that no constant has.
        Ok(quote_spanned! {mixed=>
            #declaration
            #step
            let __warpline_zone = if let ::core::option::Option::Some(__warpline_begin) = #runtime::__private::begin(#range)
                && let ::core::option::Option::Some(__warpline_opening) = #on
            {
                __warpline_opening #fill #launch.#start()
            } else {
                #runtime::#none::none()
            };
        })
    }
}

/// The static of a declared range, by the function of its companion: an unresolved path then gives one error instead of two.
fn declared(path: &TokenStream, mixed: Span) -> TokenStream {
    quote_spanned!(mixed=> <#path>::__range())
}

/// The check that a declared range is of the mark's kind and has its fields.
fn check(path: &TokenStream, options: &Options, runtime: &TokenStream) -> TokenStream {
    let here = at(start_of(path));
    let kind = Ident::new(options.kind.variant(), here);
    let fields = options.fields.iter().map(|field| without_raw(&field.name));
    quote_spanned!(here=> const _: () = <#path>::__SHAPE.check(#runtime::__private::Kind::#kind, &[#(#fields),*]);)
}

/// The expression that finds the zone's recorder. The stream is not evaluated while the zone is off. A temporary of the stream
/// expression, such as a lock guard, is dropped before the fields are evaluated.
fn on(options: &Options, mixed: Span) -> TokenStream {
    match &options.stream {
        Some(stream) => {
            let begin = match options.keeps_stream {
                true => quote_spanned!(at(start_of(stream))=> __warpline_stream.begin(__warpline_begin)),
                false => {
                    let stream = reference(stream);
                    quote_spanned!(mixed=> __warpline_begin.on(#stream))
                }
            };
            let conditions = &options.stream_conditions;
            let none = removed(conditions, mixed);
            quote_spanned! {mixed=>
                {
                    #none
                    #conditions
                    let __warpline_opening = #begin;
                    __warpline_opening
                }
            }
        }
        None => quote_spanned!(mixed=> __warpline_begin.on_host()),
    }
}

/// The statement that keeps the stream of a zone which begins in a future: the future may outlive what lends the stream.
pub fn keep_stream(options: &Options, runtime: &TokenStream) -> Option<TokenStream> {
    let stream = reference(options.stream.as_ref()?);
    let conditions = &options.stream_conditions;
    Some(quote_spanned! {at(Span::call_site())=>
        #conditions
        let __warpline_stream = #runtime::__private::KeptStream::new(|| {
            use #runtime::__private::KeepReference as _;
            #runtime::__private::Keep(#stream).kept()
        });
    })
}

/// The opening of a zone where `#[cfg(…)]` removes its stream: a host zone, as on the stream `None`.
fn removed(conditions: &TokenStream, mixed: Span) -> Option<TokenStream> {
    if conditions.is_empty() {
        return None;
    }
    let predicates = conditions.clone().into_iter().filter_map(|token| match token {
        TokenTree::Group(attribute) => attribute.stream().into_iter().nth(1),
        _ => None,
    });
    Some(quote_spanned! {mixed=>
        #[cfg(not(all(#(all #predicates),*)))]
        let __warpline_opening = __warpline_begin.on_host();
    })
}

/// The calls that set the instance's fields, label, lane and work. Expressions that run code are in a closure, so that a panic can be caught,
/// and each is a statement of its own, so that none holds a lock that the next one takes.
fn fill(options: &Options, message: Option<TokenStream>, runtime: &TokenStream, mixed: Span) -> TokenStream {
    let is_quiet = options.label.is_none()
        && options.lane_value.is_none()
        && options.bytes.is_none()
        && options.flops.is_none()
        && message.is_none()
        && options.fields.iter().all(|field| is_place(&field.value));
    let fields = options.fields.iter().map(|field| {
        let (name, value) = (without_raw(&field.name), value(&field.value, runtime));
        quote_spanned!(mixed=> .field(#name, #value))
    });
    if is_quiet {
        return fields.collect();
    }
    let label = options.label.iter().map(|label| {
        let label = reference(label);
        quote_spanned!(mixed=> .label(#label))
    });
    let lane = options.lane_value.iter().map(|lane| {
        let lane = reference(lane);
        quote_spanned!(mixed=> .lane(#lane))
    });
    // By value, with the expression's own place: a type error points there.
    let bytes = options.bytes.iter().map(|bytes| quote_spanned!(at(start_of(bytes))=> .bytes(#bytes)));
    let flops = options.flops.iter().map(|flops| quote_spanned!(at(start_of(flops))=> .flops(#flops)));
    let calls = fields
        .chain(label)
        .chain(lane)
        .chain(bytes)
        .chain(flops)
        .map(|call| quote_spanned!(mixed=> let __warpline_opening = __warpline_opening #call;));
    let message =
        message.map(|message| quote_spanned!(mixed=> let __warpline_opening = __warpline_opening.message(#message);));
    quote_spanned! {mixed=>
        .fill(|__warpline_opening| {
            #(#calls)*
            #message
            __warpline_opening
        })
    }
}

/// Whether the expression runs no code: a literal, a variable, a constant, a field of either.
fn is_place(expression: &TokenStream) -> bool {
    expression.clone().into_iter().all(|token| match token {
        TokenTree::Ident(_) | TokenTree::Literal(_) => true,
        TokenTree::Punct(punct) => matches!(punct.as_char(), '.' | ':' | '&'),
        TokenTree::Group(group) => group.delimiter() == Delimiter::None && is_place(&group.stream()),
    })
}

/// The value of a field. A string literal is not copied.
fn value(expression: &TokenStream, runtime: &TokenStream) -> TokenStream {
    match syn::parse2::<LitStr>(expression.clone()) {
        Ok(text) => quote_spanned!(at(text.span())=> #runtime::__private::Value::Str(#text)),
        Err(_) => expression.clone(),
    }
}

/// A range's name.
pub fn parse_name(input: ParseStream) -> Result<LitStr> {
    match input.parse::<Lit>()? {
        Lit::Str(name) if name.suffix().is_empty() => Ok(name),
        other => Err(Error::new(other.span(), "a range's name is a plain string; write `\"demo.add\"`")),
    }
}

/// Whether the first token is an option instead of a name: `key = …`, `key(…)`, or the bare word of one.
fn starts_with_option(grammar: &Grammar, input: ParseStream) -> bool {
    let ahead = input.fork();
    match ahead.call(Ident::parse_any) {
        Ok(word) => {
            let bare = ahead.is_empty() || ahead.peek(Token![,]);
            let word = word.to_string();
            // Options of `tracing` that are one word; the error says that there are none.
            let is_of_tracing = matches!(word.as_str(), "ret" | "skip_all");
            let known = is_of_tracing || Key::named(&word).is_some_and(|key| grammar.takes(key));
            ahead.peek(Token![=]) || ahead.peek(syn::token::Paren) || (bare && known)
        }
        Err(_) => false,
    }
}

/// A reference to the user's expression; a type error points there, not at the macro.
fn reference(expression: &TokenStream) -> TokenStream {
    quote_spanned!(at(start_of(expression))=> &(#expression))
}

fn start_of(tokens: &TokenStream) -> Span {
    tokens.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span())
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn an_expression_runs_no_code_if_it_is_made_of_names_literals_and_fields() {
        for place in [quote!(4), quote!("text"), quote!(n), quote!(self.n), quote!(&batch.rows), quote!(sizes::ROWS)] {
            assert!(is_place(&place), "{place}");
        }
        for code in [quote!(n()), quote!(rows[0]), quote!((n)), quote!(a + b), quote!(*n), quote!(-4), quote!(log!(n))]
        {
            assert!(!is_place(&code), "{code}");
        }
        // As an expression comes from a macro of the user's.
        let inside = |tokens| TokenStream::from(TokenTree::from(proc_macro2::Group::new(Delimiter::None, tokens)));
        assert!(is_place(&inside(quote!(self.n))) && !is_place(&inside(quote!(n()))));
    }
}
