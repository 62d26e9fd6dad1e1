//! The attribute macros of warpline. Use them through the crate `warpline`, which re-exports them.
//!
//! They know the grammar of marks and nothing of GPUs: what they emit calls the hidden functions and macros of the
//! runtime. A function's header is scanned as tokens, its body is handed on as it is; with `err`, its exits are rewritten.
#![forbid(unsafe_code)]

mod block;
mod claim;
mod collective;
mod key;
mod mark;
mod options;
mod page;
mod parameter;
mod range;
mod spec;
mod tokens;
mod zone;

use proc_macro::{Literal, TokenStream, TokenTree};

/// Marks a function that launches work on a GPU stream: each call is a zone on that stream.
///
/// `#[gpu_zone("name", option, …)]`, or `#[gpu_zone(DECLARED, option, …)]` with a range of `range!`. The crate has a `namespace!` at
/// its root, and a doc comment describes the range.
///
/// ```
/// use warpline::{HostStream, gpu_zone};
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// /// Doubles each number on the stream.
/// #[gpu_zone("demo.double", fields(n = numbers.len()), level = fine)]
/// fn double(stream: &HostStream, numbers: Vec<f32>) {
///     stream.launch(move || drop(numbers.iter().map(|x| 2.0 * x).collect::<Vec<_>>()));
/// }
/// # fn main() { double(&HostStream::new("s"), vec![1.0]); }
/// ```
///
/// # Options
/// In any order:
///
/// | option | meaning | default |
/// |---|---|---|
/// | `"demo.add"` or a path (first, no key) | the range's name, or a range that `range!` declares | `<namespace>.<function>` |
/// | `stream = expression` | what implements `AsStream`, such as `self.stream` | the parameter named `stream`, also in a pattern |
/// | `description = "…"` | what the range is | the first paragraph of the doc comment |
/// | `fields(name = expression, …)` | at most 8 values: integers, floats, `bool`, text, or `warpline::display(&value)` | none |
/// | `label = expression` | the instance's own label: anything with a `Display`, cut to 62 bytes | none |
/// | `level = coarse`, `level = fine` | how much detail the range is | `coarse` |
/// | `lane = "…"` or `lane = <expression>` | the lane of a trace that shows the range; with any other expression than a literal, the call | none |
/// | `color = 0xRRGGBB` | the range's color in a trace | none |
/// | `err` | records the `Err` of the function, which has a `Display` | not looked at |
/// | `begin = stream`, `begin = launch` | where the zone begins; `launch` is for one launch at the function's end | `stream` |
/// | `step`, `step = expression` | each zone is one step of the program, with the next number or this one | no step |
/// | `bytes = expression`, `flops = expression` | bytes that the work reads and writes, and its floating-point operations | none |
/// | `crate = path` | where `warpline` is | `::warpline` |
///
/// `fields`, `label` and `stream` are evaluated only while the zone is recorded.
///
/// An `async fn`, and a function whose body ends with `async move { … }` or `Box::pin(async move { … })`, is one zone from the
/// future's first poll to its completion.
///
/// # Errors
/// The function does not compile with a bad, foreign or duplicate name, without a description or a stream, with an option that it
/// does not take, or with other fields than a declared range has. The error says what to write.
///
/// The whole grammar: `docs/marks.md` in the repository.
#[proc_macro_attribute]
pub fn gpu_zone(args: TokenStream, item: TokenStream) -> TokenStream {
    mark::expand(&mark::GPU, args.into(), item.into()).into()
}

