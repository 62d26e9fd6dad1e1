//! What a mark leaves out and its function's parameters show: the group, the number of elements and their type.
//!
//! `mark` calls it for functions. It reads the parameters as tokens; the runtime's `collective/infer.rs` knows the types and
//! decides what a value gives. It must never give a wrong figure: where the parameters can be read in two ways, it infers nothing.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};

use super::dtype::variant_of;
use super::kinds::{Operation, Payload};

use crate::key::{Key, MESSAGE};
use crate::parameter::Parameter;
use crate::tokens::{is_in_path_sep, is_punct, mentions, visible};

/// What the parameters of a function show.
pub struct Inferred {
    /// Statements that complete `__warpline_message`.
    pub calls: TokenStream,
    /// The options that are known in each record, whatever the types turn out to be.
    pub described: Vec<Key>,
}

/// What is written in the mark, as far as it decides what to infer.
pub struct Written<'a> {
    /// The options.
    pub keys: Vec<Key>,
    /// The expressions that say something other than the number and type of elements.
    pub expressions: Vec<&'a TokenStream>,
}

/// Infers what is not written from the parameters.
pub fn infer(
    operation: Operation,
    parameters: &[Parameter],
    written: &Written,
    runtime: &TokenStream,
    mixed: Span,
) -> Inferred {
    let mut inferred = Inferred { calls: TokenStream::new(), described: Vec::new() };
    let is_open = |key: Key| !written.keys.contains(&key) && operation.takes(key);
    if is_open(Key::Group) {
        group(parameters, runtime, mixed, &mut inferred);
    }
    if is_open(Key::Count) || is_open(Key::Dtype) {
        elements(operation, parameters, written, runtime, mixed, &mut inferred);
    }
    inferred
}

/// The group of the parameter `group`, or else of `comm`.
fn group(parameters: &[Parameter], runtime: &TokenStream, mixed: Span, inferred: &mut Inferred) {
    for name in ["group", "comm"] {
        let named = |parameter: &&Parameter| !parameter.has_attribute && binding(parameter, name).is_some();
        let Some(parameter) = parameters.iter().find(named) else { continue };
        let Some(variable) = binding(parameter, name) else { continue };
        let (calls, described) = (&mut inferred.calls, &mut inferred.described);
        calls.extend(quote_spanned! {mixed=>
            let __warpline_message = #runtime::__private::infer::group(__warpline_message, {
                use #runtime::__private::infer::{AnyGroup as _, KnownGroup as _};
                (&&#runtime::__private::infer::Of(&#variable)).__warpline_group()
            });
        });
        match parameter.is_plain.then(|| pointee(&parameter.type_tokens)).flatten() {
            Some((_, word)) if word == "ProcessGroup" => described.push(Key::Group),
            Some((derefs, word)) if word == "Comm" => {
                let derefs = std::iter::repeat_n(quote_spanned!(mixed=> *), derefs);
                calls.extend(quote_spanned! {mixed=>
                    let __warpline_message = #runtime::__private::infer::communicator(__warpline_message, {
                        use #runtime::__private::infer::{AnyNumber as _, KnownNumber as _, NoCommunicator as _};
                        let __warpline_comm = &#(#derefs)*#variable;
                        (
                            (&&#runtime::__private::infer::Of(&__warpline_comm.world_size())).__warpline_number(),
                            (&&#runtime::__private::infer::Of(&__warpline_comm.rank())).__warpline_number(),
                        )
                    });
                });
            }
            _ => {}
        }
    }
}

/// The name among those that the parameter binds.
fn binding<'a>(parameter: &'a Parameter, name: &str) -> Option<&'a Ident> {
    parameter.bindings.iter().find(|binding| *binding == name)
}

