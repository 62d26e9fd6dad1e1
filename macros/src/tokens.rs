//! Raw tokens: finds the end of an expression, reads doc comments, looks through invisible groups.
//!
//! Every macro calls it. It never parses what it can pass on unchanged.

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};
use syn::LitStr;
use syn::parse::{Error, ParseStream, Result};

/// The position of `span` with the names of the macro: what is emitted there points at the user's code, sees none of the
/// user's variables and is not linted as if the user had written it.
pub fn at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// The user's block as an expression of the macro. Its braces keep their span, which has the edition by which temporaries drop. The
/// parentheses have the macro's span, so that the compiler does not lint the braces as unnecessary.
pub fn kept(block: &Group) -> TokenTree {
    let mut parentheses = Group::new(Delimiter::Parenthesis, TokenTree::from(block.clone()).into());
    parentheses.set_span(at(block.span()));
    parentheses.into()
}

/// A block with these braces and other statements.
pub fn with_statements(block: &Group, statements: TokenStream) -> Group {
    let mut changed = Group::new(Delimiter::Brace, statements);
    changed.set_span(block.span());
    changed
}

/// Takes the tokens of an expression: all up to the next comma that is not inside generic arguments or the parameters of
/// a closure. The compiler parses them in the expansion.
pub fn take_expression(input: ParseStream) -> Result<TokenStream> {
    let mut end = ExpressionEnd::default();
    let mut taken = TokenStream::new();
    while !input.is_empty() {
        let fork = input.fork();
        let token: TokenTree = fork.parse()?;
        let next = fork.cursor().punct().map(|(punct, _)| punct.as_char());
        if end.is_before(&token, next) {
            break;
        }
        taken.extend([input.parse::<TokenTree>()?]);
    }
    Ok(taken)
}

/// The number of tokens of the expression that the tokens of a body begin with: all up to its comma or the end of its statement.
pub fn expression_end(tokens: &[TokenTree]) -> usize {
    let mut end = ExpressionEnd::default();
    let ends = |(i, token): (usize, &TokenTree)| {
        let next = match tokens.get(i + 1) {
            Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
            _ => None,
        };
        is_punct(Some(token), ';') || end.is_before(token, next)
    };
    tokens.iter().enumerate().position(ends).unwrap_or(tokens.len())
}

/// Takes an expression that is only evaluated while a zone records. One that could leave the function is refused: a
/// program must not behave differently because it is recorded.
pub fn take_value(input: ParseStream) -> Result<TokenStream> {
    let value = take_expression(input)?;
    match exit(&value) {
        Some((what, span)) => Err(Error::new(
            span,
            format!(
                "`{what}` would leave the function, and only while a session records; compute the value in the body, or in a function of its own"
            ),
        )),
        None => Ok(value),
    }
}

/// The first token that could leave the function that the tokens stand in, or wait there, and where it stands.
pub fn exit(tokens: &TokenStream) -> Option<(String, Span)> {
    const WORDS: [&str; 5] = ["return", "break", "continue", "await", "yield"];
    tokens.clone().into_iter().find_map(|token| match token {
        TokenTree::Group(group) => exit(&group.stream()),
        TokenTree::Punct(punct) if punct.as_char() == '?' => Some(("?".to_owned(), punct.span())),
        TokenTree::Ident(word) => WORDS.iter().find(|&exit| word == exit).map(|exit| ((*exit).to_owned(), word.span())),
        _ => None,
    })
}

/// Words behind which an operand begins: `<` opens a path there, `|` a closure, and `!` negates.
pub const BEFORE_OPERAND: [&str; 15] = [
    "as", "async", "break", "dyn", "else", "if", "in", "let", "match", "move", "mut", "ref", "return", "static",
    "while",
];

/// Follows an expression token by token. In an expression a comma is only part of it between `::<` and `>`, after the
/// `<` of `<T as Trait<U>>::f`, in a cast to a generic type, and between the bars of a closure.
#[derive(Default)]
struct ExpressionEnd {
    /// Open angle brackets.
    angles: usize,
    /// Between the bars of a closure.
    in_closure: bool,
    /// The last token ended an operand: a `<` or `|` now is an operator.
    after_operand: bool,
    /// In the type after `as`: a `<` now opens generic arguments.
    in_cast: bool,
    last: Option<char>,
    before_last: Option<char>,
}