/// Marks a function that works on its thread: each call is a zone of the thread, with no stream.
///
/// `#[host_zone("name", option, …)]`, or `#[host_zone(DECLARED, option, …)]` with a range of `range!` that has `kind = host`.
///
/// ```
/// use std::path::Path;
///
/// use warpline::host_zone;
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// /// Reads a file of numbers.
/// #[host_zone("demo.load", err, label = path.display())]
/// fn load(path: &Path) -> std::io::Result<Vec<u8>> {
///     std::fs::read(path)
/// }
/// # fn main() { let _ = load(Path::new("numbers")); }
/// ```
///
/// # Options
/// Those of `gpu_zone` except `stream` and `begin`, in any order:
///
/// | option | meaning | default |
/// |---|---|---|
/// | `"demo.add"` or a path (first, no key) | the range's name, or a range that `range!` declares | `<namespace>.<function>` |
/// | `description = "…"` | what the range is | the first paragraph of the doc comment |
/// | `fields(name = expression, …)` | at most 8 values: integers, floats, `bool`, text, or `warpline::display(&value)` | none |
/// | `label = expression` | the instance's own label: anything with a `Display`, cut to 62 bytes | none |
/// | `level = coarse`, `level = fine` | how much detail the range is | `coarse` |
/// | `lane = "…"` or `lane = <expression>` | the lane of a trace that shows the range; with any other expression than a literal, the call | none |
/// | `color = 0xRRGGBB` | the range's color in a trace | none |
/// | `err` | records the `Err` of the function, which has a `Display` | not looked at |
/// | `bytes = expression`, `flops = expression` | bytes that the work reads and writes, and its floating-point operations | none |
/// | `crate = path` | where `warpline` is | `::warpline` |
///
/// # Errors
/// As for `gpu_zone`.
///
/// The whole grammar: `docs/marks.md` in the repository.
#[proc_macro_attribute]
pub fn host_zone(args: TokenStream, item: TokenStream) -> TokenStream {
    mark::expand(&mark::HOST, args.into(), item.into()).into()
}

/// Marks a function that calls a collective: each call is a zone on its stream, with the message that it transfers between ranks.
///
/// `#[collective(kind = "all_reduce", option, …)]`, with a name or a declared range of `kind = collective` first, as in `gpu_zone`.
///
/// ```
/// use warpline::{HostStream, collective};
/// use warpline::collective::ProcessGroup;
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// /// Sums the gradients of all ranks.
/// #[collective(kind = "all_reduce", count = buffer.len(), dtype = f32, group = group, op = "sum")]
/// fn sync(stream: &HostStream, group: &ProcessGroup, buffer: &mut [f32]) {
///     // ncclAllReduce
/// }
/// # fn main() {}
/// ```
///
/// # Options
/// Those of `gpu_zone`, and the message. All options but `kind` are optional. `group`, `count` and `dtype` are inferred from the
/// parameters of the function where these are clear; what is neither given nor inferred is unknown in the records. An option that does
/// not apply to the kind is an error:
///
/// | option | what it says |
/// |---|---|
/// | `kind = "all_reduce"` | the operation, as `CollectiveKind` names it |
/// | `count = expression`, `count_out = expression` | elements that this rank puts in, and gets out |
/// | `dtype = f32`, `dtype = "bf16"`, `dtype = <T>` | the type of the elements, or an expression |
/// | `group = expression` | the `ProcessGroup` of the ranks that take part |
/// | `root = expression`, `peer = expression` | the rank from which or to which all goes; the other rank |
/// | `op = "sum"` | the reduction |
/// | `in_split = expression`, `out_split = expression` | elements for and from each rank, where they differ |
/// | `seq = expression`, `is_async = expression` | the number of the call in its group; whether the caller does not wait |
/// | `infer = none` | nothing is inferred from the parameters |
///
/// # Errors
/// As for `gpu_zone`; also an unknown kind, or an option that does not apply to the kind.
///
/// The whole grammar: `docs/collectives.md` in the repository.
#[proc_macro_attribute]
pub fn collective(args: TokenStream, item: TokenStream) -> TokenStream {
    mark::expand(&mark::COLLECTIVE, args.into(), item.into()).into()
}

/// `block::collective!`: marks a part of a function as a collective.
///
/// `collective!("name", stream, kind = "all_reduce", option, …, { … })`. The options are those of the attribute `collective`, but
/// for `stream`, which follows the name, and `err`; a doc comment may stand before the name in place of `description`.
///
/// ```
/// use warpline::{HostStream, block};
/// use warpline::collective::ProcessGroup;
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// fn step(stream: &HostStream, group: &ProcessGroup, n: usize) {
///     block::collective!(
///         "demo.sync", stream, kind = "all_reduce", count = n, dtype = f32, group = group,
///         description = "Sums the gradients of all ranks.",
///         {
///             // ncclAllReduce
///         }
///     );
/// }
/// # fn main() {}
/// ```
///
/// The whole grammar: `docs/collectives.md` in the repository.
#[proc_macro]
pub fn collective_block(input: TokenStream) -> TokenStream {
    block::expand(block::On::Ranks, input.into()).into()
}