/// The last word of a plain path behind references and smart pointers, and how many of these are around it.
fn pointee(tokens: &[TokenTree]) -> Option<(usize, String)> {
    if let Some((_, inside)) = referent(tokens) {
        return pointee(inside).map(|(derefs, word)| (derefs + 1, word));
    }
    let (word, arguments) = path(tokens)?;
    match (word.to_string().as_str(), arguments) {
        ("Arc" | "Rc" | "Box", inside) if !inside.is_empty() => {
            pointee(&visible(inside.iter().cloned().collect())).map(|(derefs, word)| (derefs + 1, word))
        }
        (word, []) => Some((0, word.to_owned())),
        _ => None,
    }
}

/// What a reference refers to, and whether it is exclusive.
fn referent(tokens: &[TokenTree]) -> Option<(bool, &[TokenTree])> {
    let mut rest = after('&', tokens)?;
    if let Some(lifetime) = after('\'', rest) {
        rest = lifetime.get(1..)?;
    }
    match rest.first() {
        Some(TokenTree::Ident(word)) if word == "mut" => Some((true, rest.get(1..)?)),
        _ => Some((false, rest)),
    }
}

/// The tokens after this punctuation character, if they begin with it.
fn after(punct: char, tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    is_punct(tokens.first(), punct).then(|| tokens.get(1..)).flatten()
}

/// The last word of a path, and the generic arguments after it.
fn path(tokens: &[TokenTree]) -> Option<(&Ident, &[TokenTree])> {
    let open = tokens.iter().position(|token| is_punct(Some(token), '<')).unwrap_or(tokens.len());
    let (words, rest) = tokens.split_at(open);
    let arguments = match rest {
        [] => rest,
        [_, arguments @ .., close] if is_punct(Some(close), '>') => arguments,
        _ => return None,
    };
    // Not `dyn Trait` and not a turbofish: words stand between `::` alone.
    let mut after_word = false;
    let mut last = None;
    for (i, token) in words.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if !after_word => (last, after_word) = (Some(word), true),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                if !is_in_path_sep(words, i) {
                    return None;
                }
                after_word = false;
            }
            _ => return None,
        }
    }
    after_word.then_some((last?, arguments))
}

/// A parameter that holds elements.
struct Buffer<'a> {
    variable: &'a Ident,
    /// `&mut`, so that the function may receive into it.
    is_exclusive: bool,
    /// In the device's memory.
    is_device: bool,
    element: Vec<TokenTree>,
}

