//! The report as one HTML page, in the frame of all of warpline's pages: it makes no request, and no name that ranks
//! wrote becomes markup or turns the writing around.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use warpline_core::text::{printable, printable_json};
use warpline_report::frame::Page;

use super::{HeatMap, Report};
use crate::error::Error;

const PAGE: Page<'static> = Page {
    title: "Ranks",
    body: include_str!("../../page/page.html"),
    style: include_str!("../../page/style.css"),
    scripts: &[
        include_str!("../../page/data.js"),
        include_str!("../../page/color.js"),
        include_str!("../../page/map.js"),
        include_str!("../../page/tables.js"),
        include_str!("../../page/step.js"),
        include_str!("../../page/main.js"),
    ],
};

/// The data that the script reads.
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
        let mut data =
            serde_json::to_value(&data).map_err(|error| Error::Asked(format!("cannot write JSON: {error}")))?;
        spell_out(&mut data);
        Ok(PAGE.with_data(&printable_json(&data.to_string())))
    }
}

/// Names in which a character hides or turns others are shown with escapes, as on a terminal.
fn spell_out(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = printable(text) {
                *text = shown;
            }
        }
        Value::Array(all) => all.iter_mut().for_each(spell_out),
        Value::Object(all) => all.values_mut().for_each(spell_out),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_need_nothing_else() {
        PAGE.assert_needs_nothing_else();
    }
}
