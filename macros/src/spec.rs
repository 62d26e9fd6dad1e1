//! The declaration of a range: the call of the runtime's `__range!`.
//!
//! Every macro that declares a range emits this call. The const functions of the runtime check the name and report errors at the
//! span that this module passes on.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::LitStr;

use crate::options::Options;
use crate::tokens::at;

/// The name of a range that a mark declares.
pub enum Name {
    /// The user writes it.
    Literal(LitStr),
    /// The namespace and the name of the function.
    Function(Ident),
}

impl Name {
    pub fn span(&self) -> Span {
        match self {
            Name::Literal(name) => name.span(),
            Name::Function(function) => function.span(),
        }
    }
}

/// The path of the runtime, as the user's crate knows it.
pub fn runtime(options: &Options) -> TokenStream {
    options.krate.clone().unwrap_or_else(|| quote!(::warpline))
}

/// Declares the range `name` as the static `variable`, with the attributes and the visibility in `head`.
pub fn declare(head: &TokenStream, variable: &Ident, name: &Name, description: &str, options: &Options) -> TokenStream {
    let runtime = runtime(options);
    // An unresolved import of this is the error when `namespace!` is missing, at the name. The runtime's `__namespace!` explains
    // the spelling.
    let namespace = Ident::new(
        "write_warpline_namespace_with_a_name_and_a_description_once_in_lib_rs_or_main_rs_and_fn_main_in_a_doc_test",
        name.span(),
    );
    // The evaluation of this constant reports an invalid name, at the name.
    let facts = Ident::new("__warpline_facts", at(name.span()));
    let check = quote_spanned!(at(name.span())=> #facts.check());
    let (kind, kind_word) = (Ident::new(options.kind.variant(), Span::call_site()), options.kind.word());
    let (level, level_word) = if options.is_fine { (quote!(Fine), "fine") } else { (quote!(Coarse), "coarse") };
    let description = without_nul(description);
    let lane = options.lane.as_ref().map(|lane| without_nul(&lane.value()));
    let color = options.color.map(|color| format!("{color:06x}")).unwrap_or_default();
    let fields: Vec<String> = options.fields.iter().map(|field| without_raw(&field.name)).collect();
    let version = version();
    let undescribed = options.message.undescribed(options.seen());
    // The note's texts, in the order that the runtime's `catalog::record` gives.
    let known =
        [kind_word, level_word, &description, lane.as_deref().unwrap_or_default(), &color].map(terminated).concat();
    let listed = undescribed.join(" ");
    let (note, listed) = match undescribed.is_empty() {
        true => (quote!(of_range), None),
        false => (quote!(of_undescribed), Some(listed.as_str())),
    };
    let rest: String =
        [version.as_str()].into_iter().chain(listed).chain(fields.iter().map(String::as_str)).map(terminated).collect();
    let lane = lane.map_or_else(|| quote!(None), |lane| quote!(Some(#lane)));
    let color = options.color.map_or_else(|| quote!(None), |color| quote!(Some(#color)));
    let mixed = at(Span::call_site());
    let facts = quote_spanned! {mixed=>
        #namespace #facts [#check] #note #known #rest
        #description #kind #level [#lane] [#color] [#(#fields),*] [#(#undescribed),*] #version
    };
    let value = match name {
        Name::Literal(name) => {
            let label = terminated(&name.value());
            let claim = claim(&name.value(), name.span());
            quote_spanned!(mixed=> #runtime::__spec! { [#label] [#claim] [#facts] })
        }
        Name::Function(function) => {
            let own = without_raw(function);
            let claim = Ident::new(&own, function.span());
            let own = format!(".{own}\0");
            // By an import: a call by its path would be a second error where there is no `namespace!`.
            quote_spanned!(mixed=> {
                use crate::#namespace::spec as __warpline_spec;
                __warpline_spec! { #own #claim [#facts] }
            })
        }
    };
    quote_spanned!(mixed=> #runtime::__range! { [#head] #variable [#value] })
}

/// The version of the package that is being compiled, from Cargo's environment.
pub fn version() -> String {
    std::env::var("CARGO_PKG_VERSION").unwrap_or_default()
}

/// The package that is being compiled, from Cargo's environment.
pub fn package() -> String {
    std::env::var("CARGO_PKG_NAME").unwrap_or_default()
}

/// The const that claims a name: a second one of the same identifier is the error of a second range of the same name, and
/// points at both names. Nothing for an invalid name, which is an error of its own.
pub fn claim(name: &str, span: Span) -> Option<TokenStream> {
    // The identifier has the macro's span, so that naming lints do not apply to it.
    let claim = Ident::new(&spelt(name)?, at(span));
    Some(quote_spanned!(span=> const #claim: () = ();))
}

/// The name as an identifier, with `_DOT_` for each dot, which no name contains, and the remedy behind it: all that a person sees of
/// a second range of the same name is this identifier. The leading underscore silences the lint for unused items.
fn spelt(name: &str) -> Option<String> {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '.');
    if !name.contains('.') || name.starts_with('.') || !name.chars().all(allowed) {
        return None;
    }
    Some(format!("_{}__rename_one_or_share_one_declared_with_range", name.replace('.', "_DOT_")))
}

/// The identifier as text.
pub fn without_raw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

/// The text with one NUL, at its end.
fn terminated(text: &str) -> String {
    format!("{}\0", without_nul(text))
}

/// The text with a visible character in place of each NUL. No valid name contains one.
fn without_nul(text: &str) -> String {
    text.replace('\0', "␀")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_spells_the_name() {
        assert_eq!(spelt("demo.add").as_deref(), Some("_demo_DOT_add__rename_one_or_share_one_declared_with_range"));
        assert_eq!(spelt("0.x").as_deref(), Some("_0_DOT_x__rename_one_or_share_one_declared_with_range"));
        for wrong in ["", "demo", ".demo", "demo.Add", "demo.größe"] {
            assert_eq!(spelt(wrong), None, "{wrong}");
        }
    }
}