/// `block::gpu_zone!`: marks a part of a function that launches work on a GPU stream.
///
/// `gpu_zone!("name", stream, option, …, { … })`. The value is the block's. The options are those of the attribute `gpu_zone`, but
/// for `stream`, which follows the name, and `err`; a doc comment may stand before the name in place of `description`. With
/// `async move` before the braces, the value is a future and the zone lasts until it completes.
///
/// ```
/// use warpline::{HostStream, block};
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// fn step(stream: &HostStream, rows: u64) {
///     block::gpu_zone!("demo.scale", stream, description = "Scales a batch.", fields(rows = rows), {
///         stream.launch(|| ());
///     });
/// }
/// # fn main() { step(&HostStream::new("s"), 1); }
/// ```
///
/// The whole grammar: `docs/marks.md` in the repository.
#[proc_macro]
pub fn gpu_zone_block(input: TokenStream) -> TokenStream {
    block::expand(block::On::Stream, input.into()).into()
}

/// `block::host_zone!`: marks a part of a function that works on its thread.
///
/// `host_zone!("name", option, …, { … })`. The value is the block's. The options are those of the attribute `host_zone`, but for
/// `err`; a doc comment may stand before the name in place of `description`.
///
/// ```
/// use warpline::block;
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// fn rows(text: &str) -> Result<u64, std::num::ParseIntError> {
///     let rows = block::host_zone!("demo.parse", description = "Reads the header.", { text.parse()? });
///     Ok(rows)
/// }
/// # fn main() { assert_eq!(rows("3"), Ok(3)); }
/// ```
///
/// The whole grammar: `docs/marks.md` in the repository.
#[proc_macro]
pub fn host_zone_block(input: TokenStream) -> TokenStream {
    block::expand(block::On::Thread, input.into()).into()
}

/// Declares ranges that several marks share, or whose zones begin by hand: each is a static `RangeSpec`.
///
/// `[attributes] [pub] NAME = "name": "description", option, …;`, as often as needed. A doc comment may take the place of the
/// description.
///
/// ```
/// use warpline::{HostStream, gpu_zone};
///
/// warpline::namespace!("vyre.cuda", "the CUDA backend of vyre");
///
/// warpline::range! {
///     /// PTX lowering.
///     pub CODEGEN = "vyre.cuda.codegen", fields(n);
///     pub DISPATCH = "vyre.cuda.dispatch": "Prepares a launch on the host.", kind = host, level = fine;
/// }
///
/// #[gpu_zone(CODEGEN, fields(n = n))]
/// fn lower(stream: &HostStream, n: u32) {
///     let _dispatch = DISPATCH.host();
///     stream.launch(move || drop(n));
/// }
/// # fn main() { lower(&HostStream::new("s"), 1); }
/// ```
///
/// # Options
/// In any order:
///
/// | option | meaning | default |
/// |---|---|---|
/// | `kind = gpu`, `kind = host`, `kind = collective` | what the range times, and so which mark it takes | `gpu` |
/// | `fields(name, …)` | the fields that each mark of the range gives a value | none |
/// | `level = coarse`, `level = fine` | how much detail the range is | `coarse` |
/// | `lane = "…"` | the lane of a trace that shows the range | none |
/// | `color = 0xRRGGBB` | the range's color in a trace | none |
/// | `crate = path` | where `warpline` is | `::warpline` |
///
/// # Errors
/// A declaration does not compile with a bad, foreign or duplicate name or without a description.
///
/// The whole grammar: `docs/marks.md` in the repository.
#[proc_macro]
pub fn range(input: TokenStream) -> TokenStream {
    range::expand(input.into()).into()
}

/// What `namespace!` calls to claim the name of a mark that is named after its function. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __claim(input: TokenStream) -> TokenStream {
    claim::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The version of the package that is being compiled, as a literal that `concat!` takes. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __version(_: TokenStream) -> TokenStream {
    TokenTree::from(Literal::string(&spec::version())).into()
}

/// A page of the guide, with links that rustdoc follows. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __page(input: TokenStream) -> TokenStream {
    match page::expand(input.into()) {
        Ok(text) => TokenTree::from(Literal::string(&text)).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// The name of the package that is being compiled, as a literal that `concat!` takes. Not for people.
#[doc(hidden)]
#[proc_macro]
pub fn __package(_: TokenStream) -> TokenStream {
    TokenTree::from(Literal::string(&spec::package())).into()
}
