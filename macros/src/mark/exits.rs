//! Finds the places where a body leaves its function, `return` and `?`, so that the zone of a mark with `err` sees the value there.
//!
//! The body is scanned as tokens. What is in closures, `async` blocks and functions of its own leaves those and stays unchanged. A macro
//! that is not known may leave the function too; a body with one is not rewritten, and the mark runs it in a closure.

use proc_macro2::{Delimiter, Group, Ident, Spacing, Span, TokenStream, TokenTree};
use quote::quote_spanned;

use crate::tokens::{BEFORE_OPERAND, at, ends_item, exit, expression_end, is_block, is_path_sep, is_punct};

/// Macros that contain no exit of their own, only those in their arguments: macros of the standard library, `log`, `tracing` and async
/// runtimes.
const VALUES: [&str; 41] = [
    "anyhow",
    "assert_eq",
    "assert_ne",
    "cfg",
    "column",
    "concat",
    "debug",
    "debug_assert_eq",
    "debug_assert_ne",
    "env",
    "eprint",
    "eprintln",
    "error",
    "event",
    "eyre",
    "file",
    "format",
    "format_args",
    "include_bytes",
    "include_str",
    "info",
    "join",
    "json",
    "line",
    "log",
    "matches",
    "module_path",
    "panic",
    "pin",
    "print",
    "println",
    "select",
    "span",
    "todo",
    "trace",
    "unimplemented",
    "unreachable",
    "vec",
    "warn",
    "write",
    "writeln",
];

/// Macros that print the tokens of their arguments. The arguments are therefore not rewritten.
const TEXTS: [&str; 4] = ["assert", "debug_assert", "dbg", "stringify"];

/// What the exits of a body need.
pub struct Exits<'a> {
    /// The path of warpline.
    pub runtime: &'a TokenStream,
    /// The return type.
    pub output: &'a TokenStream,
}

