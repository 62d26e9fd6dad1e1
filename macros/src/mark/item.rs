//! Finds the parts of a marked function that an expansion needs. The header is scanned as tokens and handed on as it is;
//! the body is one token that nobody looks into, but for inner attributes at its start.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::parse::{Error, Result};

use crate::tokens::{at, doc_text, first_paragraph, is_path_sep, is_punct, visible};

/// A function as an expansion needs it.
pub struct Function {
    /// Attributes, visibility and signature, as written.
    pub header: TokenStream,
    pub name: Ident,
    pub is_async: bool,
    /// The return type, if one is written.
    pub output: Option<TokenStream>,
    /// The parameter named `stream`.
    pub stream: Option<Ident>,
    /// The first paragraph of the doc comment.
    pub description: Option<String>,
    /// `#![…]` at the start of the body.
    pub inner_attributes: TokenStream,
    /// The body without them. Its braces belong to the macro: nobody should be told that they are one pair too many.
    pub body: Group,
}

impl Function {
    /// Takes the item under the attribute `macro_name` apart.
    pub fn parse(macro_name: &str, item: TokenStream) -> Result<Function> {
        let tokens = unwrapped(item);
        let mut scan = Scan { tokens: &tokens, at: 0 };
        let docs = scan.docs();
        let Qualifiers { is_async, constness, name } = scan.qualifiers(macro_name)?;
        if let Some(span) = constness {
            return Err(Error::new(
                span,
                "a `const fn` cannot be marked: a zone begins at run time; mark its callers, or take `const` away",
            ));
        }
        let parameters = scan.parameters();
        let Some((body, signature_end)) = body_of(&tokens) else {
            return Err(Error::new(
                name.span(),
                format!("`{name}` has no body to mark; mark its implementations, or give it a default body"),
            ));
        };
        let output = scan.output(signature_end);
        let (inner_attributes, body) = split_inner_attributes(body);
        Ok(Function {
            header: tokens[..signature_end].iter().cloned().collect(),
            name,
            is_async,
            output,
            stream: parameters.and_then(stream_parameter),
            description: first_paragraph(&docs),
            inner_attributes,
            body,
        })
    }
}

/// The tokens of the item, also where `macro_rules` handed it on whole.
fn unwrapped(item: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => unwrapped(group.stream()),
        _ => tokens,
    }
}

/// What stands before the parameters.
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

    /// Steps over the attributes and keeps the text of the doc comments.
    fn docs(&mut self) -> Vec<String> {
        let mut docs = Vec::new();
        while is_punct(self.tokens.get(self.at), '#') {
            if let Some(TokenTree::Group(attribute)) = self.tokens.get(self.at + 1) {
                docs.extend(doc_text(attribute));
            }
            self.at += 2;
        }
        docs
    }

    /// Steps over everything up to the function's name.
    fn qualifiers(&mut self, macro_name: &str) -> Result<Qualifiers> {
        let (mut is_async, mut constness) = (false, None);
        let start = self.tokens.get(self.at).map_or_else(Span::call_site, TokenTree::span);
        while let Some(token) = self.next() {
            match token {
                TokenTree::Ident(word) => match word.to_string().as_str() {
                    "fn" => break,
                    "async" => is_async = true,
                    "const" => constness = Some(word.span()),
                    "pub" | "crate" | "default" | "unsafe" | "safe" | "extern" => {}
                    _ => return Err(not_a_function(macro_name, word.span())),
                },
                // The ABI; the module of `pub(in …)`; a visibility that `macro_rules` handed on.
                TokenTree::Literal(_) => {}
                TokenTree::Group(group) if group.delimiter() != Delimiter::Brace => {}
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

/// The body and the length of what stands before it; nothing for a function that ends in `;`.
fn body_of(tokens: &[TokenTree]) -> Option<(&Group, usize)> {
    fn braces(token: &TokenTree) -> Option<Group> {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.clone()),
            _ => None,
        }
    }
    match tokens.last()? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            // `$body:block` of a `macro_rules`.
            let inner = visible(group.stream());
            (inner.len() == 1 && inner.first().and_then(braces).is_some()).then_some((group, tokens.len() - 1))
        }
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some((group, tokens.len() - 1)),
        _ => None,
    }
}

/// Moves `#![…]` out of the body: it has to stay at the start of the function, before what the expansion puts there.
fn split_inner_attributes(body: &Group) -> (TokenStream, Group) {
    let mut tokens = body.stream().into_iter().peekable();
    if !is_punct(tokens.peek(), '#') {
        let mut body = body.clone();
        body.set_span(at(body.span()));
        return (TokenStream::new(), body);
    }
    let tokens: Vec<TokenTree> = tokens.collect();
    let mut end = 0;
    while is_punct(tokens.get(end), '#') && is_punct(tokens.get(end + 1), '!') {
        end += 3;
    }
    let (inner, rest) = tokens.split_at(end.min(tokens.len()));
    let mut rest = Group::new(body.delimiter(), rest.iter().cloned().collect());
    rest.set_span(at(body.span()));
    (inner.iter().cloned().collect(), rest)
}

/// The parameter `stream: …` or `mut stream: …`.
fn stream_parameter(parameters: &Group) -> Option<Ident> {
    let tokens = visible(parameters.stream());
    tokens.iter().enumerate().find_map(|(i, token)| match token {
        TokenTree::Ident(ident) if ident == "stream" => {
            let next = tokens.get(i + 1);
            let begins = match i.checked_sub(1).and_then(|before| tokens.get(before)) {
                None | Some(TokenTree::Group(_)) => true,
                Some(TokenTree::Ident(word)) => word == "mut",
                before => is_punct(before, ','),
            };
            (begins && is_punct(next, ':') && !is_path_sep(next)).then(|| ident.clone())
        }
        _ => None,
    })
}
