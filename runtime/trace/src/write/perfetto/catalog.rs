//! The catalog in a trace: an instant for each range and namespace, on a row of its own below the session's.
//!
//! An instant's arguments are the facts of a range, by name, so that SQL selects them from the table `slice` and the command
//! `warpline catalog` reads them back. The instants have constant names, because a search for a range's name should find its zones.

use super::annotations::{annotate, text, uint};
use super::proto::{Buffer, annotation, event};
use super::session_facts::SessionFacts;
use crate::write::catalog::Catalog;
use warpline_core::catalog::{NamespaceRecord, RangeRecord};

/// The category of the instants.
const CATEGORY: &str = "catalog";

impl SessionFacts {
    /// Writes as much of the catalog as fits into `most` bytes, from this time on.
    pub(super) fn catalog(&self, most: usize, ns: i64, buffer: &mut Buffer) {
        let catalog = Catalog::of(self.info(), most);
        if catalog.is_empty() {
            return;
        }
        let description = "the ranges of the program, also those that never ran; read it with `warpline catalog`";
        self.sequence.row(self.catalog, self.group, "catalog", description, buffer);
        // Perfetto nests instants of one time, and drops those that are too deep.
        let mut ns = ns;
        let mut instant = |name: &str, fill: &dyn Fn(&mut Buffer)| {
            self.sequence.event(self.catalog, event::INSTANT, ns, buffer, |event| {
                event.text(event::NAME, name);
                event.text(event::CATEGORIES, CATEGORY);
                fill(event);
            });
            ns = ns.saturating_add(1);
        };
        // Comes first, so that a reader of a truncated trace knows how much is missing.
        instant("catalog", &|event| {
            text(event, "hash", &self.catalog_hash());
            uint(event, "ranges", catalog.ranges);
            uint(event, "namespaces", catalog.namespaces);
            if catalog.left_out() > 0 {
                uint(event, "left_out", catalog.left_out());
            }
        });
        catalog.records.namespaces.iter().for_each(|space| instant("namespace", &|event| namespace(space, event)));
        catalog.records.ranges.iter().for_each(|record| instant("range", &|event| range(record, event)));
    }
}

fn namespace(space: &NamespaceRecord, event: &mut Buffer) {
    text(event, "name", &space.name);
    text(event, "about", &space.about);
    if !space.package.is_empty() {
        text(event, "package", &space.package);
    }
    declared(&space.module, &space.version, &space.file, space.line, event);
}

fn range(range: &RangeRecord, event: &mut Buffer) {
    text(event, "name", &range.name);
    text(event, "namespace", &range.namespace);
    text(event, "description", &range.description);
    text(event, "kind", range.kind);
    text(event, "level", range.level);
    if let Some(lane) = &range.lane {
        text(event, "lane", lane);
    }
    if let Some(color) = range.color {
        text(event, "color", &format!("#{color:06x}"));
    }
    list(event, "fields", &range.fields);
    list(event, "undescribed", &range.undescribed);
    declared(&range.module, &range.version, &range.file, range.line, event);
}

/// Writes where something is declared.
fn declared(module: &str, version: &str, file: &str, line: u32, event: &mut Buffer) {
    text(event, "module", module);
    if !version.is_empty() {
        text(event, "version", version);
    }
    text(event, "file", file);
    uint(event, "line", u64::from(line));
}

fn list(event: &mut Buffer, name: &str, values: &[String]) {
    if values.is_empty() {
        return;
    }
    annotate(event, name, |annotation| {
        for value in values {
            annotation.message(annotation::ARRAY_VALUES, |element| element.text(annotation::STRING, value));
        }
    });
}