impl ExpressionEnd {
    /// Whether the expression is over before `token`, which the punctuation character `next` follows.
    fn is_before(&mut self, token: &TokenTree, next: Option<char>) -> bool {
        let (punct, joint) = match token {
            TokenTree::Punct(punct) => (Some(punct.as_char()), next.filter(|_| punct.spacing() == Spacing::Joint)),
            _ => (None, None),
        };
        let is_at_most = punct == Some('<') && joint == Some('=') && self.after_operand;
        if self.angles == 0 && self.after_operand {
            // An operator ends the type of a cast.
            self.in_cast &= match punct {
                Some('<') => !is_at_most,
                Some('-') => joint == Some('>'),
                Some('>') => self.last == Some('-'),
                punct => matches!(punct, None | Some(':')),
            };
        }
        let path_sep = self.last == Some(':') && self.before_last == Some(':');
        let arrow = matches!(self.last, Some('-' | '='));
        match punct {
            Some(',') if self.angles == 0 && !self.in_closure => return true,
            // The second character of the operator `<<`.
            Some('<') if self.angles == 0 && (self.last == Some('<') || is_at_most) => {}
            Some('<') if self.angles > 0 || path_sep || self.in_cast || !self.after_operand => self.angles += 1,
            Some('>') if self.angles > 0 && !arrow => self.angles -= 1,
            Some('|') if self.angles == 0 && self.in_closure => self.in_closure = false,
            Some('|') if self.angles == 0 && !self.after_operand && self.last != Some('|') => self.in_closure = true,
            _ => {}
        }
        match token {
            TokenTree::Ident(ident) => {
                let word = ident.to_string();
                self.in_cast |= word == "as" && self.angles == 0;
                self.after_operand = !BEFORE_OPERAND.contains(&word.as_str());
            }
            TokenTree::Punct(punct) => {
                self.after_operand = matches!(punct.as_char(), '?' | '>');
            }
            TokenTree::Group(_) | TokenTree::Literal(_) => self.after_operand = true,
        }
        (self.before_last, self.last) = (self.last, punct);
        false
    }
}

/// The tokens of a stream without the invisible groups that `macro_rules` puts around its fragments.
pub fn visible(tokens: TokenStream) -> Vec<TokenTree> {
    let mut out = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => out.extend(visible(group.stream())),
            token => out.push(token),
        }
    }
    out
}

/// The token as a block, also as a fragment `$body:block` of `macro_rules`.
pub fn block_of(token: &TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = token else { return None };
    match group.delimiter() {
        Delimiter::Brace => Some(group.clone()),
        Delimiter::None => match visible(group.stream()).as_slice() {
            [TokenTree::Group(block)] if block.delimiter() == Delimiter::Brace => Some(block.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the tokens are a plain path: `CODEGEN`, `ranges::CODEGEN`, `::krate::CODEGEN`.
pub fn is_path(tokens: &TokenStream) -> bool {
    let mut after_segment = false;
    let mut colons = 0;
    for token in visible(tokens.clone()) {
        match token {
            TokenTree::Ident(_) if !after_segment && colons != 1 => (after_segment, colons) = (true, 0),
            TokenTree::Punct(punct) if punct.as_char() == ':' && colons < 2 => {
                (after_segment, colons) = (false, colons + 1);
            }
            _ => return false,
        }
    }
    after_segment
}

/// Whether the tokens wait for a future: `.await`, but for those of `async` blocks, closures and functions inside.
pub fn awaits(tokens: TokenStream) -> bool {
    let tokens = visible(tokens);
    let is = |at: usize, word: &str| matches!(tokens.get(at), Some(TokenTree::Ident(ident)) if ident == word);
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        i += 1;
        match token {
            TokenTree::Ident(word) if word == "async" || word == "fn" => {
                // The block belongs to another future.
                let rest = tokens.get(i..).unwrap_or_default();
                i += rest.iter().position(ends_item).map_or(rest.len(), |end| end + 1);
            }
            TokenTree::Punct(punct) if punct.as_char() == '.' && is(i, "await") => return true,
            TokenTree::Group(group) if awaits(group.stream()) => return true,
            _ => {}
        }
    }
    false
}

/// Whether `ident` occurs anywhere in the tokens.
pub fn mentions(tokens: &TokenStream, ident: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(found) => found == ident,
        TokenTree::Group(group) => mentions(&group.stream(), ident),
        _ => false,
    })
}

/// Whether the token is this punctuation character.
pub fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether the token is a block in braces.
pub fn is_block(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}

/// Whether an item, with a block or without one, ends with the token.
pub fn ends_item(token: &TokenTree) -> bool {
    is_block(Some(token)) || is_punct(Some(token), ';')
}

/// Whether the first character of `::` is at this place. A `:` before any other punctuation is joint, too, where no space is between.
pub fn is_path_sep(tokens: &[TokenTree], at: usize) -> bool {
    let is_joint = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.spacing() == Spacing::Joint);
    is_punct(tokens.get(at), ':') && tokens.get(at).is_some_and(is_joint) && is_punct(tokens.get(at + 1), ':')
}