impl Buffer<'_> {
    fn of(parameter: &Parameter) -> Option<Buffer<'_>> {
        let [variable] = parameter.bindings.as_slice() else { return None };
        if !parameter.is_plain || parameter.has_attribute || variable.to_string().starts_with('_') {
            return None;
        }
        let (is_mutable, inside) = referent(&parameter.type_tokens)?;
        let (is_exclusive, is_device, element) = match inside {
            [TokenTree::Group(group)] if group.delimiter() == Delimiter::Bracket => {
                let element = visible(group.stream());
                let is_array = element.iter().any(|token| is_punct(Some(token), ';'));
                (!is_array).then_some((is_mutable, false, element))?
            }
            inside => {
                let (word, arguments) = path(inside)?;
                let is_exclusive = match word.to_string().as_str() {
                    "CudaSlice" | "CudaViewMut" => is_mutable,
                    "CudaView" => false,
                    _ => return None,
                };
                (is_exclusive, true, element(&visible(arguments.iter().cloned().collect()))?)
            }
        };
        let buffer = Buffer { variable, is_exclusive, is_device, element };
        (!buffer.is_list()).then_some(buffer)
    }

    /// Whether it may be a list of sizes, offsets or ranks: integers that the function only reads.
    fn is_list(&self) -> bool {
        const INTEGERS: [&str; 10] = ["i16", "u16", "i32", "u32", "i64", "u64", "i128", "u128", "isize", "usize"];
        !self.is_exclusive && !self.is_device && self.word().is_some_and(|word| INTEGERS.contains(&word.as_str()))
    }

    /// The last word of the element's type.
    fn word(&self) -> Option<String> {
        path(&self.element).filter(|(_, arguments)| arguments.is_empty()).map(|(word, _)| word.to_string())
    }

    /// The type of the elements by its word, for types of other crates that the runtime does not know.
    fn named(&self, runtime: &TokenStream, mixed: Span) -> TokenStream {
        let foreign = self.word().filter(|word| !is_primitive(word));
        match foreign.and_then(|word| variant_of(&word.to_lowercase())) {
            Some(variant) => {
                let variant = Ident::new(variant, mixed);
                quote_spanned!(mixed=> ::core::option::Option::Some(#runtime::__private::DataType::#variant))
            }
            None => quote_spanned!(mixed=> ::core::option::Option::None),
        }
    }

    /// Whether the type of the elements is known from its word.
    fn is_certain(&self) -> bool {
        self.word().is_some_and(|word| variant_of(&word.to_lowercase()).is_some())
    }
}

/// The type of elements among generic arguments: the only one that is not a lifetime.
fn element(arguments: &[TokenTree]) -> Option<Vec<TokenTree>> {
    let mut rest = arguments;
    while let Some(lifetime) = after('\'', rest) {
        rest = after(',', lifetime.get(1..)?)?;
    }
    let one = match rest {
        [one @ .., comma] if is_punct(Some(comma), ',') => one,
        all => all,
    };
    let has_more = one.iter().any(|token| is_punct(Some(token), ','));
    (!one.is_empty() && !has_more).then(|| one.to_vec())
}

/// The number of elements and their type, of the buffers among the parameters.
fn elements(
    operation: Operation,
    parameters: &[Parameter],
    written: &Written,
    runtime: &TokenStream,
    mixed: Span,
    inferred: &mut Inferred,
) {
    let mut buffers = Vec::new();
    for parameter in parameters.iter().filter(|parameter| !is_aside(parameter, written)) {
        match Buffer::of(parameter) {
            Some(buffer) => buffers.push(buffer),
            // The data may be in a value of a type that is not known here.
            None => return,
        }
    }
    let (sent, received) = match buffers.as_slice() {
        [one] if one.is_exclusive => (None, Some(one)),
        [one] => (Some(one), None),
        [a, b] if a.is_exclusive != b.is_exclusive && a.is_device == b.is_device && is_same(&a.element, &b.element) => {
            if a.is_exclusive {
                (Some(b), Some(a))
            } else {
                (Some(a), Some(b))
            }
        }
        _ => return,
    };
    let Some(any) = sent.or(received) else { return };
    let payload = operation.payload();
    let counted = match payload {
        Payload::Sent => sent,
        Payload::InPlace => sent.or(received),
        Payload::Received => received,
        Payload::Unknown => None,
    };
    let is_open = |key: Key| !written.keys.contains(&key);
    // A list of the parts' sizes says how much of the buffer is used.
    let is_split = written.keys.contains(&Key::InSplit);
    let counted = counted.filter(|_| is_open(Key::Count) && !is_split);
    let (takes_dtype, takes_count) = (is_open(Key::Dtype), counted.is_some());
    let (buffer, described) = (counted.unwrap_or(any), &mut inferred.described);
    if buffer.is_certain() {
        described.extend(takes_dtype.then_some(Key::Dtype));
        described.extend(takes_count.then_some(Key::Count));
    }
    let (value, named) = (size(buffer, runtime, mixed), buffer.named(runtime, mixed));
    inferred.calls.extend(quote_spanned! {mixed=>
        let __warpline_message =
            #runtime::__private::infer::elements(__warpline_message, #value, #named, #takes_dtype, #takes_count);
    });
    if let (Some(_), Some(received), true) = (sent, received, takes_count && operation.takes(Key::CountOut)) {
        // Where sizes differ between ranks or follow from the group, the buffer may be larger than what arrives.
        if operation.receives_all() && is_open(Key::CountOut) {
            let value = size(received, runtime, mixed);
            inferred.calls.extend(quote_spanned! {mixed=>
                let __warpline_message = #runtime::__private::infer::elements_out(__warpline_message, #value);
            });
        }
    }
}

/// The expression for what is known of a buffer when the function runs.
fn size(buffer: &Buffer, runtime: &TokenStream, mixed: Span) -> TokenStream {
    let variable = buffer.variable;
    quote_spanned! {mixed=>
        {
            use #runtime::__private::infer::{AnyBuffer as _, KnownBuffer as _, KnownElements as _};
            (&&&#runtime::__private::infer::Of(&*#variable)).__warpline_elements()
        }
    }
}

/// Whether a parameter holds no elements: the stream, the group, what an option of the mark mentions, a number, a text.
fn is_aside(parameter: &Parameter, written: &Written) -> bool {
    let is_named = |name: &Ident| {
        let word = name.to_string();
        let is_option = Key::named(&word).is_some_and(|key| key == Key::Stream || MESSAGE.contains(&key));
        is_option || word == "comm" || written.expressions.iter().any(|expression| mentions(expression, &word))
    };
    // A pattern that binds nothing gives the function nothing to move.
    parameter.is_receiver || parameter.bindings.iter().all(is_named) || is_scalar(&parameter.type_tokens)
}

/// A number, `bool`, `char` or text, also behind a reference.
fn is_scalar(tokens: &[TokenTree]) -> bool {
    let inside = referent(tokens).map_or(tokens, |(_, inside)| inside);
    match path(inside) {
        Some((word, [])) => {
            let word = word.to_string();
            is_primitive(&word) || ["bool", "char", "str", "String"].contains(&word.as_str())
        }
        _ => false,
    }
}

fn is_primitive(word: &str) -> bool {
    const NUMBERS: [&str; 14] =
        ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "i128", "u128", "isize", "usize", "f32", "f64"];
    NUMBERS.contains(&word)
}

fn is_same(a: &[TokenTree], b: &[TokenTree]) -> bool {
    let text = |tokens: &[TokenTree]| quote!(#(#tokens)*).to_string();
    text(a) == text(b)
}

#[cfg(test)]
mod tests {
    use proc_macro2::Group;

    use super::*;
    use crate::parameter::split;

    #[test]
    fn a_smart_pointer_is_looked_through_if_it_has_an_argument() {
        for (tokens, expected) in [
            (quote!(&Arc<Comm>), Some((2, "Comm"))),
            (quote!(Box<Rc<Group>>), Some((2, "Group"))),
            (quote!(Arc), Some((0, "Arc"))),
            (quote!(Comm), Some((0, "Comm"))),
            (quote!(Vec<Comm>), None),
            (quote!([Comm]), None),
        ] {
            let found = pointee(&visible(tokens.clone()));
            assert_eq!(found, expected.map(|(derefs, word)| (derefs, word.to_owned())), "{tokens}");
        }
    }

    #[test]
    fn a_parameter_that_holds_no_elements_is_not_the_buffer() {
        let mentioned = quote!(gradients.len());
        let written = Written { keys: Vec::new(), expressions: vec![&mentioned] };
        for (parameter, expected) in [
            (quote!(&self), true),
            (quote!(stream: &S), true),
            (quote!(comm: &Comm), true),
            (quote!(group: &ProcessGroup), true),
            (quote!(gradients: &Tensor), true),
            (quote!(scale: f32), true),
            (quote!(name: &str), true),
            (quote!(_: Tensor), true),
            (quote!((stream, group): (&S, &ProcessGroup)), true),
            (quote!((stream, values): (&S, &Tensor)), false),
            (quote!(values: &Tensor), false),
            (quote!(values: &[f32]), false),
        ] {
            let parameters = split(&Group::new(Delimiter::Parenthesis, parameter.clone()));
            assert_eq!(is_aside(&parameters[0], &written), expected, "{parameter}");
        }
    }
}
