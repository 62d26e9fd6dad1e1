//! The SQL of the pages: every block of it runs over a trace whose numbers are known.
//!
//! Behind each block of `sql` stands a comment, which readers of the page do not see, with the trace and the rows that it gives:
//!
//! ```text
//! <!-- gate: docs.pftrace
//! ["demo.mlp", 4, 0.016]
//! -->
//! ```
//!
//! The rows are those of the trace that `runtime/trace/src/gate_traces/docs.rs` makes of records by hand, so they are worked out by
//! hand and not copied from an answer. A block without such a comment, without rows or with other rows than these is a fault.

use std::path::Path;

use serde_json::Value;

use super::tools::Tools;
use crate::markdown::{Block, blocks_of, pages};
use crate::shell::Stop;

/// The SQL of this page is not for Perfetto's reader; `ranks/tests/api/query.rs` runs it.
const QUERY: &str = "docs/query.md";

/// What a comment begins with.
const COMMENT: &str = "<!-- gate:";

/// A block with what its comment says.
struct Query {
    place: String,
    sql: String,
    trace: String,
    rows: Vec<Value>,
}

/// Runs all SQL of the README and of `docs/` over the traces in a folder.
///
/// # Errors
/// Every block that has no rows, or gives others.
pub fn check(tools: &Tools, folder: &Path) -> Result<(), Stop> {
    let mut queries = Vec::new();
    let mut faults = Vec::new();
    for page in pages()?.iter().filter(|page| **page != QUERY) {
        for block in blocks_of(page)?.iter().filter(|block| block.language() == "sql") {
            match Query::parse(block) {
                Ok(query) => queries.push(query),
                Err(why) => faults.push(format!("{}: {why}", block.place())),
            }
        }
    }
    if queries.is_empty() {
        return Err(Stop::Failed(
            "no page has a block of SQL with its rows; does the gate still read them?".to_owned(),
        ));
    }
    for query in &queries {
        let answers = tools.query(&folder.join(&query.trace), std::slice::from_ref(&query.sql))?;
        let result = answers.results.into_iter().next().unwrap_or_else(|| Err("no answer".to_owned()));
        faults.extend(query.fault(result));
    }
    if faults.is_empty() {
        println!("{} queries of the pages give the rows that they should", queries.len());
        return Ok(());
    }
    Err(Stop::Failed(faults.join("\n")))
}

impl Query {
    fn parse(block: &Block) -> Result<Query, String> {
        let comment = block.after.trim_start().strip_prefix(COMMENT).and_then(|rest| rest.split_once("-->"));
        let Some((comment, _)) = comment else {
            return Err(format!(
                "SQL without its rows; put `{COMMENT} TRACE`, a row a line as JSON, and `-->` behind it"
            ));
        };
        let (trace, rows) = comment.split_once('\n').unwrap_or((comment, ""));
        let rows: Result<Vec<Value>, _> =
            rows.lines().filter(|row| !row.trim().is_empty()).map(serde_json::from_str).collect();
        let rows = rows.map_err(|error| format!("a row in the comment behind the SQL is no JSON: {error}"))?;
        if rows.is_empty() {
            return Err("the comment behind the SQL has no rows, so the query shows nothing".to_owned());
        }
        Ok(Query { place: block.place(), sql: block.code.clone(), trace: trace.trim().to_owned(), rows })
    }

    fn fault(&self, result: Result<Vec<Vec<Value>>, String>) -> Option<String> {
        let rows = match result {
            Ok(rows) => rows,
            Err(error) => return Some(format!("{}: {error}", self.place)),
        };
        let rows: Vec<Value> = rows.into_iter().map(Value::from).collect();
        if rows.len() == self.rows.len() && rows.iter().zip(&self.rows).all(|(one, other)| are_equal(one, other)) {
            return None;
        }
        let shown = |sign: char, rows: &[Value]| rows.iter().map(|row| format!("\n  {sign} {row}")).collect::<String>();
        Some(format!("{}: not the rows of {}{}{}", self.place, self.trace, shown('-', &self.rows), shown('+', &rows)))
    }
}

/// Equal but for the last digits of sums and means.
fn are_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_equal(one, other))
        }
        (Value::Number(one), Value::Number(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(other.abs()),
            _ => one == other,
        },
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(after: &str) -> Block {
        let text = |text: &str| text.to_owned();
        Block { file: text("docs/a.md"), line: 7, info: text("sql"), code: text("select 1;"), after: text(after) }
    }

    #[test]
    fn a_query_without_rows_or_with_others_is_a_fault() {
        let refused = |after| Query::parse(&block(after)).err().expect("it has no rows");
        assert!(refused("\nText.\n").contains("SQL without its rows"));
        assert!(refused("\n<!-- gate: docs.pftrace -->\n").contains("has no rows"));
        assert!(refused("\n<!-- gate: docs.pftrace\n[1,\n-->\n").contains("no JSON"));
        let query = Query::parse(&block("\n<!-- gate: docs.pftrace\n[\"a\", 80, 0.3]\n-->\n")).expect("it has rows");
        assert_eq!(query.trace, "docs.pftrace");
        let row = |count: u64, sum: f64| vec![vec![Value::from("a"), Value::from(count), Value::from(sum)]];
        assert_eq!(query.fault(Ok(row(80, 0.1 + 0.2))), None);
        let text = query.fault(Ok(row(160, 0.3))).expect("twice as many");
        assert_eq!(text, "docs/a.md:7: not the rows of docs.pftrace\n  - [\"a\",80,0.3]\n  + [\"a\",160,0.3]");
        assert!(query.fault(Ok(Vec::new())).is_some());
        assert_eq!(query.fault(Err("no such table: x".to_owned())).as_deref(), Some("docs/a.md:7: no such table: x"));
    }
}
