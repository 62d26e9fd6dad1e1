//! A catalog in the forms that other programs read: JSON, Markdown, CSV, HTML, filters for the Nsight tools, and a configuration of
//! Perfetto.
//!
//! Programs that print their own catalog and the `warpline` command call this module. Each format has one writer, so a program and
//! its binary export the same bytes. The output does not depend on crate features that another dependency may enable, or on the
//! linker's order.

mod html;
mod perfetto;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::name;
use super::record::{NamespaceRecord, RangeRecord, Records};
use crate::sorting;
use crate::text::{printable, printable_json, printable_lines};

/// The value of `format` in the JSON; a change that breaks readers increments it. The schema is `docs/catalog.schema.json`.
pub const JSON_FORMAT: &str = "warpline-catalog/1";

impl Records {
    /// Returns the catalog as JSON, as `docs/catalog.schema.json` describes it: indented, keys in a fixed order, a newline at the
    /// end.
    /// Control characters and bidirectional formatting characters are escaped.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\n");
        let _ = writeln!(out, "  \"format\": {},", quoted(JSON_FORMAT));
        let _ = writeln!(out, "  \"hash\": \"{:#018x}\",", self.catalog_hash());
        json_list(&mut out, "namespaces", &self.namespaces, json_namespace);
        out.push_str(",\n");
        json_list(&mut out, "ranges", &self.ranges, json_range);
        out.push_str("\n}\n");
        out
    }

    /// Returns the catalog as a Markdown page with one table per namespace. Descriptions are their authors' Markdown, including
    /// links, without HTML and without anything that would break the table. All other text is escaped. Control characters and
    /// bidirectional formatting characters are written as escapes.
    pub fn to_markdown(&self) -> String {
        let mut out = String::from("# Ranges\n");
        for (name, (declarations, ranges)) in self.by_namespace() {
            let _ = writeln!(out, "\n## {}\n", code(name));
            for space in declarations {
                let _ =
                    writeln!(out, "{} (crate {})\n", markdown(&space.about), package(space.krate(), &space.version));
            }
            out.push_str("| range | kind | level | lane | fields | what it is | declared |\n");
            out.push_str("|---|---|---|---|---|---|---|\n");
            ranges.into_iter().for_each(|range| markdown_row(&mut out, range));
        }
        out
    }

    /// Returns the ranges as CSV (RFC 4180): a header line, CRLF at the end of each line, fields joined by spaces. Line ends stay
    /// within quotes; other control characters and bidirectional formatting characters are escaped. A value that a spreadsheet
    /// would take for a formula is prefixed with `'`; the JSON has the exact text.
    pub fn to_csv(&self) -> String {
        let mut out =
            String::from("name,namespace,description,kind,level,lane,color,fields,crate,version,module,file,line\r\n");
        for range in &self.ranges {
            let (color, fields, line) = (color(range), range.fields.join(" "), range.line.to_string());
            let row = [
                &range.name,
                &range.namespace,
                &range.description,
                range.kind,
                range.level,
                range.lane.as_deref().unwrap_or(""),
                color.as_deref().unwrap_or(""),
                &fields,
                range.krate(),
                &range.version,
                &range.module,
                &range.file,
                &line,
            ];
            for (column, value) in row.into_iter().enumerate() {
                out.push_str(if column > 0 { "," } else { "" });
                csv_value(&mut out, value);
            }
            out.push_str("\r\n");
        }
        out
    }

    /// Returns a response file for Nsight Compute, `ncu @ranges.txt ./app`: profile the kernels that are launched inside any range
    /// of a stream. Delete the lines of ranges that you do not need.
    ///
    /// The filter is `domain@range/`; the slash marks a push/pop range. Valid names contain no character with a meaning in a
    /// filter, so nothing needs an escape; invalid names are left out.
    pub fn to_ncu(&self) -> String {
        let mut out = String::from("--nvtx\n");
        let mut last = "";
        for range in self.ranges.iter().filter(|range| range.kind != "host" && is_right(range)) {
            // Two versions of one crate share a filter.
            if range.name != last {
                let _ = writeln!(out, "--nvtx-include {}@{}/", range.namespace, range.name);
                last = &range.name;
            }
        }
        out
    }

    /// Returns a command file for Nsight Systems, `nsys profile --command-file=ranges.txt ./app`: trace CUDA, and only this
    /// catalog's NVTX domains. Nsight Systems has no filter for single ranges.
    pub fn to_nsys(&self) -> String {
        let domains = self.right_namespaces();
        let mut out = String::from("--trace=cuda,nvtx\n");
        if !domains.is_empty() {
            let _ = writeln!(out, "--nvtx-domain-include={}", domains.join(","));
        }
        out
    }

    /// Returns the declarations and the ranges of each namespace.
    fn by_namespace(&self) -> BTreeMap<&str, (Vec<&NamespaceRecord>, Vec<&RangeRecord>)> {
        let mut spaces = BTreeMap::<&str, (Vec<_>, Vec<_>)>::new();
        for space in &self.namespaces {
            spaces.entry(&space.name).or_default().0.push(space);
        }
        for range in &self.ranges {
            spaces.entry(&range.namespace).or_default().1.push(range);
        }
        spaces
    }

    /// Returns the namespaces of the ranges whose names other tools understand.
    fn right_namespaces(&self) -> Vec<&str> {
        let right = self.ranges.iter().filter(|range| is_right(range));
        let mut names: Vec<&str> = right.map(|range| range.namespace.as_str()).collect();
        sorting::sort(&mut names);
        names.dedup();
        names
    }
}

