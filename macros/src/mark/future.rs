//! Functions that return a future without being `async fn`: methods as `#[async_trait]` rewrites them, and `-> impl Future`.
//!
//! Their zone belongs in the `async` block at the end of the body. The body is scanned as tokens for that block; the tokens before
//! it stay unchanged.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tokens::{is_punct, visible, with_statements};

/// The `async` block that a body ends with: `async move { … }` or `Box::pin(async move { … })`, also after `return`, and with
/// `.boxed()` after it.
pub struct Tail {
    tokens: Vec<TokenTree>,
    /// Where the last statement or expression begins.
    first: usize,
    /// Where the block stands, or the parentheses of `Box::pin` around it.
    at: usize,
    /// The block's position in the parentheses.
    inner: Option<usize>,
    block: Group,
}

impl Tail {
    pub fn find(body: &Group) -> Option<Tail> {
        let tokens = visible(body.stream());
        let mut end = tokens.len();
        let is_statement = is_punct(tokens.last(), ';');
        if is_statement {
            end -= 1;
        }
        if let [.., dot, TokenTree::Ident(method), TokenTree::Group(_)] = tokens.get(..end)?
            && is_punct(Some(dot), '.')
            && (method == "boxed" || method == "boxed_local")
        {
            end -= 3;
        }
        let last = tokens.get(..end)?;
        let (start, inner, block) = match async_block(last) {
            Some((start, block)) => (start, None, block),
            None => {
                let (start, arguments) = box_pin(last)?;
                let mut arguments = visible(arguments.stream());
                if is_punct(arguments.last(), ',') {
                    arguments.pop();
                }
                let (first, block) = async_block(&arguments)?;
                (first == 0).then_some((start, Some(arguments.len() - 1), block))?
            }
        };
        let before = start.checked_sub(1).and_then(|before| tokens.get(before));
        let is_returned = matches!(before, Some(TokenTree::Ident(word)) if word == "return");
        let is_first = match before {
            None => true,
            Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
            before => is_punct(before, ';'),
        };
        let first = if is_returned { start - 1 } else { start };
        (is_returned || (is_first && !is_statement)).then_some(Tail { tokens, first, at: end - 1, inner, block })
    }

    /// The body of the block.
    pub fn block(&self) -> &Group {
        &self.block
    }

    /// The function's body with other statements in the block, and a statement before the one with the block.
    pub fn with(self, statements: TokenStream, before: TokenStream) -> TokenStream {
        let block = with_statements(&self.block, statements);
        let Tail { mut tokens, first, at, inner, .. } = self;
        if let Some(TokenTree::Group(group)) = tokens.get_mut(at) {
            *group = match inner {
                None => block,
                Some(inner) => {
                    let mut arguments = visible(group.stream());
                    arguments.truncate(inner);
                    arguments.push(block.into());
                    let mut around = Group::new(group.delimiter(), arguments.into_iter().collect());
                    around.set_span(group.span());
                    around
                }
            };
        }
        tokens.splice(first..first, before);
        tokens.into_iter().collect()
    }
}

/// The `async` block at the end of the tokens, and where it begins.
fn async_block(tokens: &[TokenTree]) -> Option<(usize, Group)> {
    let is = |token: &TokenTree, word| matches!(token, TokenTree::Ident(ident) if ident == word);
    let (block, before) = match tokens {
        [before @ .., TokenTree::Group(block)] if block.delimiter() == Delimiter::Brace => (block, before),
        _ => return None,
    };
    match before {
        [.., first, second] if is(second, "move") && is(first, "async") => Some((before.len() - 2, block.clone())),
        [.., only] if is(only, "async") => Some((before.len() - 1, block.clone())),
        _ => None,
    }
}

/// The arguments of the call of `Box::pin` at the end of the tokens, and where its path begins.
fn box_pin(tokens: &[TokenTree]) -> Option<(usize, &Group)> {
    let [.., TokenTree::Ident(of), first, second, TokenTree::Ident(pin), TokenTree::Group(arguments)] = tokens else {
        return None;
    };
    let is_sep = |at: usize| is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':');
    if of != "Box" || pin != "pin" || !is_punct(Some(first), ':') || !is_punct(Some(second), ':') {
        return None;
    }
    let mut start = tokens.len() - 5;
    while start >= 2 && is_sep(start - 2) {
        start -= 2;
        if let Some(TokenTree::Ident(_)) = start.checked_sub(1).and_then(|before| tokens.get(before)) {
            start -= 1;
        }
    }
    (arguments.delimiter() == Delimiter::Parenthesis).then_some((start, arguments))
}

