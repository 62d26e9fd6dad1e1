//! Parses the arguments of `#[gpu_zone(…)]` and `#[host_zone(…)]`.

use proc_macro2::TokenStream;
use syn::Token;
use syn::parse::{ParseStream, Parser, Result};

use crate::options::{Grammar, Options};
use crate::zone::Range;

/// The arguments of a mark.
pub struct Args {
    /// `None` for a range that takes its function's name.
    pub range: Option<Range>,
    pub options: Options,
}

impl Args {
    pub fn parse(grammar: &Grammar, tokens: TokenStream) -> Result<Args> {
        (|input: ParseStream| Args::from_input(grammar, input)).parse2(tokens)
    }

    fn from_input(grammar: &Grammar, input: ParseStream) -> Result<Args> {
        let range = Range::parse(grammar, input)?;
        if range.is_some() && !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        let mut options = Options::default();
        while !input.is_empty() {
            options.parse_one(grammar, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let Some(range) = &range {
            range.refuse_facts(&options)?;
        }
        Ok(Args { range, options })
    }
}
