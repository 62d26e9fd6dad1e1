//! The options of a mark: `key = value`, `fields(…)` and `err`, in any order.
//!
//! Each macro says which keys it takes; everything else is refused here, so that a wrong key reads the same everywhere.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Error, ParseStream, Result};
use syn::{Lit, LitInt, LitStr, Token, parenthesized};

use crate::collective::{Message, Operation};
use crate::key::{Key, MESSAGE, nearest};
use crate::parameter::Parameter;
use crate::tokens::{at, is_path, take_value};

/// The most fields a mark may have; the runtime keeps as many inline.
const MAX_FIELDS: usize = 8;

/// A macro, and which options it takes.
pub struct Grammar {
    /// The macro's name in errors.
    pub name: &'static str,
    pub keys: &'static [Key],
    /// Those of `keys` that it does not take.
    pub without: &'static [Key],
    /// Whether `fields(…)` names fields only, or gives their values too. Only a zone that has values has a lane of its
    /// own at run time.
    pub field_values: bool,
    /// Whether it says what is moved between ranks; `kind` then is the operation.
    pub is_collective: bool,
    /// Why an option of another macro does not belong here, and what to do instead.
    pub refuse: fn(Key) -> &'static str,
}

impl Grammar {
    /// The options that it takes, those that are its own first.
    pub fn options(&self) -> impl Iterator<Item = Key> {
        let own = if self.is_collective { MESSAGE } else { &[] };
        let keys = own.iter().chain(self.keys).copied().filter(|key| !self.without.contains(key));
        self.is_collective.then_some(Key::Kind).into_iter().chain(keys)
    }

    pub fn takes(&self, key: Key) -> bool {
        self.options().any(|own| own == key)
    }
}

/// What a range times.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Gpu,
    Host,
    Collective,
}

/// Each kind as it is written and as the catalog has it, and the runtime's `Kind::…`; in the order of [`Kind`].
const KINDS: [(Kind, &str, &str); 3] =
    [(Kind::Gpu, "gpu", "Gpu"), (Kind::Host, "host", "Host"), (Kind::Collective, "collective", "Collective")];

impl Kind {
    pub fn word(self) -> &'static str {
        KINDS[self as usize].1
    }

    pub fn variant(self) -> &'static str {
        KINDS[self as usize].2
    }
}

/// A field of a mark. A declared range has only the name.
pub struct Field {
    pub name: Ident,
    pub value: TokenStream,
}

/// What was written, each with where its key stands.
#[derive(Default)]
pub struct Options {
    seen: Vec<(Key, Span)>,
    pub stream: Option<TokenStream>,
    /// The `#[cfg(…)]` of the parameter that is the stream. Where it removes the parameter, the zone is a host zone.
    pub stream_conditions: TokenStream,
    /// Whether the stream is kept until the zone begins, because the zone is in a future that the function returns.
    pub keeps_stream: bool,
    pub description: Option<LitStr>,
    pub fields: Vec<Field>,
    pub is_fine: bool,
    pub lane: Option<LitStr>,
    /// A lane that is evaluated when a zone begins.
    pub lane_value: Option<TokenStream>,
    pub color: Option<u32>,
    pub label: Option<TokenStream>,
    /// Where the stream waits for the launch, the zone begins with it.
    pub at_launch: bool,
    /// Whether the zone is a step of the program, and the expression of its number if that is given.
    pub step: Option<Option<TokenStream>>,
    /// The bytes and the floating-point operations of the zone's work.
    pub bytes: Option<TokenStream>,
    pub flops: Option<TokenStream>,
    pub kind: Kind,
    /// What a collective moves.
    pub message: Message,
    /// Whether the message is only what is written.
    pub infers_nothing: bool,
    pub krate: Option<TokenStream>,
}

impl Options {
    /// Where the option's key stands, if it was written.
    pub fn span_of(&self, key: Key) -> Option<Span> {
        self.seen.iter().find(|(seen, _)| *seen == key).map(|(_, span)| *span)
    }

    /// The options that were written, and where.
    pub fn seen(&self) -> &[(Key, Span)] {
        &self.seen
    }

    /// Infers what the mark leaves out of a collective's message.
    pub fn infer(&mut self, parameters: &[Parameter], runtime: &TokenStream) {
        let written = self.span_of(Key::Stream).and(self.stream.as_ref());
        self.message.infer(&self.seen, written, parameters, runtime, at(Span::call_site()));
    }