fn is_right(range: &RangeRecord) -> bool {
    name::check_namespace(&range.namespace).is_ok() && name::check(&range.namespace, &range.name).is_ok()
}

/// Returns the color in the format of trace UIs and style sheets.
fn color(range: &RangeRecord) -> Option<String> {
    range.color.map(|color| format!("#{color:06x}"))
}

fn package(krate: &str, version: &str) -> String {
    if version.is_empty() { plain(krate) } else { format!("{} {}", plain(krate), plain(version)) }
}

fn json_list<T>(out: &mut String, key: &str, items: &[T], mut members: impl FnMut(&mut String, &T)) {
    let _ = write!(out, "  {}: [", quoted(key));
    for (index, item) in items.iter().enumerate() {
        out.push_str(if index > 0 { ",\n    {" } else { "\n    {" });
        members(out, item);
        out.push_str("\n    }");
    }
    out.push_str(if items.is_empty() { "]" } else { "\n  ]" });
}

fn json_namespace(out: &mut String, space: &NamespaceRecord) {
    json_member(out, "name", &quoted(&space.name), true);
    json_member(out, "about", &quoted(&space.about), false);
    json_member(out, "crate", &quoted(space.krate()), false);
    json_member(out, "version", &quoted(&space.version), false);
    json_member(out, "file", &quoted(&space.file), false);
    json_member(out, "line", &space.line.to_string(), false);
}

fn json_range(out: &mut String, range: &RangeRecord) {
    let or_null = |text: Option<&str>| text.map_or("null".to_owned(), quoted);
    let fields: Vec<String> = range.fields.iter().map(|field| quoted(field)).collect();
    json_member(out, "name", &quoted(&range.name), true);
    json_member(out, "namespace", &quoted(&range.namespace), false);
    json_member(out, "description", &quoted(&range.description), false);
    json_member(out, "kind", &quoted(range.kind), false);
    json_member(out, "level", &quoted(range.level), false);
    json_member(out, "lane", &or_null(range.lane.as_deref()), false);
    json_member(out, "color", &or_null(color(range).as_deref()), false);
    json_member(out, "fields", &format!("[{}]", fields.join(", ")), false);
    if !range.undescribed.is_empty() {
        let options: Vec<String> = range.undescribed.iter().map(|option| quoted(option)).collect();
        json_member(out, "undescribed", &format!("[{}]", options.join(", ")), false);
    }
    json_member(out, "crate", &quoted(range.krate()), false);
    json_member(out, "version", &quoted(&range.version), false);
    json_member(out, "module", &quoted(&range.module), false);
    json_member(out, "file", &quoted(&range.file), false);
    json_member(out, "line", &range.line.to_string(), false);
}

fn json_member(out: &mut String, key: &str, value: &str, first: bool) {
    let _ = write!(out, "{}\n      {}: {value}", if first { "" } else { "," }, quoted(key));
}

/// Returns a JSON string. Only strings are written with serde_json: the order of a `Value`'s keys depends on its features, which
/// any crate of the program may enable.
#[doc(hidden)]
pub fn quoted(text: &str) -> String {
    printable_json(&serde_json::Value::from(text).to_string()).into_owned()
}

