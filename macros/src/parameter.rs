//! Splits the parameters of a marked function into patterns and types.
//!
//! `mark` calls it, and `collective` reads the types. It finds the names that a pattern binds and looks no further into a type than to its end.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

use crate::tokens::{at, is_in_path_sep, is_path_sep, is_punct, visible};

/// One parameter of a function.
#[derive(Default)]
pub struct Parameter {
    /// The names that its pattern binds: one for `n: …` and `mut n: …`, several for `(stream, n): …`. None that begins with `_`.
    pub bindings: Vec<Ident>,
    /// All names that its pattern binds.
    names: Vec<Ident>,
    /// Whether the pattern is a name, so that the type is the type of that name.
    pub is_plain: bool,
    /// Whether an attribute is before it, which may remove the parameter.
    pub has_attribute: bool,
    /// The `#[cfg(…)]` before it.
    pub conditions: TokenStream,
    /// Whether it is `self` in any form.
    pub is_receiver: bool,
    /// Whether it is `&self` or a pattern of a reference.
    is_borrowed: bool,
    /// The type without invisible groups; empty for `self` and `&self`.
    pub type_tokens: Vec<TokenTree>,
}

impl Parameter {
    /// Whether it is `self` by value.
    pub fn is_owned_receiver(&self) -> bool {
        self.is_receiver && !self.is_borrowed && !is_punct(self.type_tokens.first(), '&')
    }

    /// The names that drop something, as far as the type's first token says.
    pub fn owned(&self) -> &[Ident] {
        if is_punct(self.type_tokens.first(), '&') { &[] } else { &self.names }
    }
}

/// The parameters between the parentheses.
pub fn split(parameters: &Group) -> Vec<Parameter> {
    let tokens = visible(parameters.stream());
    let mut found = Vec::new();
    let (mut start, mut angles, mut colon) = (0, 0_usize, None);
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|before| tokens.get(before));
        let TokenTree::Punct(punct) = token else { continue };
        match punct.as_char() {
            ',' if angles == 0 => {
                found.extend(parameter(&tokens, start, colon, i));
                (start, colon) = (i + 1, None);
            }
            '<' if colon.is_some() => angles += 1,
            '>' if colon.is_some() && !is_punct(before, '-') => angles = angles.saturating_sub(1),
            ':' if colon.is_none() && !is_in_path_sep(&tokens, i) => colon = Some(i),
            _ => {}
        }
    }
    found.extend(parameter(&tokens, start, colon, tokens.len()));
    found
}

/// The parameters with a name for each `_`: what has no name cannot be moved.
pub fn with_names(parameters: &Group) -> Group {
    let mut tokens = visible(parameters.stream());
    for i in 0..tokens.len() {
        let is_pattern = is_punct(tokens.get(i + 1), ':') && !is_path_sep(&tokens, i + 1);
        if let Some(TokenTree::Ident(word)) = tokens.get_mut(i)
            && is_pattern
            && *word == "_"
        {
            *word = Ident::new(&format!("__warpline_parameter_{i}"), at(word.span()));
        }
    }
    let mut named = Group::new(parameters.delimiter(), tokens.into_iter().collect());
    named.set_span(parameters.span());
    named
}

/// The parameter that the tokens from `start` to `end` are, with a type after `colon`.
fn parameter(tokens: &[TokenTree], start: usize, colon: Option<usize>, end: usize) -> Option<Parameter> {
    let pattern = tokens.get(start..colon.unwrap_or(end))?;
    let type_tokens = colon.and_then(|colon| tokens.get(colon + 1..end)).unwrap_or_default().to_vec();
    if pattern.is_empty() {
        return None;
    }
    let is = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident == word);
    let mut names = Vec::new();
    (0..pattern.len()).for_each(|i| bound(pattern, i, &mut names));
    let bindings: Vec<Ident> = names.iter().filter(|name| !name.to_string().starts_with('_')).cloned().collect();
    let is_plain = match pattern {
        [TokenTree::Ident(_)] => true,
        [word, TokenTree::Ident(_)] => is(word, "mut"),
        _ => false,
    };
    Some(Parameter {
        is_plain: is_plain && bindings.len() == 1,
        has_attribute: is_punct(pattern.first(), '#'),
        conditions: conditions(pattern),
        is_borrowed: pattern.iter().any(|token| is_punct(Some(token), '&')),
        is_receiver: pattern.iter().any(|token| is(token, "self")),
        bindings,
        names,
        type_tokens,
    })
}

/// The attributes of a parameter or an item, which begins with them, that say where it is compiled.
pub fn conditions(tokens: &[TokenTree]) -> TokenStream {
    let mut found = TokenStream::new();
    let mut rest = tokens;
    while let [hash, TokenTree::Group(attribute), behind @ ..] = rest
        && is_punct(Some(hash), '#')
    {
        if matches!(attribute.stream().into_iter().next(), Some(TokenTree::Ident(word)) if word == "cfg") {
            found.extend([hash.clone(), attribute.clone().into()]);
        }
        rest = behind;
    }
    found
}