    /// Parses one option.
    pub fn parse_one(&mut self, grammar: &Grammar, input: ParseStream) -> Result<()> {
        let word = input.call(Ident::parse_any).map_err(|error| {
            Error::new(error.span(), format!("expected an option of `{}`: {}", grammar.name, listed(grammar)))
        })?;
        let key = recognise(grammar, &word)?;
        if self.span_of(key).is_some() {
            return Err(Error::new(
                word.span(),
                format!("`{}` is given more than once; remove all but one", key.name()),
            ));
        }
        self.seen.push((key, word.span()));
        match key {
            Key::Err => no_value(input),
            Key::Step if !input.peek(Token![=]) => {
                self.step = Some(None);
                if input.is_empty() || input.peek(Token![,]) {
                    Ok(())
                } else {
                    Err(input.error(format!("expected nothing or a number; write `{}`", key.usage())))
                }
            }
            Key::Fields => self.parse_fields(grammar, &word, input),
            _ if !input.peek(Token![=]) => {
                Err(Error::new(word.span(), format!("`{}` needs a value; write `{}`", key.name(), key.usage())))
            }
            _ => {
                input.parse::<Token![=]>()?;
                self.parse_value(grammar, key, &word, input)
            }
        }
    }

    fn parse_value(&mut self, grammar: &Grammar, key: Key, word: &Ident, input: ParseStream) -> Result<()> {
        // A range has no lane that is evaluated for each zone.
        let usage = if key == Key::Lane { "lane = \"…\"" } else { key.usage() };
        let wrong = |span| Error::new(span, format!("`{}` does not accept this value; write `{usage}`", key.name()));
        let text = || match input.parse::<LitStr>() {
            Ok(text) if text.value().trim().is_empty() => {
                Err(Error::new(text.span(), format!("`{}` is empty; write `{usage}`", key.name())))
            }
            Ok(text) => Ok(text),
            Err(error) => Err(wrong(error.span())),
        };
        match key {
            Key::Stream => self.stream = Some(expression(key, word, input)?),
            Key::Label => {
                let label = expression(key, word, input)?;
                unformatted(key, &label)?;
                self.label = Some(label);
            }
            Key::Crate => {
                let span = input.span();
                self.krate = Some(
                    expression(key, word, input)
                        .and_then(|path| if is_path(&path) { Ok(path) } else { Err(wrong(span)) })?,
                );
            }
            Key::Description => self.description = Some(text()?),
            Key::Lane if !grammar.field_values => self.lane = Some(text()?),
            Key::Lane => self.parse_lane(word, input)?,
            Key::Level => self.is_fine = one_of(input, [("coarse", false), ("fine", true)]).map_err(wrong)?,
            Key::Infer => self.infers_nothing = one_of(input, [("none", true)]).map_err(wrong)?,
            Key::Begin => self.at_launch = one_of(input, [("stream", false), ("launch", true)]).map_err(wrong)?,
            Key::Kind if grammar.is_collective => self.message.operation = Some(Operation::parse(input)?),
            Key::Kind => self.kind = one_of(input, KINDS.map(|(kind, word, _)| (word, kind))).map_err(wrong)?,
            Key::Color => {
                let color: LitInt = input.parse().map_err(|error: Error| wrong(error.span()))?;
                let value = color.base10_parse::<u32>().ok().filter(|&value| value <= 0xFF_FF_FF);
                self.color = Some(value.ok_or_else(|| {
                    Error::new(color.span(), "a color has three bytes, red, green and blue; write `color = 0xRRGGBB`")
                })?);
            }
            Key::Step => self.step = Some(Some(expression(key, word, input)?)),
            Key::Bytes => self.bytes = Some(expression(key, word, input)?),
            Key::Flops => self.flops = Some(expression(key, word, input)?),
            Key::Err | Key::Fields => {}
            _ => self.message.set(key, expression(key, word, input)?),
        }
        Ok(())
    }

    /// A string literal is the lane of the range; any other expression is that of each zone.
    fn parse_lane(&mut self, word: &Ident, input: ParseStream) -> Result<()> {
        let key = Key::Lane;
        let lane = expression(key, word, input)?;
        match syn::parse2::<Lit>(lane.clone()) {
            Ok(Lit::Str(name)) if name.value().trim().is_empty() => {
                Err(Error::new(name.span(), format!("`{}` is empty; write `{}`", key.name(), key.usage())))
            }
            Ok(Lit::Str(name)) => {
                unformatted(key, &lane)?;
                self.lane = Some(name);
                Ok(())
            }
            Ok(other) => {
                let text = format!("`{}` does not accept this value; write `{}`", key.name(), key.usage());
                Err(Error::new(other.span(), text))
            }
            Err(_) => {
                self.lane_value = Some(lane);
                Ok(())
            }
        }
    }

