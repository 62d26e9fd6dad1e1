//! Reads the catalog from a Chrome trace: the member `otherData.catalog` of a finished document.

use std::io::BufRead;

use serde::Deserialize;
use serde_json::value::RawValue;
use warpline_core::catalog::record::MAX_RANGES;
use warpline_trace::read::document::{Broken, Document, Piece};

use super::facts::{AtMost, Facts};
use super::{CatalogError, Found};

/// The members that a session writes into `otherData`. The document bounds its size.
#[derive(Deserialize)]
struct Session<'a> {
    #[serde(borrow)]
    catalog: Option<&'a RawValue>,
    #[serde(default)]
    catalog_left_out: u64,
}

/// The catalog as `docs/catalog.schema.json` describes it.
#[derive(Deserialize)]
struct Catalog {
    namespaces: AtMost<Facts, MAX_RANGES>,
    ranges: AtMost<Facts, MAX_RANGES>,
}

pub(super) fn read(trace: impl BufRead, found: &mut Found) -> Result<(), CatalogError> {
    let mut document = Document::new(trace).may_be_cut();
    loop {
        match document.next_piece() {
            Ok(None) => return Ok(()),
            Ok(Some(Piece::Member(b"\"otherData\"", value))) => session(value, found)?,
            Ok(Some(_)) => {}
            Err(Broken::Io(error)) => return Err(error.into()),
            Err(Broken::NoTrace(why)) => return Err(CatalogError::NotATrace(why.to_owned())),
            Err(Broken::Wrong(at, why)) => return Err(CatalogError::NotATrace(format!("{why} at {at}"))),
            Err(Broken::TooLarge(at)) => {
                return Err(CatalogError::NotATrace(format!("a value of more than 16 MiB at {at}")));
            }
            // Such a document has an end only by the limit of another reader.
            Err(Broken::Short(_) | Broken::TooLong(_)) => return Ok(()),
        }
    }
}

fn session(value: &[u8], found: &mut Found) -> Result<(), CatalogError> {
    // `otherData` of another program may have any form. A structure would also be read from an array.
    if value.first() != Some(&b'{') {
        return Ok(());
    }
    let Ok(Session { catalog: Some(catalog), catalog_left_out }) = serde_json::from_slice(value) else { return Ok(()) };
    let catalog: Catalog = serde_json::from_str(catalog.get())
        .map_err(|_| CatalogError::Damaged("it is not as `catalog.schema.json` describes it"))?;
    let held = catalog.ranges.0.len() + catalog.namespaces.0.len();
    found.declared = found.declared.max((held as u64).saturating_add(catalog_left_out));
    for facts in catalog.namespaces.0 {
        found.namespace(facts.declaration()?)?;
    }
    for facts in catalog.ranges.0 {
        found.range(facts.range()?)?;
    }
    Ok(())
}
