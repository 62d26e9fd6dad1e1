//! Where attributes and items of Rust's source begin and end, by tokens alone. `cycles` and `size` read files with it.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Keywords before the name of an item.
pub const ITEMS: [&str; 10] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules", "extern"];

/// Keywords that may stand between one of them and the name.
pub const BETWEEN: [&str; 7] = ["fn", "unsafe", "async", "extern", "mut", "crate", "const"];

/// The attribute that begins here, if one does, and how many tokens it is: 3 for an inner one.
pub fn attribute(tokens: &[TokenTree]) -> (Option<&Group>, usize) {
    let is_inner = is_punct(tokens.get(1), '!');
    match tokens.get(1 + usize::from(is_inner)) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            (Some(group), 2 + usize::from(is_inner))
        }
        _ => (None, 1),
    }
}

/// `cfg(test)`, or `cfg(all(…, test, …))`.
pub fn is_for_tests(attribute: &Group) -> bool {
    let mut tokens = attribute.stream().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(cfg)), Some(TokenTree::Group(condition))) if cfg == "cfg" => {
            needs_tests(condition.stream())
        }
        _ => false,
    }
}

fn needs_tests(condition: TokenStream) -> bool {
    let tokens: Vec<_> = condition.into_iter().collect();
    tokens.split(|token| is_punct(Some(token), ',')).any(|part| match part {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(all), TokenTree::Group(inner)] => all == "all" && needs_tests(inner.stream()),
        _ => false,
    })
}

/// How many tokens what stands behind an attribute is: an item, a statement, a field or an arm.
pub fn item_length(tokens: &[TokenTree]) -> usize {
    let mut begin = 0;
    while is_punct(tokens.get(begin), '#') {
        begin += attribute(&tokens[begin..]).1;
    }
    let mut words = tokens[begin..].iter().filter_map(|token| match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        _ => None,
    });
    let first = words.find(|word| word != "pub").unwrap_or_default();
    let is_constant = first == "const" && words.next().is_none_or(|next| !BETWEEN.contains(&next.as_str()));
    let ends_with_semicolon = is_constant || ["use", "static", "type", "let"].contains(&first.as_str());
    let is_item = ends_with_semicolon
        || ITEMS.contains(&first.as_str())
        || ["impl", "mod", "unsafe", "async"].contains(&first.as_str());
    let end = tokens[begin..].iter().position(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';' || (!is_item && punct.as_char() == ','),
        TokenTree::Group(group) => !ends_with_semicolon && group.delimiter() == Delimiter::Brace,
        _ => false,
    });
    end.map_or(tokens.len(), |end| begin + end + 1)
}

pub fn is_punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

pub fn is_group(token: Option<&TokenTree>, delimiter: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
}