fn markdown_row(out: &mut String, range: &RangeRecord) {
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {}, {}:{} |",
        code(&range.name),
        range.kind,
        range.level,
        plain(range.lane.as_deref().unwrap_or("")),
        plain(&range.fields.join(", ")),
        markdown(&range.description),
        package(range.krate(), &range.version),
        plain(&range.file),
        range.line,
    );
}

/// Returns text on one line that does not end a table cell.
fn cell(text: &str) -> String {
    printable(&text.replace(['\r', '\n'], " ")).replace('|', "\\|")
}

/// Returns a code span. Its fence is longer than every run of backticks in it.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let (fence, gap) = ("`".repeat(longest + 1), if longest > 0 { " " } else { "" });
    format!("{fence}{gap}{}{gap}{fence}", cell(text))
}

/// Returns text with all Markdown and HTML escaped. An underscore between letters and digits needs no escape.
fn plain(text: &str) -> String {
    let (mut out, mut before) = (String::with_capacity(text.len()), ' ');
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_in_word = before.is_alphanumeric() && rest.peek().is_some_and(|next| next.is_alphanumeric());
        if "\\`*<>[]&~".contains(c) || c == '_' && !is_in_word {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    cell(&out)
}

/// Returns foreign Markdown without HTML: outside of code spans, `<` is text.
fn markdown(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['`', '<', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.as_bytes()[0] {
            b'<' => {
                out.push_str("&lt;");
                rest = &rest[1..];
                continue;
            }
            // An escape, with the escaped character.
            b'\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => code_span(rest),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    cell(&out)
}

/// Returns the length of the code span that a text begins with, or of the run of backticks if no run of that length closes it.
fn code_span(text: &str) -> usize {
    let run = |text: &str| text.len() - text.trim_start_matches('`').len();
    let fence = run(text);
    let mut at = fence;
    while let Some(next) = text[at..].find('`') {
        at += next;
        let length = run(&text[at..]);
        at += length;
        if length == fence {
            return at;
        }
    }
    fence
}

fn csv_value(out: &mut String, value: &str) {
    let formula = if value.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    // A line end within quotes is part of the value.
    let value = format!("{formula}{}", printable_lines(value));
    if value.contains([',', '"', '\n']) {
        let _ = write!(out, "\"{}\"", value.replace('"', "\"\""));
    } else {
        out.push_str(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_the_rfc_says() {
        let mut out = String::new();
        csv_value(&mut out, "a \"b\", c\r\nd");
        assert_eq!(out, "\"a \"\"b\"\", c\r\nd\"");
    }

    #[test]
    fn csv_has_no_formulas_and_nothing_that_drives_a_terminal() {
        let shown = |value: &str| {
            let mut out = String::new();
            csv_value(&mut out, value);
            out
        };
        assert_eq!(["=1+1", "@x", "-5", "+5", "a=1"].map(shown), ["'=1+1", "'@x", "'-5", "'+5", "a=1"]);
        assert_eq!(shown("a\u{1b}[31m\u{202e}\rb"), "a\\u{1b}[31m\\u{202e}\\rb");
    }

    #[test]
    fn markdown_of_names_is_text_and_descriptions_have_no_html() {
        assert_eq!(code("demo.add"), "`demo.add`");
        assert_eq!(code("a`<b>``|"), "``` a`<b>``\\| ```");
        assert_eq!(plain("src/a_b.rs"), "src/a_b.rs");
        assert_eq!(plain("_a_ <b> [c](d) `e` | f\u{202e}"), "\\_a\\_ \\<b\\> \\[c\\](d) \\`e\\` \\| f\\u{202e}");
        assert_eq!(
            markdown("Adds `Vec<T>` to <img src=x>\nand ``a`<b>`` [x](y)."),
            "Adds `Vec<T>` to &lt;img src=x> and ``a`<b>`` [x](y)."
        );
        for (open, shown) in [
            ("` <b>", "` &lt;b>"),
            ("`` <b> `", "`` &lt;b> `"),
            ("\\` <b> `", "\\` &lt;b> `"),
            ("\\\\<b>", "\\\\&lt;b>"),
        ] {
            assert_eq!(markdown(open), shown);
        }
        assert_eq!(markdown("\\"), "\\");
    }
}