    fn parse_fields(&mut self, grammar: &Grammar, word: &Ident, input: ParseStream) -> Result<()> {
        let usage = if grammar.field_values { Key::Fields.usage() } else { "fields(name, …)" };
        if !input.peek(syn::token::Paren) {
            return Err(Error::new(word.span(), format!("`fields` needs its fields in parentheses; write `{usage}`")));
        }
        let list;
        parenthesized!(list in input);
        while !list.is_empty() {
            if let Some(sigil) = list.peek(Token![?]).then_some('?').or(list.peek(Token![%]).then_some('%')) {
                let start = list.span();
                list.parse::<TokenTree>()?;
                let name = list.call(Ident::parse_any).map_or_else(|_| "n".to_owned(), |name| name.to_string());
                return Err(of_tracing(start, sigil, &name, &name));
            }
            let name: Ident = list
                .call(Ident::parse_any)
                .map_err(|error| Error::new(error.span(), format!("expected a field's name; write `{usage}`")))?;
            if self.fields.iter().any(|field| field.name == name) {
                return Err(Error::new(
                    name.span(),
                    format!("field `{name}` is given more than once; remove all but one"),
                ));
            }
            if self.fields.len() == MAX_FIELDS {
                return Err(Error::new(
                    name.span(),
                    format!("a zone has at most {MAX_FIELDS} fields; remove `{name}` and the fields after it"),
                ));
            }
            let value = match (grammar.field_values, list.peek(Token![=])) {
                (true, true) => {
                    list.parse::<Token![=]>()?;
                    if let Some(sigil) = list.peek(Token![?]).then_some('?').or(list.peek(Token![%]).then_some('%')) {
                        let start = list.span();
                        list.parse::<TokenTree>()?;
                        let value = take_value(&list)?.to_string();
                        return Err(of_tracing(start, sigil, &name.to_string(), &value));
                    }
                    expression(Key::Fields, &name, &list)?
                }
                (true, false) => {
                    return Err(Error::new(
                        name.span(),
                        format!("field `{name}` needs a value; write `{name} = {name}`"),
                    ));
                }
                (false, true) => {
                    return Err(Error::new(
                        name.span(),
                        format!("a declared range only names its fields, a mark gives their values; write `{name}`"),
                    ));
                }
                (false, false) => TokenStream::new(),
            };
            self.fields.push(Field { name, value });
            if !list.is_empty() {
                list.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }
}

fn recognise(grammar: &Grammar, word: &Ident) -> Result<Key> {
    let name = word.to_string();
    match Key::named(&name) {
        Some(key) if grammar.takes(key) => Ok(key),
        Some(key) if MESSAGE.contains(&key) => {
            let text = format!("`{name}` says what a collective moves; remove it, or mark with `collective`");
            Err(Error::new(word.span(), text))
        }
        Some(Key::Infer) => {
            let text = "only `#[collective]` infers options, from the parameters of its function; remove `infer`";
            Err(Error::new(word.span(), text))
        }
        Some(key) => Err(Error::new(word.span(), (grammar.refuse)(key))),
        None => {
            let help = match nearest(grammar.options(), &name) {
                Some(key) => format!("did you mean `{}`?", key.name()),
                None => format!("its options are {}", listed(grammar)),
            };
            Err(Error::new(word.span(), format!("`{}` has no option `{name}`; {help}", grammar.name)))
        }
    }
}

/// The error of `?n` and `%n`, which `tracing` takes.
fn of_tracing(span: Span, sigil: char, name: &str, value: &str) -> Error {
    let value = match sigil {
        '?' => format!("warpline::display(format_args!(\"{{:?}}\", {value}))"),
        _ => format!("warpline::display(&{value})"),
    };
    Error::new(span, format!("`{sigil}` is not allowed before a field; write `{name} = {value}`"))
}

/// Refuses a label or a lane that somebody takes for a format string.
fn unformatted(key: Key, value: &TokenStream) -> Result<()> {
    let Ok(literal) = syn::parse2::<LitStr>(value.clone()) else { return Ok(()) };
    let text = literal.value();
    let has_variable = text.split('{').skip(1).any(|rest| {
        rest.split_once('}').is_some_and(|(inside, _)| {
            let name = inside.split(':').next().unwrap_or_default();
            name.chars().all(|c| c == '_' || c.is_alphanumeric())
        })
    });
    if has_variable {
        let name = key.name();
        let text = format!("a {name} is not a format string; write `{name} = format_args!({:?})`", literal.value());
        return Err(Error::new(literal.span(), text));
    }
    Ok(())
}

fn no_value(input: ParseStream) -> Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        Ok(())
    } else {
        Err(input.error("`err` takes no value; write `err`"))
    }
}

fn expression(key: Key, word: &Ident, input: ParseStream) -> Result<TokenStream> {
    let tokens = take_value(input)?;
    if tokens.is_empty() {
        return Err(Error::new(word.span(), format!("`{word} =` has no value; write `{}`", key.usage())));
    }
    Ok(tokens)
}

/// What the word means that was written, with quotes or without.
fn one_of<T, const N: usize>(input: ParseStream, words: [(&str, T); N]) -> std::result::Result<T, Span> {
    let span = input.span();
    let word = match input.parse::<LitStr>() {
        Ok(quoted) => quoted.value(),
        Err(_) => input.call(Ident::parse_any).map_err(|_| span)?.to_string(),
    };
    words.into_iter().find(|(known, _)| word == *known).map(|(_, meaning)| meaning).ok_or(span)
}

fn listed(grammar: &Grammar) -> String {
    let names: Vec<String> = grammar.options().map(|key| format!("`{}`", key.name())).collect();
    names.join(", ")
}