/// Whether a return type is that of a future, as far as its tokens say.
pub fn is_future(output: &TokenStream) -> bool {
    let tokens = visible(output.clone());
    let mut angles = 0_usize;
    let outermost: Vec<String> = tokens
        .iter()
        .enumerate()
        .filter_map(|(i, token)| {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '<' => angles += 1,
                TokenTree::Punct(punct) if punct.as_char() == '>' && !is_punct(tokens.get(i.wrapping_sub(1)), '-') => {
                    angles = angles.saturating_sub(1);
                }
                TokenTree::Ident(word) if angles == 0 => return Some(word.to_string()),
                _ => {}
            }
            None
        })
        .collect();
    let has = |word: &str| tokens.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == word));
    match outermost.first().map(String::as_str) {
        Some("impl") => outermost.iter().any(|word| word == "Future"),
        Some(_) => match outermost.last().map(String::as_str) {
            Some("BoxFuture" | "LocalBoxFuture") => true,
            Some("Pin") => has("dyn") && has("Future"),
            _ => false,
        },
        None => false,
    }
}

/// The output type of the future in a return type: the type after `Output =`.
pub fn output(output: &TokenStream) -> Option<TokenStream> {
    let tokens = visible(output.clone());
    let at = tokens.iter().position(|token| matches!(token, TokenTree::Ident(word) if word == "Output"))?;
    if !is_punct(tokens.get(at + 1), '=') {
        return None;
    }
    let mut angles = 0_usize;
    let mut found = TokenStream::new();
    for (i, token) in tokens.iter().enumerate().skip(at + 2) {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => angles += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_punct(tokens.get(i - 1), '-') => {
                if angles == 0 {
                    break;
                }
                angles -= 1;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' && angles == 0 => break,
            _ => {}
        }
        found.extend([token.clone()]);
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn block_of(body: TokenStream) -> Option<String> {
        Tail::find(&Group::new(Delimiter::Brace, body)).map(|tail| tail.block().stream().to_string())
    }

    #[test]
    fn the_block_at_the_end_is_found() {
        for body in [
            quote!(async { a }),
            quote!(async move { a }),
            quote!(let b = 1; async move { a }),
            quote!(if b { return c(); } async move { a }),
            quote!(Box::pin(async move { a })),
            quote!(::std::boxed::Box::pin(async move { a },)),
            quote!(f(); std::boxed::Box::pin(async { a })),
            quote!(return Box::pin(async move { a });),
            quote!(async move { a }.boxed()),
        ] {
            assert_eq!(block_of(body.clone()).as_deref(), Some("a"), "{body}");
        }
        for body in [
            quote!(),
            quote!(f()),
            quote!(let f = async move { a };),
            quote!(f(async move { a })),
            quote!(wrap(Box::pin(async move { a }))),
            quote!(Box::pin(f(async move { a }))),
            quote!(Box::new(async move { a })),
            quote!(f(|| async move { a })),
            quote!(|| async move { a }),
            quote!(async move { a }.map(b)),
            quote!({ a }),
        ] {
            assert_eq!(block_of(body.clone()), None, "{body}");
        }
    }

    #[test]
    fn other_statements_take_the_place_of_the_block() {
        for (body, expected) in [
            (quote!(f(); async move { a }), quote!(f(); async move { b })),
            (quote!(Box::pin(async move { a })), quote!(Box::pin(async move { b }))),
            (quote!(async { a }.boxed()), quote!(async { b }.boxed())),
        ] {
            let tail = Tail::find(&Group::new(Delimiter::Brace, body));
            assert_eq!(
                tail.map(|tail| tail.with(quote!(b), TokenStream::new()).to_string()),
                Some(expected.to_string())
            );
        }
        for (body, expected) in [
            (quote!(f(); async move { a }), quote!(f(); s; async move { b })),
            (quote!(f(); return Box::pin(async move { a });), quote!(f(); s; return Box::pin(async move { b });)),
            (quote!(std::boxed::Box::pin(async { a }.boxed())), quote!()),
        ] {
            let tail = Tail::find(&Group::new(Delimiter::Brace, body));
            let with = tail.map(|tail| tail.with(quote!(b), quote!(s;)).to_string());
            assert_eq!(with.unwrap_or_default(), expected.to_string());
        }
    }

    #[test]
    fn a_type_of_a_future_is_told() {
        for (tokens, expected) in [
            (quote!(impl Future<Output = Result<u32, Error>> + Send + 'a), Some("Result < u32 , Error >")),
            (quote!(impl ::core::future::Future<Output = ()>), Some("()")),
            (quote!(Pin<Box<dyn Future<Output = fn() -> u32> + Send + 'a>>), Some("fn () -> u32")),
            (quote!(::core::pin::Pin<Box<dyn Future<Output = u32>>>), Some("u32")),
            (quote!(BoxFuture<'a, u32>), None),
        ] {
            assert!(is_future(&tokens), "{tokens}");
            assert_eq!(output(&tokens).map(|output| output.to_string()).as_deref(), expected, "{tokens}");
        }
        for tokens in [
            quote!(u32),
            quote!(impl Iterator<Item = impl Future>),
            quote!(Vec<BoxFuture<'a, u32>>),
            quote!(Pin<Box<u32>>),
        ] {
            assert!(!is_future(&tokens), "{tokens}");
        }
    }
}
