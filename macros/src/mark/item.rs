//! Finds the parts of a marked function that an expansion needs. The header is scanned as tokens and stays unchanged;
//! the body is one opaque token, except for inner attributes at its start.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{Error, Result};

use crate::parameter::{self, Parameter};
use crate::tokens::{at, block_of, doc_text, first_paragraph, is_doc_of_a_macro, is_punct, kept, with_statements};

/// A function as an expansion needs it.
pub struct Function {
    /// Attributes, visibility and signature, as written.
    header: Vec<TokenTree>,
    /// Where its parameters stand.
    parameters_at: usize,
    pub name: Ident,
    pub is_async: bool,
    /// The position of `const`.
    pub constness: Option<Span>,
    /// The return type, if one is written.
    pub output: Option<TokenStream>,
    pub parameters: Vec<Parameter>,
    /// The first paragraph of the doc comment.
    pub description: Option<String>,
    /// Whether a macro produces documentation, which cannot be read here.
    pub is_documented_by_a_macro: bool,
    /// `#![…]` at the start of the body.
    pub inner_attributes: TokenStream,
    /// The body without them.
    pub body: Group,
}

impl Function {
    /// Parses the item under the attribute `macro_name`.
    pub fn parse(macro_name: &str, item: TokenStream) -> Result<Function> {
        let tokens = unwrapped(item);
        let mut scan = Scan { tokens: &tokens, at: 0 };
        let (docs, is_documented_by_a_macro) = scan.docs();
        let Qualifiers { is_async, constness, name } = scan.qualifiers(macro_name)?;
        let parameters = scan.parameters();
        let parameters_at = scan.at.saturating_sub(1);
        let Some(body) = tokens.last().and_then(block_of) else {
            return Err(Error::new(
                name.span(),
                format!(
                    "`{name}` has no body to mark; mark the implementations of a trait's function, and the callers of a foreign one"
                ),
            ));
        };
        let signature_end = tokens.len() - 1;
        let output = scan.output(signature_end);
        let (inner_attributes, body) = split_inner_attributes(&body);
        Ok(Function {
            header: tokens[..signature_end].to_vec(),
            parameters_at,
            name,
            is_async,
            constness,
            output,
            parameters: parameters.map(parameter::split).unwrap_or_default(),
            description: first_paragraph(&docs),
            is_documented_by_a_macro,
            inner_attributes,
            body,
        })
    }

    /// Gives each parameter a name.
    pub fn name_parameters(&mut self) {
        if let Some(TokenTree::Group(parameters)) = self.header.get_mut(self.parameters_at) {
            *parameters = parameter::with_names(parameters);
            self.parameters = parameter::split(parameters);
        }
    }

    /// The names that the parameters bind, each with the `#[cfg(…)]` before its parameter.
    fn bindings(&self) -> impl Iterator<Item = (&Ident, &TokenStream)> {
        self.parameters
            .iter()
            .flat_map(|parameter| parameter.bindings.iter().map(|binding| (binding, &parameter.conditions)))
    }

    /// The parameter named `stream`, and the `#[cfg(…)]` before it.
    pub fn stream(&self) -> Option<(&Ident, &TokenStream)> {
        self.bindings().find(|(binding, _)| *binding == "stream" || *binding == "r#stream")
    }