/// The names that the token `i` of a pattern binds, nested patterns included.
fn bound(tokens: &[TokenTree], i: usize, found: &mut Vec<Ident>) {
    match tokens.get(i) {
        // Not an attribute.
        Some(TokenTree::Group(group)) if !is_punct(i.checked_sub(1).and_then(|before| tokens.get(before)), '#') => {
            let inner = visible(group.stream());
            // In `{ field: name }` the field binds nothing.
            (0..inner.len()).filter(|&i| !is_field(group, &inner, i)).for_each(|i| bound(&inner, i, found));
        }
        Some(TokenTree::Ident(ident)) => {
            let name = ident.to_string();
            let is_name = name != "_"
                && name.trim_start_matches('_').chars().next().is_none_or(char::is_lowercase)
                && !["mut", "ref", "box", "self"].contains(&name.as_str());
            let next = tokens.get(i + 1);
            let is_path = is_path_sep(tokens, i + 1)
                || i >= 2 && is_path_sep(tokens, i - 2)
                || is_punct(next, '!')
                || matches!(next, Some(TokenTree::Group(_)));
            if is_name && !is_path {
                found.push(ident.clone());
            }
        }
        _ => {}
    }
}

/// Whether the token `i` in the braces of a struct's pattern is the name of a field with a pattern of its own.
fn is_field(group: &Group, inner: &[TokenTree], i: usize) -> bool {
    let next = inner.get(i + 1);
    group.delimiter() == Delimiter::Brace && is_punct(next, ':') && !is_path_sep(inner, i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    fn parsed(parameters: TokenStream) -> Vec<Parameter> {
        split(&Group::new(Delimiter::Parenthesis, parameters))
    }

    #[test]
    fn the_names_that_parameters_bind_are_found() {
        for (parameters, expected) in [
            (quote!(&self, stream: &S, n: u32), "stream n"),
            (quote!(self: Arc<Self>, map: HashMap<K, V>, f: fn(a: A) -> B, mut n: u32), "map f n"),
            (quote!((stream, n): (&S, u32)), "stream n"),
            (quote!(Context { stream, rows: n, .. }: &Context), "stream n"),
            (quote!(context::Context { at: &stream, .. }: &Context), "stream"),
            (quote!(Pair(ref a, mut b): Pair, [first, rest @ ..]: [u8; 2]), "a b first rest"),
            (quote!(r#stream: &S, _: u32), "r#stream"),
            (quote!(#[cfg(x)] n: u32, None: Option<u32>), "n"),
        ] {
            let found = parsed(parameters.clone());
            let names: Vec<String> = found.iter().flat_map(|one| &one.bindings).map(ToString::to_string).collect();
            assert_eq!(names.join(" "), expected, "{parameters}");
        }
    }

    #[test]
    fn parameters_are_split_as_they_are_written_in_a_file() {
        for (source, names, types) in [
            ("stream:&HostStream,n:u32", "stream n", "&HostStream|u32"),
            ("stream: &S, scale: &[f32], data:&mut Tensor", "stream scale data", "&S|&[f32]|&mut Tensor"),
            ("buf:&mut[f32]", "buf", "&mut[f32]"),
            ("list:&'a[u32],f:*const T,t:<A as B>::C", "list f t", "&'a[u32]|*const T|<A as B>::C"),
            ("a::B{c:&d,e:_,..}:&a::B,n:a::C<D,E>", "d n", "&a::B|a::C<D,E>"),
            ("krate::module::Pair(a,b):krate::Pair", "a b", "krate::Pair"),
            ("&(a,b):&(A,B),mut c:C,_:D", "a b c", "&(A,B)|C|D"),
            ("f:fn(a:A)->B,g:impl Fn(A)->B", "f g", "fn(a:A)->B|impl Fn(A)->B"),
        ] {
            let found = parsed(source.parse().expect(source));
            let found_names: Vec<String> =
                found.iter().flat_map(|one| &one.bindings).map(ToString::to_string).collect();
            assert_eq!(found_names.join(" "), names, "{source}");
            let expected: Vec<String> =
                types.split('|').map(|one| one.parse::<TokenStream>().expect(one).to_string()).collect();
            let found_types: Vec<String> =
                found.iter().map(|one| one.type_tokens.iter().cloned().collect::<TokenStream>().to_string()).collect();
            assert_eq!(found_types, expected, "{source}");
        }
    }

    #[test]
    fn a_parameter_has_its_pattern_and_its_type() {
        let found = parsed(quote!(&mut self, mut buf: &mut [f32], (a, b): (A, B), #[cfg(x)] n: HashMap<K, V>, _: u8,));
        let types: Vec<String> = found
            .iter()
            .map(|one| one.type_tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(types, ["", "& mut [f32]", "(A , B)", "HashMap < K , V >", "u8"]);
        let facts: Vec<_> = found.iter().map(|one| (one.is_receiver, one.is_plain, one.has_attribute)).collect();
        assert_eq!(
            facts,
            [
                (true, false, false),
                (false, true, false),
                (false, false, false),
                (false, false, true),
                (false, false, false)
            ]
        );
    }
}
