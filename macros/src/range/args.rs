//! What stands in `range! { … }`: declarations that end in `;`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::parse::{Error, ParseStream, Parser, Result};
use syn::{LitStr, Token, token};

use crate::options::{Grammar, Options};
use crate::tokens::{doc_text, first_paragraph, is_doc_of_a_macro, is_punct, visible};
use crate::zone::parse_name;

/// One declaration; where it is wrong, what is known of it and the error.
pub struct Declaration {
    /// What stands before the name of the static: attributes and visibility.
    pub attributes: TokenStream,
    pub visibility: TokenStream,
    pub variable: Option<Ident>,
    /// Whether a macro makes documentation, which cannot be read here.
    is_documented_by_a_macro: bool,
    pub range: Result<Range>,
}

/// The range that a declaration declares.
pub struct Range {
    pub name: LitStr,
    pub description: String,
    /// Whether the description stands in a doc comment already.
    pub is_documented: bool,
    pub options: Options,
}

/// All declarations. One that is wrong does not hide the others.
pub fn declarations(grammar: &Grammar, input: TokenStream) -> Vec<Declaration> {
    let mut declarations = Vec::new();
    let mut rest = visible(input).into_iter().peekable();
    while rest.peek().is_some() {
        let tokens: TokenStream = rest.by_ref().take_while(|token| !is_punct(Some(token), ';')).collect();
        declarations.push(Declaration::parse(grammar, tokens));
    }
    declarations
}

impl Declaration {
    fn parse(grammar: &Grammar, tokens: TokenStream) -> Declaration {
        let mut declaration = Declaration {
            attributes: TokenStream::new(),
            visibility: TokenStream::new(),
            variable: None,
            is_documented_by_a_macro: false,
            range: Err(Error::new(proc_macro2::Span::call_site(), USAGE)),
        };
        let parser = |input: ParseStream| {
            declaration.range = declaration.parse_parts(grammar, input);
            // What is left after an error is of no interest.
            input.parse::<TokenStream>().map(drop)
        };
        if let Err(error) = parser.parse2(tokens) {
            declaration.range = Err(error);
        }
        declaration
    }

    fn parse_parts(&mut self, grammar: &Grammar, input: ParseStream) -> Result<Range> {
        let docs = self.parse_head(input)?;
        let variable: Ident = input.parse().map_err(usage)?;
        self.variable = Some(variable.clone());
        input.parse::<Token![=]>().map_err(usage)?;
        if !input.peek(syn::Lit) {
            return Err(input.error(USAGE));
        }
        let name = parse_name(input)?;
        let written = match input.parse::<Option<Token![:]>>()? {
            Some(_) => Some(input.parse::<LitStr>().map_err(usage)?.value()),
            None => None,
        };
        let mut options = Options::default();
        while !input.is_empty() {
            input.parse::<Token![,]>().map_err(|error| Error::new(error.span(), "expected `,` or `;`"))?;
            if !input.is_empty() {
                options.parse_one(grammar, input)?;
            }
        }
        let description = written.filter(|text| !text.trim().is_empty()).or_else(|| first_paragraph(&docs));
        match description {
            Some(description) => Ok(Range {
                name,
                description,
                is_documented: !docs.is_empty() || self.is_documented_by_a_macro,
                options,
            }),
            None => {
                let remedy = match self.is_documented_by_a_macro {
                    true => {
                        "documentation from a macro cannot be read here; write a description after the name, `\"demo.add\": \"…\"`"
                    }
                    false => "write one after the name, `\"demo.add\": \"…\"`, or a doc comment",
                };
                Err(Error::new(name.span(), format!("this range has no description; {remedy}")))
            }
        }
    }

    /// Attributes and visibility; these are the texts of the doc comments.
    fn parse_head(&mut self, input: ParseStream) -> Result<Vec<String>> {
        let mut docs = Vec::new();
        while input.peek(Token![#]) {
            let hash: TokenTree = input.parse()?;
            let attribute: TokenTree = input.parse()?;
            if let TokenTree::Group(attribute) = &attribute {
                docs.extend(doc_text(attribute));
                self.is_documented_by_a_macro |= is_doc_of_a_macro(attribute);
            }
            self.attributes.extend([hash, attribute]);
        }
        if input.peek(Token![pub]) {
            self.visibility.extend([input.parse::<TokenTree>()?]);
            if input.peek(token::Paren) {
                self.visibility.extend([input.parse::<TokenTree>()?]);
            }
        }
        Ok(docs)
    }
}

const USAGE: &str = "a declared range is written `pub NAME = \"demo.add\": \"what it is\";`";

fn usage(error: Error) -> Error {
    Error::new(error.span(), USAGE)
}
