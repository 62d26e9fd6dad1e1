//! Parses the options that describe a collective's message, and builds the message expression for the zone.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::LitStr;
use syn::parse::{Error, Parser, Result};

use super::dtype::{TYPES, variant_of};
use super::infer::{self, Inferred, Written};
use super::kinds::{self, Operation};
use crate::key::Key;
use crate::parameter::Parameter;
use crate::tokens::at;

/// What the user wrote, by option; only options of [`MESSAGE`](crate::key::MESSAGE).
#[derive(Default)]
pub struct Message {
    pub operation: Option<Operation>,
    values: Vec<(Key, TokenStream)>,
    inferred: Option<Inferred>,
}

/// Types that NCCL does not transfer.
const FOREIGN: [&str; 10] = ["bool", "char", "str", "i16", "u16", "i128", "u128", "isize", "usize", "f128"];

const OPS: [(&str, &str); 6] =
    [("sum", "Sum"), ("prod", "Prod"), ("max", "Max"), ("min", "Min"), ("avg", "Avg"), ("pre_mul_sum", "PreMulSum")];

impl Message {
    pub fn set(&mut self, key: Key, value: TokenStream) {
        self.values.push((key, value));
    }

    /// Infers what is not among `seen` from the parameters of the marked function; `stream` is the mark's own.
    pub fn infer(
        &mut self,
        seen: &[(Key, Span)],
        stream: Option<&TokenStream>,
        parameters: &[Parameter],
        runtime: &TokenStream,
        mixed: Span,
    ) {
        let Some(operation) = self.operation else { return };
        let is_aside = |key: &Key| !matches!(key, Key::Count | Key::CountOut | Key::Dtype);
        let asides = self.values.iter().filter(|(key, _)| is_aside(key)).map(|(_, value)| value);
        let written =
            Written { keys: seen.iter().map(|(key, _)| *key).collect(), expressions: asides.chain(stream).collect() };
        self.inferred = Some(infer::infer(operation, parameters, &written, runtime, mixed));
    }

    /// The names of the options that would describe the message completely and are neither among `seen` nor inferred. None where the operation is
    /// not known: a declared range leaves it to its marks.
    pub fn undescribed(&self, seen: &[(Key, Span)]) -> Vec<&'static str> {
        let inferred = self.inferred.iter().flat_map(|inferred| &inferred.described).copied();
        let known: Vec<Key> = seen.iter().map(|(key, _)| *key).chain(inferred).collect();
        self.operation.map_or_else(Vec::new, |operation| operation.undescribed(&known))
    }

    /// The zone's message, as an expression, for a mark of which all options are known: `seen`. `mark` is where the mark stands. Each
    /// option is evaluated in a statement of its own, so that none holds a lock that the next one takes.
    pub fn value(&self, seen: &[(Key, Span)], runtime: &TokenStream, mark: Span, mixed: Span) -> Result<TokenStream> {
        let Some(operation) = self.operation else { return Err(Error::new(mark, kinds::missing())) };
        operation.check(seen)?;
        let variant = Ident::new(operation.variant, mixed);
        let mut calls = TokenStream::new();
        for (key, value) in &self.values {
            let method = Ident::new(key.name(), mixed);
            let value = match key {
                Key::Dtype => data_type(value, runtime)?,
                Key::Op => reduction(value, runtime)?,
                Key::Group | Key::InSplit | Key::OutSplit => {
                    let start = value.clone().into_iter().next().map_or(mixed, |token| token.span());
                    quote_spanned!(at(start)=> &(#value))
                }
                _ => value.clone(),
            };
            calls.extend(quote_spanned!(mixed=> let __warpline_message = __warpline_message.#method(#value);));
        }
        calls.extend(self.inferred.iter().map(|inferred| inferred.calls.clone()));
        Ok(quote_spanned! {mixed=>
            {
                let __warpline_message = #runtime::__private::Message::new(#runtime::__private::CollectiveKind::#variant);
                #calls
                __warpline_message
            }
        })
    }
}

/// A literal, the name of a primitive type, `<T>`, or an expression.
fn data_type(value: &TokenStream, runtime: &TokenStream) -> Result<TokenStream> {
    let tokens: Vec<TokenTree> = value.clone().into_iter().collect();
    let known = |word: &str, span: Span| {
        let variant = variant_of(word).map(|variant| Ident::new(variant, at(span)));
        variant.map(|variant| quote_spanned!(at(span)=> #runtime::__private::DataType::#variant))
    };
    let none = |word: &str, span: Span| {
        let names = TYPES.map(|(name, _)| name).join(", ");
        Error::new(span, format!("NCCL has no data type `{word}`; `dtype` is one of {names}"))
    };
    match tokens.as_slice() {
        [TokenTree::Literal(_)] => {
            match (|input: syn::parse::ParseStream| input.parse::<LitStr>()).parse2(value.clone()) {
                Ok(name) => known(&name.value(), name.span()).ok_or_else(|| none(&name.value(), name.span())),
                Err(_) => Ok(value.clone()),
            }
        }
        [TokenTree::Ident(word)] => {
            let (text, span) = (word.to_string(), word.span());
            match known(&text, span) {
                Some(known) => Ok(known),
                None if FOREIGN.contains(&text.as_str()) => Err(none(&text, span)),
                None => Ok(value.clone()),
            }
        }
        [TokenTree::Punct(open), inner @ .., TokenTree::Punct(close)]
            if open.as_char() == '<' && close.as_char() == '>' =>
        {
            let element: TokenStream = inner.iter().cloned().collect();
            Ok(quote_spanned!(at(open.span())=> <#element as #runtime::__private::Element>::DATA_TYPE))
        }
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => data_type(&group.stream(), runtime),
        _ => Ok(quote!(#value)),
    }
}

/// A literal or an expression.
fn reduction(value: &TokenStream, runtime: &TokenStream) -> Result<TokenStream> {
    let literal = (|input: syn::parse::ParseStream| input.parse::<LitStr>()).parse2(value.clone());
    let Ok(name) = literal else { return Ok(value.clone()) };
    let variant =
        OPS.iter().find(|(op, _)| *op == name.value()).map(|(_, variant)| Ident::new(variant, at(name.span())));
    let names = OPS.map(|(op, _)| op).join(", ");
    let variant = variant.ok_or_else(|| {
        Error::new(name.span(), format!("there is no reduction `{}`; there are {names}", name.value()))
    })?;
    Ok(quote_spanned!(at(name.span())=> #runtime::__private::ReduceOp::#variant))
}
