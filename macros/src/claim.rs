//! `__claim!("demo", add)`: claims the name of a mark that is named after its function.
//!
//! Only `namespace!` knows the namespace as a literal, so its macro calls this one with the function's name. The claim must
//! be the same as that of a mark that writes the name out, or the two would not collide.

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser, Result};
use syn::{LitStr, Token};

use crate::spec::{claim, without_raw};

pub fn expand(input: TokenStream) -> Result<TokenStream> {
    let parser = |input: ParseStream| {
        let namespace: LitStr = input.parse()?;
        input.parse::<Token![,]>()?;
        let function = input.call(Ident::parse_any)?;
        let name = format!("{}.{}", namespace.value(), without_raw(&function));
        Ok(claim(&name, function.span()).unwrap_or_default())
    };
    parser.parse2(input)
}
