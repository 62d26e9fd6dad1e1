//! The catalog as one page of HTML, which loads nothing: a table for each namespace, and a field that searches them.
//!
//! Every text of the catalog is text in the page: names and descriptions may come from an untrusted binary.

use std::fmt::Write;

use super::color;
use crate::catalog::record::{RangeRecord, Records};
use crate::text::printable;

/// The page up to its first heading. The policy forbids every request, and its only script is the one at the end.
const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<title>Ranges</title>
<style>
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { margin: 2em auto; max-width: 100em; padding: 0 1em }
input { font: inherit; padding: .4em .6em; width: min(40em, 100%); box-sizing: border-box }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3em .8em .3em 0; border-bottom: 1px solid #8884 }
td:first-child, .source { font-family: ui-monospace, monospace; overflow-wrap: anywhere }
.color { display: inline-block; width: .8em; height: .8em; margin-right: .5em; border: 1px solid #8888 }
</style>
</head>
<body>
<h1>Ranges</h1>
"#;

/// Shows the rows that contain all words of the search, and hides the namespaces without such rows.
const SCRIPT: &str = r#"<script>
const search = document.querySelector("input"), shown = document.querySelector("output");
const rows = Array.from(document.querySelectorAll("tbody tr"), row => [row, row.textContent.toLowerCase()]);
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(word => word);
  let count = 0;
  for (const [row, text] of rows) {
    row.hidden = !words.every(word => text.includes(word));
    count += !row.hidden;
  }
  for (const section of document.querySelectorAll("section"))
    section.hidden = words.length > 0 && !section.querySelector("tbody tr:not([hidden])");
  shown.textContent = words.length > 0 ? `${count} of ${rows.length}` : "";
});
</script>
"#;

impl Records {
    /// Returns the catalog as one HTML page: a table for each namespace with description, kind, color and source of its ranges, and
    /// a field that searches them. The page makes no request. All text of the catalog is escaped; control characters and
    /// bidirectional formatting characters are written as escapes.
    pub fn to_html(&self) -> String {
        let mut out = String::from(HEAD);
        let _ = writeln!(out, "<p>{} ranges, catalog {:#018x}</p>", self.ranges.len(), self.catalog_hash());
        out.push_str("<p><input type=\"search\" placeholder=\"Search names, descriptions, kinds and files\" aria-label=\"Search\" autofocus> <output></output></p>\n");
        for (name, (declarations, ranges)) in self.by_namespace() {
            let _ = writeln!(out, "<section>\n<h2>{}</h2>", text(name));
            for space in declarations {
                let crate_of = format!("{} {}", space.krate(), space.version);
                let _ = writeln!(out, "<p>{} (crate {})</p>", text(&space.about), text(crate_of.trim_end()));
            }
            out.push_str("<table>\n<thead><tr><th>range<th>kind<th>level<th>lane<th>fields<th>what it is<th>crate<th>declared</tr></thead>\n<tbody>\n");
            ranges.into_iter().for_each(|range| row(range, &mut out));
            out.push_str("</tbody>\n</table>\n</section>\n");
        }
        out.push_str(SCRIPT);
        out.push_str("</body>\n</html>\n");
        out
    }
}

fn row(range: &RangeRecord, out: &mut String) {
    // A color is a number, so it needs no escape.
    let color = color(range)
        .map(|color| format!("<span class=\"color\" style=\"background:{color}\" title=\"{color}\"></span>"));
    let crate_of = format!("{} {}", range.krate(), range.version);
    let _ = writeln!(
        out,
        "<tr><td>{}{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=\"source\">{}:{}</tr>",
        color.unwrap_or_default(),
        text(&range.name),
        range.kind,
        range.level,
        text(range.lane.as_deref().unwrap_or("")),
        text(&range.fields.join(", ")),
        text(&range.description),
        text(crate_of.trim_end()),
        text(&range.file),
        range.line,
    );
}

/// Returns the text on one line, for use between tags and in a quoted attribute.
fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(&text.replace(['\r', '\n'], " ")).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::NamespaceRecord;

    fn range(name: &str) -> RangeRecord {
        RangeRecord {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            module: "demo::model".to_owned(),
            file: "src/model.rs".to_owned(),
            line: 7,
            namespace: "demo".to_owned(),
            description: "Adds.".to_owned(),
            kind: "gpu",
            level: "fine",
            lane: None,
            color: Some(0x0000_76b9),
            fields: vec!["n".to_owned(), "half".to_owned()],
            undescribed: Vec::new(),
        }
    }

    #[test]
    fn a_range_is_a_row_below_its_namespace() {
        let space = NamespaceRecord {
            name: "demo".to_owned(),
            version: "1.0.0".to_owned(),
            module: "demo".to_owned(),
            file: "src/lib.rs".to_owned(),
            line: 1,
            about: "vector arithmetic".to_owned(),
            package: "demo".to_owned(),
        };
        let page = Records { ranges: vec![range("demo.add")], namespaces: vec![space], unreadable: 0 }.to_html();
        let (_, body) = page.split_once("<h2>").expect("a namespace");
        assert!(body.starts_with("demo</h2>\n<p>vector arithmetic (crate demo 1.0.0)</p>\n<table>"), "{body}");
        let row = "<tr><td><span class=\"color\" style=\"background:#0076b9\" title=\"#0076b9\"></span>demo.add<td>gpu<td>fine<td>\
                   <td>n, half<td>Adds.<td>demo 1.0.0<td class=\"source\">src/model.rs:7</tr>\n";
        assert!(body.contains(row), "{body}");
        assert!(page.starts_with("<!DOCTYPE html>\n") && page.ends_with("</html>\n"));
    }

    #[test]
    fn hostile_text_is_text() {
        let hostile = "</td><script>alert('1')</script>\"&\u{202e}\u{1b}";
        let mut range = range(hostile);
        for text in
            [&mut range.namespace, &mut range.description, &mut range.file, &mut range.module, &mut range.version]
        {
            hostile.clone_into(text);
        }
        (range.lane, range.fields) = (Some(hostile.to_owned()), vec![hostile.to_owned()]);
        let space = NamespaceRecord {
            name: hostile.to_owned(),
            version: hostile.to_owned(),
            module: hostile.to_owned(),
            file: hostile.to_owned(),
            line: 1,
            about: hostile.to_owned(),
            package: hostile.to_owned(),
        };
        let page = Records { ranges: vec![range], namespaces: vec![space], unreadable: 0 }.to_html();
        assert_eq!(page.matches("<script>").count(), 1, "only its own");
        assert!(!page.contains("alert('") && !page.contains(['\u{202e}', '\u{1b}']), "{page}");
        assert!(
            page.matches("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\\u{202e}\\u{1b}").count() > 8,
            "{page}"
        );
    }

    #[test]
    fn the_page_makes_no_request() {
        let page = Records { ranges: vec![range("demo.add")], ..Records::default() }.to_html();
        assert!(page.contains("default-src 'none'"));
        for request in ["http:", "https:", "src=", "href=", "url(", "@import", "fetch(", "import("] {
            assert!(!page.contains(request), "{request}");
        }
    }

    #[test]
    fn a_text_is_on_one_line() {
        assert_eq!(text("a\r\n<b>"), "a  &lt;b&gt;");
    }
}