/// Whether a character of `::` is at this place.
pub fn is_in_path_sep(tokens: &[TokenTree], at: usize) -> bool {
    is_path_sep(tokens, at) || at.checked_sub(1).is_some_and(|before| is_path_sep(tokens, before))
}

/// The text of `#[doc = "…"]` or of a doc comment, given what stands between the brackets.
pub fn doc_text(attribute: &Group) -> Option<String> {
    let mut tokens = visible(attribute.stream()).into_iter();
    match (tokens.next(), tokens.next(), tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(doc)), Some(TokenTree::Punct(eq)), Some(TokenTree::Literal(text)), None)
            if doc == "doc" && eq.as_char() == '=' =>
        {
            syn::parse2::<LitStr>(TokenTree::Literal(text).into()).ok().map(|text| text.value())
        }
        _ => None,
    }
}

/// Whether this is `#[doc = concat!(…)]` or the like: text that the compiler only makes later.
pub fn is_doc_of_a_macro(attribute: &Group) -> bool {
    let tokens = visible(attribute.stream());
    matches!(tokens.as_slice(), [TokenTree::Ident(doc), eq, TokenTree::Ident(_), ..] if doc == "doc" && is_punct(Some(eq), '='))
}

/// The first paragraph of doc comments on one line, if there is one.
pub fn first_paragraph(docs: &[String]) -> Option<String> {
    let lines = docs.iter().flat_map(|doc| doc.split('\n')).map(|line| {
        let line = line.trim();
        // The asterisks down the side of a `/** … */`.
        line.strip_prefix("* ").unwrap_or(if line == "*" { "" } else { line })
    });
    let paragraph: Vec<&str> = lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
    (!paragraph.is_empty()).then(|| paragraph.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;
    use syn::parse::Parser;

    #[test]
    fn an_expression_ends_at_its_own_comma() {
        for (tokens, expected) in [
            (quote!(a.b(), rest), quote!(a.b())),
            (quote!(Map::<K, V>::new(), rest), quote!(Map::<K, V>::new())),
            (quote!(<Map<K, V> as New<A, B>>::new(), rest), quote!(<Map<K, V> as New<A, B>>::new())),
            (quote!(a < b, c > d), quote!(a < b)),
            (quote!(|a, b| a + b, rest), quote!(|a, b| a + b)),
            (quote!(move || a, rest), quote!(move || a)),
            (quote!(a || b, rest), quote!(a || b)),
            (quote!(a | b, rest), quote!(a | b)),
            (quote!(f::<fn(A) -> B, C>(), rest), quote!(f::<fn(A) -> B, C>())),
            (quote!(p as *const Pair<A, B>, rest), quote!(p as *const Pair<A, B>)),
            (quote!(a?.b << 2, rest), quote!(a?.b << 2)),
            (quote!(if a { b } else { c }), quote!(if a { b } else { c })),
        ] {
            let parser = |input: ParseStream| {
                let expression = take_expression(input)?;
                input.parse::<TokenStream>()?;
                Ok(expression)
            };
            let taken = parser.parse2(tokens.clone()).map(|taken| taken.to_string());
            assert_eq!(taken.unwrap_or_default(), expected.to_string(), "{tokens}");
        }
    }

    #[test]
    fn an_expression_in_a_file_ends_at_its_own_comma() {
        for (source, expected) in [
            ("n as usize <= v.len(), n = n", "n as usize <= v.len()"),
            ("n as usize<=v.len(), n = n", "n as usize<=v.len()"),
            ("kind as u64 | 1 << 3, n = n", "kind as u64 | 1 << 3"),
            ("kind as u64|1<<3,n=n", "kind as u64|1<<3"),
            ("a as u64 + b < c, n = n", "a as u64 + b < c"),
            ("a as u64 - 1 << 3, n = n", "a as u64 - 1 << 3"),
            ("a as u64 > b << 3, n = n", "a as u64 > b << 3"),
            ("a as u64 == b && c < d, e > f", "a as u64 == b && c < d"),
            ("a as Pair<A,B>, n = n", "a as Pair<A,B>"),
            ("a as *const Pair<A, B> as usize <= b, n = n", "a as *const Pair<A, B> as usize <= b"),
            ("a as krate::Map<K, V>, n = n", "a as krate::Map<K, V>"),
            ("f as fn(A)->Map<K, V>, n = n", "f as fn(A)->Map<K, V>"),
            ("<T as Sized<A,B>>::N<=3, n = n", "<T as Sized<A,B>>::N<=3"),
            ("<T as Trait>::N < 3, n > 4", "<T as Trait>::N < 3"),
            ("a<=b, c=d", "a<=b"),
            ("a>=b,c", "a>=b"),
            ("a.iter().map(|x|x.0).sum::<Vec<Pair<A,B>>>(),c", "a.iter().map(|x|x.0).sum::<Vec<Pair<A,B>>>()"),
            ("|a,b|a as u8|b,c", "|a,b|a as u8|b"),
            ("a||b,c", "a||b"),
            ("&a.b,c", "&a.b"),
        ] {
            let parser = |input: ParseStream| {
                let expression = take_expression(input)?;
                input.parse::<TokenStream>()?;
                Ok(expression)
            };
            let taken = parser.parse_str(source).map(|taken| taken.to_string());
            let expected = expected.parse::<TokenStream>().expect(expected).to_string();
            assert_eq!(taken.unwrap_or_default(), expected, "{source}");
        }
    }

    #[test]
    fn an_await_is_one_of_the_tokens_own() {
        for (tokens, expected) in [
            (quote!(f().await), true),
            (
                quote!(if a {
                    f().await?;
                }),
                true,
            ),
            (quote!(println!("{}", f().await)), true),
            (quote!(spawn(async move { f().await }); g()), false),
            (quote!(spawn(async move { f().await }).await), true),
            (
                quote!(
                    async fn g() {
                        f().await
                    },
                    h()
                ),
                false,
            ),
            (quote!(let c = async |a| { f(a).await }; h()), false),
            (quote!(let await_all = r#await; h.awaits()), false),
        ] {
            assert_eq!(awaits(tokens.clone()), expected, "{tokens}");
        }
    }

    #[test]
    fn a_path_has_segments_and_separators_only() {
        for (tokens, expected) in [
            (quote!(CODEGEN), true),
            (quote!(self::ranges::CODEGEN), true),
            (quote!(::krate::CODEGEN), true),
            (quote!(ranges::), false),
            (quote!(A B), false),
            (quote!(A: B), false),
            (quote!(concat!("a")), false),
            (quote!(), false),
        ] {
            assert_eq!(is_path(&tokens), expected, "{tokens}");
        }
    }

    #[test]
    fn a_description_is_the_first_paragraph() {
        let docs = |lines: &[&str]| first_paragraph(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        assert_eq!(docs(&["", " Adds `b`", " to `a`.", "", " More."]).as_deref(), Some("Adds `b` to `a`."));
        assert_eq!(docs(&["\n * Adds `b`\n * to `a`.\n *\n * More.\n "]).as_deref(), Some("Adds `b` to `a`."));
        assert_eq!(docs(&["", "  "]), None);
    }
}
