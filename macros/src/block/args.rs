//! Parses the arguments of `block::gpu_zone!(…)` and `block::host_zone!(…)`.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{End, Error, ParseStream, Parser, Result};
use syn::{Token, token};

use super::On;
use crate::key::Key;
use crate::options::{Grammar, Kind, Options};
use crate::tokens::{block_of, doc_text, first_paragraph, is_doc_of_a_macro, take_expression, take_value};
use crate::zone::Range;

/// The arguments of a block.
pub struct Args {
    pub range: Range,
    /// The first paragraph of a doc comment before the name.
    pub docs: Option<String>,
    pub options: Options,
    /// `async` or `async move` before the body, whose value is then a future.
    pub asyncness: TokenStream,
    pub body: Group,
}

impl Args {
    pub fn parse(grammar: &Grammar, on: On, input: TokenStream) -> Result<Args> {
        let usage = match on {
            On::Stream => "gpu_zone!(\"demo.add\", stream, description = \"…\", { … })",
            On::Ranks => "collective!(\"demo.sync\", stream, kind = \"all_reduce\", …, description = \"…\", { … })",
            On::Thread => "host_zone!(\"demo.add\", description = \"…\", { … })",
        };
        (|input: ParseStream| Args::from_input(grammar, on, usage, input)).parse2(input)
    }

    fn from_input(grammar: &Grammar, on: On, usage: &str, input: ParseStream) -> Result<Args> {
        let docs = docs(input)?;
        let Some(range) = Range::parse(grammar, input)? else {
            return Err(input.error(format!("a block needs its name as the first argument; write `{usage}`")));
        };
        comma(input, usage)?;
        let mut options = Options::default();
        options.kind = match on {
            On::Stream => Kind::Gpu,
            On::Thread => Kind::Host,
            On::Ranks => Kind::Collective,
        };
        if on != On::Thread {
            let start = input.span();
            let is_option = starts_with_option(input);
            let stream = take_value(input)?;
            if is_option || input.is_empty() {
                return Err(Error::new(
                    start,
                    format!("a GPU block needs its stream as the second argument; write `{usage}`"),
                ));
            }
            options.stream = Some(stream);
            comma(input, usage)?;
        }
        while !is_body(input) {
            if input.is_empty() {
                return Err(input.error(format!("a block needs its body as the last argument; write `{usage}`")));
            }
            if is_bare_body(input) {
                return Err(input.error(format!("the body of a block must be in braces; write `{usage}`")));
            }
            options.parse_one(grammar, input)?;
            comma(input, usage)?;
        }
        let mut asyncness = TokenStream::new();
        while !input.peek(token::Brace) {
            asyncness.extend([input.parse::<TokenTree>()?]);
        }
        let body: TokenTree = input.parse()?;
        let Some(body) = block_of(&body) else {
            return Err(Error::new(
                body.span(),
                format!("a block needs its body as the last argument; write `{usage}`"),
            ));
        };
        input.parse::<Option<Token![,]>>()?;
        if !input.is_empty() {
            return Err(input
                .error(format!("the body is the last argument of a block; write the options before it: `{usage}`")));
        }
        range.refuse_facts(&options)?;
        Ok(Args { range, docs, options, asyncness, body })
    }
}

/// Whether the body comes next: `{ … }`, `async { … }` or `async move { … }`.
fn is_body(input: ParseStream) -> bool {
    input.peek(token::Brace)
        || input.peek(Token![async])
            && (input.peek2(token::Brace) || input.peek2(Token![move]) && input.peek3(token::Brace))
}

/// Whether the last argument comes next and is no option: a body without its braces.
fn is_bare_body(input: ParseStream) -> bool {
    let ahead = input.fork();
    let is_option = ahead.call(Ident::parse_any).is_ok() && (ahead.peek(Token![=]) && !ahead.peek(Token![==]));
    let is_known = input.fork().call(Ident::parse_any).is_ok_and(|word| Key::named(&word.to_string()).is_some());
    let ahead = input.fork();
    let is_last = take_expression(&ahead).is_ok() && (ahead.is_empty() || ahead.peek(Token![,]) && ahead.peek2(End));
    !is_option && !is_known && is_last
}

fn starts_with_option(input: ParseStream) -> bool {
    let ahead = input.fork();
    match ahead.parse::<Ident>() {
        Ok(word) => Key::named(&word.to_string()).is_some() && (ahead.peek(Token![=]) || ahead.peek(token::Paren)),
        Err(_) => false,
    }
}

fn comma(input: ParseStream, usage: &str) -> Result<()> {
    match input.parse::<Token![,]>() {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::new(error.span(), format!("expected `,`; write `{usage}`"))),
    }
}

/// The doc comment before the name.
fn docs(input: ParseStream) -> Result<Option<String>> {
    let mut docs = Vec::new();
    while input.peek(Token![#]) {
        input.parse::<Token![#]>()?;
        let attribute: Group = input.parse()?;
        let text = doc_text(&attribute);
        let wrong = match is_doc_of_a_macro(&attribute) {
            true => "a block cannot read documentation from a macro; write `description = \"…\"` after the name",
            false => "a block accepts doc comments and no other attributes",
        };
        docs.push(text.ok_or_else(|| Error::new(attribute.span(), wrong))?);
    }
    Ok(first_paragraph(&docs))
}
