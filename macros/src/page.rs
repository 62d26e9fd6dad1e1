//! `__page!`: a page of the project's Markdown as a text that rustdoc renders, for the crate's guide.
//!
//! In a checkout the pages link each other as files, and files beside them. In rustdoc's output these files do not exist: a link to
//! another page becomes one to its module in `crate::guide`, a picture is put into the text, and a link to any other file becomes
//! that file's name. Called while the documentation is built, and in no other build.

use std::path::{Path, PathBuf};

use syn::LitStr;

/// The page, whose path counts from the package that is being compiled.
pub fn expand(input: proc_macro2::TokenStream) -> syn::Result<String> {
    let path: LitStr = syn::parse2(input)?;
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let file = root.join(path.value());
    let text = std::fs::read_to_string(&file)
        .map_err(|error| syn::Error::new(path.span(), format!("cannot read `{}`: {error}", file.display())))?;
    Ok(rewritten(&text, file.parent().unwrap_or(&root)))
}

/// The text with its links changed, but for those in code blocks.
fn rewritten(text: &str, folder: &Path) -> String {
    let mut out = String::with_capacity(text.len());
    // A link may go on in the next line, so prose is taken up to the next fence.
    for (index, part) in split_at_fences(text).into_iter().enumerate() {
        if index % 2 == 0 { out.push_str(&prose(part, folder)) } else { out.push_str(part) }
    }
    out
}

/// Prose and code in turn, prose first; the fences are with the code.
fn split_at_fences(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if line.starts_with("```") {
            let is_code = parts.len() % 2 == 1;
            let cut = if is_code { end } else { at };
            parts.push(&text[begin..cut]);
            begin = cut;
        }
        at = end;
    }
    parts.push(&text[begin..]);
    parts
}

fn prose(text: &str, folder: &Path) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(middle) = rest.find("](") {
        let (before, behind) = (&rest[..middle], &rest[middle + 2..]);
        let (Some(open), Some(close)) = (before.rfind('['), behind.find(')')) else { break };
        let (label, target) = (&before[open + 1..], &behind[..close]);
        let is_picture = before[..open].ends_with('!');
        out.push_str(&before[..open - usize::from(is_picture)]);
        out.push_str(&if is_picture { picture(label, target, folder) } else { link(label, target) });
        rest = &behind[close + 1..];
    }
    out + rest
}

fn link(label: &str, target: &str) -> String {
    let (path, fragment) = target.split_once('#').map_or((target, None), |(path, fragment)| (path, Some(fragment)));
    if path.is_empty() || path.contains("://") {
        return format!("[{label}]({target})");
    }
    if let Some(page) = path.strip_suffix(".md").filter(|page| !page.contains('/')) {
        let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
        // The index is the guide's own page; a module's name has no hyphen.
        let module = if page == "README" { String::new() } else { format!("::{}", page.replace('-', "_")) };
        return format!("[{label}](crate::guide{module}{fragment})");
    }
    let path = path.strip_prefix("../").map_or_else(|| format!("docs/{path}"), str::to_owned);
    if label.trim_matches('`') == path { format!("`{path}`") } else { format!("{label} (`{path}`)") }
}

/// A picture within the text; its label alone where there is none.
fn picture(label: &str, target: &str, folder: &Path) -> String {
    let kind = match target.rsplit_once('.') {
        Some((_, "svg")) => "svg+xml",
        Some((_, "png")) => "png",
        _ => return format!("*{label}*"),
    };
    match std::fs::read(folder.join(target)) {
        Ok(bytes) => format!("![{label}](data:image/{kind};base64,{})", base64(&bytes)),
        Err(_) => format!("*{label}*"),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let is_there = digit <= three.len();
            out.push(if is_there { DIGITS[bits >> (18 - 6 * digit) & 63] as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        rewritten(text, Path::new("/nowhere"))
    }

    #[test]
    fn links_lead_to_modules_and_files_are_named() {
        assert_eq!(line("See [marks](marks.md)."), "See [marks](crate::guide::marks).");
        assert_eq!(line("[a](how-it-works.md#b)"), "[a](crate::guide::how_it_works#b)");
        assert_eq!(line("[index](README.md)"), "[index](crate::guide)");
        assert_eq!(
            line("| [a](a.md#one-two) | [b](#by-order) |\n"),
            "| [a](crate::guide::a#one-two) | [b](#by-order) |\n"
        );
        assert_eq!(line("[Tracy](https://example.org/a.md)"), "[Tracy](https://example.org/a.md)");
        assert_eq!(line("[its code](../examples/tracy.rs)"), "its code (`examples/tracy.rs`)");
        assert_eq!(line("[benches/RESULTS.md](../benches/RESULTS.md#x)"), "`benches/RESULTS.md`");
        assert_eq!(line("[schema](graph.schema.json)"), "schema (`docs/graph.schema.json`)");
        assert_eq!(line("![A table.](nowhere.svg)"), "*A table.*");
        assert_eq!(
            line("```rust\nlet a = b[0](c.md);\n```\n[c](c.md)"),
            "```rust\nlet a = b[0](c.md);\n```\n[c](crate::guide::c)"
        );
        assert_eq!(line("[from\noutside](control.md)\n"), "[from\noutside](crate::guide::control)\n");
        assert_eq!(line("`a[0]` and (b)"), "`a[0]` and (b)");
    }

    #[test]
    fn base64_is_as_specified() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