    /// The function without its zone. Its parameters count as used, because a corrected mark may use them.
    pub fn unmarked(&self) -> TokenStream {
        let body = kept(&self.body);
        let mixed = at(Span::call_site());
        let used = self.bindings().map(|(binding, conditions)| quote_spanned!(mixed=> #conditions let _ = &#binding;));
        self.with_body(quote_spanned!(mixed=> #(#used)* #body))
    }

    /// The function with another body. The compiler lints an item as the user's only if its last token has the user's
    /// span.
    pub fn with_body(&self, statements: TokenStream) -> TokenStream {
        let Function { header, inner_attributes, .. } = self;
        let body = with_statements(&self.body, quote!(#inner_attributes #statements));
        quote!(#(#header)* #body)
    }
}

/// The tokens of the item, also where `macro_rules` passed it as one fragment.
fn unwrapped(item: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => unwrapped(group.stream()),
        _ => tokens,
    }
}

/// The tokens before the parameters.
struct Qualifiers {
    is_async: bool,
    constness: Option<Span>,
    name: Ident,
}

struct Scan<'a> {
    tokens: &'a [TokenTree],
    at: usize,
}

impl<'a> Scan<'a> {
    fn next(&mut self) -> Option<&'a TokenTree> {
        let token = self.tokens.get(self.at);
        self.at += 1;
        token
    }

    /// Steps over the attributes and keeps the text of the doc comments; true if a macro produces some of it.
    fn docs(&mut self) -> (Vec<String>, bool) {
        let (mut docs, mut by_a_macro) = (Vec::new(), false);
        while is_punct(self.tokens.get(self.at), '#') {
            if let Some(TokenTree::Group(attribute)) = self.tokens.get(self.at + 1) {
                docs.extend(doc_text(attribute));
                by_a_macro |= is_doc_of_a_macro(attribute);
            }
            self.at += 2;
        }
        (docs, by_a_macro)
    }

    /// Steps over everything up to the function's name.
    fn qualifiers(&mut self, macro_name: &str) -> Result<Qualifiers> {
        let (mut is_async, mut constness, mut is_extern) = (false, None, false);
        let start = self.tokens.get(self.at).map_or_else(Span::call_site, TokenTree::span);
        while let Some(token) = self.next() {
            match token {
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "fn" => break,
                    "async" => is_async = true,
                    "const" => constness = Some(word.span()),
                    "extern" => is_extern = true,
                    "pub" | "crate" | "default" | "unsafe" | "safe" => {}
                    "impl" | "trait" | "mod" => {
                        let text =
                            format!("`#[{macro_name}]` marks a function; mark the functions in this `{word}` instead");
                        return Err(Error::new(word.span(), text));
                    }
                    _ => return Err(not_a_function(macro_name, word.span())),
                },
                // The ABI; the module of `pub(in …)`; a visibility fragment of `macro_rules`.
                TokenTree::Literal(_) => {}
                TokenTree::Group(group) if group.delimiter() != Delimiter::Brace => {}
                TokenTree::Group(group) if is_extern => {
                    let text = "functions of an `extern` block have no body to mark; mark the functions that call them";
                    return Err(Error::new(group.span_open(), text));
                }
                other => return Err(not_a_function(macro_name, other.span())),
            }
        }
        match self.next() {
            Some(TokenTree::Ident(name)) => Ok(Qualifiers { is_async, constness, name: name.clone() }),
            _ => Err(not_a_function(macro_name, start)),
        }
    }

    /// Steps over generics and parameters; these are the parameters.
    fn parameters(&mut self) -> Option<&'a Group> {
        let mut angles = 0_usize;
        let mut after_minus = false;
        while let Some(token) = self.next() {
            match token {
                TokenTree::Group(group) if angles == 0 && group.delimiter() == Delimiter::Parenthesis => {
                    return Some(group);
                }
                TokenTree::Punct(punct) if punct.as_char() == '<' => angles += 1,
                // Not the arrow of `F: Fn(A) -> B`.
                TokenTree::Punct(punct) if punct.as_char() == '>' && !after_minus => angles = angles.saturating_sub(1),
                _ => {}
            }
            after_minus = is_punct(Some(token), '-');
        }
        None
    }

    /// The return type between the parameters and `where` or the body.
    fn output(&self, end: usize) -> Option<TokenStream> {
        let rest = self.tokens.get(self.at..end)?;
        if !is_punct(rest.first(), '-') {
            return None;
        }
        let rest = rest.get(2..)?.iter();
        Some(rest.take_while(|token| !matches!(token, TokenTree::Ident(word) if word == "where")).cloned().collect())
    }
}

fn not_a_function(macro_name: &str, span: Span) -> Error {
    Error::new(
        span,
        format!("`#[{macro_name}]` marks a function; for a part of one write `warpline::block::{macro_name}!(…)`"),
    )
}

/// Moves `#![…]` out of the body: it has to stay at the start of the function, before what the expansion puts there.
fn split_inner_attributes(body: &Group) -> (TokenStream, Group) {
    let mut tokens = body.stream().into_iter().peekable();
    if !is_punct(tokens.peek(), '#') {
        return (TokenStream::new(), body.clone());
    }
    let tokens: Vec<TokenTree> = tokens.collect();
    let mut end = 0;
    while is_punct(tokens.get(end), '#') && is_punct(tokens.get(end + 1), '!') {
        end += 3;
    }
    let (inner, rest) = tokens.split_at(end.min(tokens.len()));
    (inner.iter().cloned().collect(), with_statements(body, rest.iter().cloned().collect()))
}
