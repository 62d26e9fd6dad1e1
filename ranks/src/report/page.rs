//! The report as one HTML page that needs nothing else: style, script and data are in it, and its policy forbids every request. The data
//! is JSON in which no `<` stands, so no name that ranks wrote can end its element; the script makes text of it, never markup.

use serde::Serialize;
use warpline_core::report::page::{FORMAT, filled, nonce};

use super::{HeatMap, Report};
use crate::error::Error;

const PAGE: &str = include_str!("../../page/page.html");
const STYLE: &str = include_str!("../../page/style.css");

/// In this order they are one script.
const SCRIPT: [&str; 7] = [
    FORMAT,
    include_str!("../../page/data.js"),
    include_str!("../../page/color.js"),
    include_str!("../../page/map.js"),
    include_str!("../../page/tables.js"),
    include_str!("../../page/step.js"),
    include_str!("../../page/main.js"),
];

/// What the script reads.
#[derive(Serialize)]
struct Data<'a> {
    report: &'a Report,
    heat_map: Option<&'a HeatMap>,
    program: &'static str,
}

impl Report {
    /// The page. It has a heat map if the report has one.
    pub fn to_html(&self) -> Result<String, Error> {
        let data = Data {
            report: self,
            heat_map: self.heat_map.as_ref(),
            program: concat!("warpline-ranks ", env!("CARGO_PKG_VERSION")),
        };
        let data = serde_json::to_string(&data).map_err(|error| Error::Asked(format!("cannot write JSON: {error}")))?;
        // In JSON, `<` stands in texts alone.
        let data = data.replace('<', "\\u003c");
        let script = SCRIPT.concat();
        let nonce = nonce();
        let parts = [("NONCE", nonce.as_str()), ("STYLE", STYLE), ("SCRIPT", script.as_str()), ("DATA", data.as_str())];
        Ok(filled(PAGE, &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_need_nothing_else() {
        for (name, text) in [("page", PAGE), ("style", STYLE)].into_iter().chain(SCRIPT.map(|part| ("script", part))) {
            for word in
                ["http:", "https:", "import ", "@import", "url(", "innerHTML", "insertAdjacentHTML", "eval(", "src="]
            {
                assert!(!text.contains(word), "{name} has `{word}`");
            }
        }
        // A script of the page must not end its own element.
        assert!(SCRIPT.iter().all(|part| !part.contains("</script") && !part.contains("<!--")));
    }
}