impl Exits<'_> {
    /// The body with each exit seen by `__warpline_exits`, if all of them can be found.
    pub fn seen(&self, body: &Group) -> Option<Group> {
        let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
        let mut seen = Group::new(body.delimiter(), self.tokens(&tokens)?);
        seen.set_span(body.span());
        Some(seen)
    }

    /// The tokens of one group, with the exits in them and in the groups inside.
    fn tokens(&self, tokens: &[TokenTree]) -> Option<TokenStream> {
        let mut out = TokenStream::new();
        let mut after_operand = false;
        let mut i = 0;
        while let Some(token) = tokens.get(i) {
            // How many tokens this turn takes, and what stands in their place.
            let (taken, replaced) = match token {
                TokenTree::Group(group) => (1, Some(TokenTree::from(self.seen(group)?).into())),
                TokenTree::Ident(word) => {
                    // The rest of a path that begins with `::`.
                    let is_absolute = i >= 2 && is_path_sep(tokens, i - 2);
                    self.word(word, is_absolute, tokens.get(i..)?)?
                }
                TokenTree::Punct(punct) => match punct.as_char() {
                    '?' if after_operand => (1, Some(tried(punct.span(), token))),
                    // `None::<T>?`
                    '?' if is_punct(before(tokens, i), '>') => return None,
                    '|' if !after_operand => (closure(tokens.get(i..)?)?, None),
                    // The two of `||` are one operator.
                    '|' if punct.spacing() == Spacing::Joint && is_punct(tokens.get(i + 1), '|') => (2, None),
                    // An attribute.
                    '#' if is_punct(tokens.get(i + 1), '!') => (3, None),
                    '#' => (2, None),
                    // A label, or a lifetime.
                    '\'' => (2, None),
                    _ => (1, None),
                },
                TokenTree::Literal(_) => (1, None),
            };
            let original = tokens.get(i..i + taken)?;
            after_operand = match token {
                TokenTree::Punct(punct) => match punct.as_char() {
                    '?' => after_operand,
                    // A closure is an operand, and `|` and `||` behind one are operators.
                    '|' => taken > 1 && !after_operand,
                    _ => false,
                },
                TokenTree::Ident(word) => taken > 1 || !BEFORE_OPERAND.iter().any(|before| word == before),
                TokenTree::Group(_) | TokenTree::Literal(_) => true,
            };
            match replaced {
                Some(replaced) => out.extend(replaced),
                None => out.extend(original.iter().cloned()),
            }
            i += taken;
        }
        Some(out)
    }

    /// What begins with a word: `return`, a body of its own, a macro.
    fn word(&self, word: &Ident, is_absolute: bool, tokens: &[TokenTree]) -> Option<(usize, Option<TokenStream>)> {
        let text = word.to_string();
        let behind = tokens.get(1..)?;
        match text.as_str() {
            "return" => {
                let end = expression_end(behind);
                let value = self.tokens(behind.get(..end)?)?;
                // Without a value it is an error, which the compiler explains.
                let value = (end > 0).then(|| self.returned(&value, word.span()));
                Some((
                    1 + end,
                    Some([TokenTree::from(word.clone())].into_iter().chain(value.into_iter().flatten()).collect()),
                ))
            }
            "try" | "yield" | "become" | "macro" | "macro_rules" => None,
            _ if begins_a_body(&text, behind) => Some((behind.iter().position(ends_item)? + 2, None)),
            _ if BEFORE_OPERAND.contains(&text.as_str()) => Some((1, None)),
            _ => match macro_call(tokens) {
                Some((name, ..)) if is_absolute && (name == "bail" || name == "ensure") => None,
                Some((name, arguments, taken)) => {
                    Some((taken, Some(self.call(&name.to_string(), arguments, tokens.get(..taken)?)?)))
                }
                None => Some((1, None)),
            },
        }
    }

    /// A call of a macro, whose name is the last segment of the path before it.
    fn call(&self, name: &str, arguments: &Group, tokens: &[TokenTree]) -> Option<TokenStream> {
        let call: TokenStream = tokens.iter().cloned().collect();
        if VALUES.contains(&name) || name.ends_with("_span") {
            let arguments = TokenTree::from(self.seen(arguments)?);
            return Some(call.into_iter().take(tokens.len() - 1).chain([arguments]).collect());
        }
        // The arguments of these stay as they are.
        if exit(&arguments.stream()).is_some() {
            return None;
        }
        let (mixed, output, runtime) = (at(arguments.span()), self.output, self.runtime);
        match name {
            name if TEXTS.contains(&name) => Some(call),
            _ if arguments.delimiter() != Delimiter::Parenthesis => None,
            // It always leaves, so nothing behind it needs what the closure takes.
            "bail" => {
                let value = self.returned(&quote_spanned!(mixed=> (|| -> #output { #call })()), arguments.span());
                Some(quote_spanned!(mixed=> return #value))
            }
            "ensure" if moves_nothing(arguments) => Some(quote_spanned! {mixed=>
                (|| -> #runtime::__private::Check<#output> { #call; ::core::result::Result::Ok(()) })()
                    .__warpline_tried(&mut __warpline_exits)?
            }),
            _ => None,
        }
    }

    /// The value behind `return`, which the zone sees before it leaves.
    fn returned(&self, value: &TokenStream, span: Span) -> TokenStream {
        let runtime = self.runtime;
        quote_spanned!(at(span)=> #runtime::__private::returned(#value, &mut __warpline_exits))
    }
}

/// `?` behind the conversion of the error, which the zone sees. The call has the user's span: where a conversion asks for the location of its
/// caller, it is that of the `?`.
fn tried(span: Span, question: &TokenTree) -> TokenStream {
    let exits = Ident::new("__warpline_exits", at(span));
    quote_spanned!(span=> .__warpline_tried(&mut #exits) #question)
}

/// Whether the word begins a body of its own: `async { … }` and a function, not a type `fn(…)`.
fn begins_a_body(word: &str, behind: &[TokenTree]) -> bool {
    match (word, behind) {
        ("async", [TokenTree::Ident(moved), block, ..]) if moved == "move" => is_block(Some(block)),
        ("async", [block, ..]) => is_block(Some(block)),
        ("fn", [name, ..]) => matches!(name, TokenTree::Ident(_)),
        _ => false,
    }
}

/// The number of tokens of the closure that the tokens begin with. None where they may be the arm of a `match`, `| A | B => …`.
fn closure(tokens: &[TokenTree]) -> Option<usize> {
    let parameters = tokens.get(1..)?.iter().position(|token| is_punct(Some(token), '|'))? + 2;
    let behind = tokens.get(parameters..)?;
    // A closure with a return type has a block.
    let end = parameters
        + match is_punct(behind.first(), '-') && is_punct(behind.get(1), '>') {
            true => behind.iter().position(|token| is_block(Some(token)))? + 1,
            false => expression_end(behind),
        };
    let of_statement = tokens.get(..parameters)?.iter().any(|token| is_punct(Some(token), ';'));
    let of_arm = tokens.get(..end)?.windows(2).any(|pair| is_punct(pair.first(), '=') && is_punct(pair.get(1), '>'));
    (!of_statement && !of_arm).then_some(end)
}

/// The macro call that the tokens begin with: the last segment of its path, its arguments and the number of its tokens.
fn macro_call(tokens: &[TokenTree]) -> Option<(&Ident, &Group, usize)> {
    let mut i = 0;
    while is_path_sep(tokens, i + 1) {
        i += 3;
    }
    match tokens.get(i..)? {
        [TokenTree::Ident(name), bang, TokenTree::Group(arguments), ..] if is_punct(Some(bang), '!') => {
            Some((name, arguments, i + 3))
        }
        _ => None,
    }
}

/// Whether the arguments of `ensure!` behind the condition are a text and names: what they move would be moved where nothing fails, too.
fn moves_nothing(arguments: &Group) -> bool {
    let tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
    let rest = tokens.get(expression_end(&tokens)..).unwrap_or_default();
    rest.get(1).is_none_or(|first| matches!(first, TokenTree::Literal(_)))
        && !rest.iter().any(|token| matches!(token, TokenTree::Group(_)))
}

fn before(tokens: &[TokenTree], i: usize) -> Option<&TokenTree> {
    i.checked_sub(1).and_then(|before| tokens.get(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    /// The body as it is written, with its exits in short: `return R(value)` and `.T?`.
    fn seen(source: &str) -> Option<String> {
        let (runtime, output) = (quote!(w), quote!(Out));
        let body = Group::new(Delimiter::Brace, source.parse().expect(source));
        let seen = Exits { runtime: &runtime, output: &output }.seen(&body)?;
        Some(without_spaces(&seen.stream().to_string()))
    }

    fn without_spaces(text: &str) -> String {
        let text: String = text.split_whitespace().collect();
        text.replace("w::__private::returned(", "R(")
            .replace(",&mut__warpline_exits)", ")")
            .replace(".__warpline_tried(&mut__warpline_exits)", ".T")
    }

    #[test]
    fn each_exit_is_seen() {
        for (source, expected) in [
            ("f()?; Ok(a?.b?)", "f().T?; Ok(a.T?.b.T?)"),
            ("return f()?;", "return R(f().T?);"),
            ("if !(a) { return Err(b) } Ok(c)", "if !(a) { return R(Err(b)) } Ok(c)"),
            (
                "match a { A | B => return b, C if d? => return e(f, g), _ => {} }",
                "match a { A | B => return R(b), C if d.T? => return R(e(f, g)), _ => {} }",
            ),
            (
                "return if <T as F<A, B>>::C { a } else { b }; c?",
                "return R(if <T as F<A, B>>::C { a } else { b }); c.T?",
            ),
            ("let Some(a) = b.await? else { return Err(c) };", "let Some(a) = b.await.T? else { return R(Err(c)) };"),
            ("let a: Box<dyn Fn(A) -> Result<B, C>> = d?;", "let a: Box<dyn Fn(A) -> Result<B, C>> = d.T?;"),
            ("a?|b?||c?&&d?", "a.T?|b.T?||c.T?&&d.T?"),
            ("'outer: loop { break 'outer a? }", "'outer: loop { break 'outer a.T? }"),
            ("info!(?a, b = ?c, \"{}\", d?)", "info!(?a, b = ?c, \"{}\", d.T?)"),
            (
                "tokio::select! { a = b() => return c, d = e => { f?; } }",
                "tokio::select! { a = b() => return R(c), d = e => { f.T?; } }",
            ),
            ("vec![a?; b?]", "vec![a.T?; b.T?]"),
            (
                "let f: fn(A) -> B = if a { b } else { return c };",
                "let f: fn(A) -> B = if a { b } else { return R(c) };",
            ),
            ("#[cfg(a)] { b? }", "#[cfg(a)] { b.T? }"),
            ("unsafe { a }?; match b { c => d }?", "unsafe { a }.T?; match b { c => d }.T?"),
            ("a != b && c?", "a != b && c.T?"),
            ("return return a", "return R(return R(a))"),
            ("a as u32 | b?", "a as u32 | b.T?"),
        ] {
            assert_eq!(seen(source), Some(without_spaces(expected)), "{source}");
        }
    }

    #[test]
    fn what_leaves_another_body_stays() {
        for source in [
            "a.map(|b| b?).c()",
            "a.map(move |b, c| { return b; })",
            "a.map(|| f::<A, B>()?, d)",
            "a(|b| -> Result<B, C> { return b?; }, d)",
            "let a = |b: &Map<A, B>| c(b)?;",
            "spawn(async move { a?; return b; })",
            "async { a? }",
            "async |a| a?",
            "fn f<T: ?Sized>() -> A { return b?; } c",
            "impl A { fn f(&self) -> B { self.c? } }",
            "assert!(a, \"{b}\"); dbg!(c)",
            "return;",
        ] {
            assert_eq!(seen(source), Some(without_spaces(source)), "{source}");
        }
        // What follows them is of the body.
        for (source, expected) in [
            ("a(|b| b?, c?)", "a(|b| b?, c.T?)"),
            ("let a = |b| b?; c?", "let a = |b| b?; c.T?"),
            ("async { a? }.await?", "async { a? }.await.T?"),
            ("fn f() { a? } b?", "fn f() { a? } b.T?"),
        ] {
            assert_eq!(seen(source), Some(without_spaces(expected)), "{source}");
        }
    }

    #[test]
    fn a_body_whose_exits_may_be_hidden_is_not_rewritten() {
        for source in [
            "try_or_leave!(a)",
            "a::b!(c)",
            "macro_rules! early { ($e:expr) => { return $e } } early!(a)",
            "match a { | A | B => c?, D => e }",
            "match a { 5.. | 0 => b?, _ => c }",
            "let a: u8 = a as Wrapping<u8> | b; c?",
            "N::<A>?",
            "try { a? }",
            "assert!(a?)",
            "dbg!(return a)",
            "ensure!(a, Error::New(b))",
            "ensure!(a, \"{}\", take(b))",
            "bail!(a?)",
            "::anyhow::bail!(a)",
            "bail! { a }",
        ] {
            assert_eq!(seen(source), None, "{source}");
        }
    }

    #[test]
    fn macros_that_leave_with_an_error_are_seen() {
        for (source, expected) in [
            ("if a { bail!(\"{b}\"); }", "if a { return R((|| -> Out { bail!(\"{b}\") })()); }"),
            ("anyhow::bail!(a)", "return R((|| -> Out { anyhow::bail!(a) })())"),
            (
                "ensure!(a < b, \"{} {c}\", d.e);",
                "(|| -> w::__private::Check<Out> { ensure!(a < b, \"{} {c}\", d.e); ::core::result::Result::Ok(()) })().T?;",
            ),
        ] {
            assert_eq!(seen(source), Some(without_spaces(expected)), "{source}");
        }
    }
}
