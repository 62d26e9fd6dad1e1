//! The attribute macros of warpline. Use them through the crate `warpline`.

use proc_macro::TokenStream;

macro_rules! attribute { ($($n:ident)*) => {$(
/// bootstrap
#[proc_macro_attribute] pub fn $n(_: TokenStream, item: TokenStream) -> TokenStream { item }
)*} }
macro_rules! bang { ($($n:ident)*) => {$(
/// bootstrap
#[proc_macro] pub fn $n(_: TokenStream) -> TokenStream { TokenStream::new() }
)*} }
attribute!(gpu_zone host_zone);
bang!(range gpu_zone_block host_zone_block __claim);
