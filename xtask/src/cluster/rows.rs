//! The answers of two engines, row by row. Rows have no order; integers and texts are equal, and floating-point numbers are equal to a
//! billionth, because a sum of them depends on the order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// How far two floating-point numbers may be apart, of the larger one.
const TOLERANCE: f64 = 1e-9;

/// A row, by the names of its columns.
pub type Row = Map<String, Value>;

/// The rows of each view.
pub type Answers = BTreeMap<String, Vec<Row>>;

/// Reads what the scripts of `ranks/engines/` print: `{"query": "late", "row": {…}}` in each line. Other lines are what engines say beside it.
///
/// # Errors
/// A line is no row.
pub fn parse(text: &str) -> Result<Answers, String> {
    let mut answers = Answers::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let mut value: Value = serde_json::from_str(line).map_err(|error| format!("{error} in the line {line}"))?;
        let (Some(view), Value::Object(row)) = (value["query"].as_str().map(str::to_owned), value["row"].take()) else {
            return Err(format!("there is no `query` and `row` in the line {line}"));
        };
        answers.entry(view).or_default().push(row);
    }
    Ok(answers)
}

/// What `there` has that `here` has not, or the other way round: the first difference; none if they are the same.
pub fn difference(here: &[Row], there: &[Row]) -> Option<String> {
    if here.len() != there.len() {
        return Some(format!("{} rows in place of {}", there.len(), here.len()));
    }
    // A number without a fraction may be a floating-point number: a column is one if any of its numbers says so.
    let columns = here.iter().chain(there).flatten();
    let floats: BTreeSet<&str> = columns.filter(|(_, value)| value.is_f64()).map(|(name, _)| name.as_str()).collect();
    let ordered = |rows: &'_ [Row]| -> Vec<Row> {
        let mut rows = rows.to_vec();
        // By what is equal in both: no view has rows that differ in floating-point numbers alone.
        rows.sort_by_cached_key(|row| {
            let exact: BTreeMap<&str, String> = row
                .iter()
                .filter(|(name, _)| !floats.contains(name.as_str()))
                .map(|(name, value)| (name.as_str(), value.to_string()))
                .collect();
            exact.into_values().collect::<Vec<_>>()
        });
        rows
    };
    for (a, b) in ordered(here).iter().zip(&ordered(there)) {
        let names = |row: &Row| row.keys().cloned().collect::<BTreeSet<_>>();
        if names(a) != names(b) {
            return Some(format!("the columns {:?} in place of {:?}", names(b), names(a)));
        }
        for (name, value) in a {
            let other = &b[name];
            let is_same = if floats.contains(name.as_str()) { is_near(value, other) } else { value == other };
            if !is_same {
                return Some(format!(
                    "`{name}` is {other} in place of {value} in the row {}",
                    Value::Object(a.clone())
                ));
            }
        }
    }
    None
}

/// Whether two documents have the same members, and numbers that are the same but for the order of a sum.
pub fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b || (a.is_f64() || b.is_f64()) && is_near(a, b),
    }
}

fn is_near(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(value: Value) -> Vec<Row> {
        serde_json::from_value(value).unwrap_or_default()
    }

    #[test]
    fn rows_have_no_order_and_floats_a_tolerance() {
        let here = rows(json!([{"rank": 1, "z": 0.5}, {"rank": 0, "z": 3.0}]));
        let there = rows(json!([{"rank": 0, "z": 3}, {"rank": 1, "z": 0.500_000_000_01}]));
        assert_eq!(difference(&here, &there), None);
    }

    #[test]
    fn what_differs_is_said() {
        let here = rows(json!([{"rank": 1, "z": 0.5}]));
        for (there, says) in [
            (json!([]), "0 rows in place of 1"),
            (json!([{"rank": 2, "z": 0.5}]), "`rank` is 2 in place of 1"),
            (json!([{"rank": 1, "z": 0.51}]), "`z` is 0.51"),
            (json!([{"rank": 1, "y": 0.5}]), "columns"),
            (json!([{"rank": 1, "z": null}]), "`z` is null"),
        ] {
            let said = difference(&here, &rows(there));
            assert!(said.as_deref().is_some_and(|said| said.contains(says)), "{said:?}");
        }
        // Integers beyond what a double holds are integers.
        let large = |last: i64| rows(json!([{"at_ns": 1_732_000_000_000_000_000_i64 + last}]));
        assert!(difference(&large(0), &large(1)).is_some());
        // The same row twice is not the same as another one beside it.
        let two = |second: i64| rows(json!([{"rank": 1}, {"rank": second}]));
        assert!(difference(&two(1), &two(2)).is_some());
    }

    #[test]
    fn documents_are_the_same_but_for_the_order_of_sums() {
        let here = json!({"verdict": ["rank 5"], "late": [{"n": 3, "z": 0.5}]});
        assert!(is_same(&here, &json!({"late": [{"z": 0.500_000_000_01, "n": 3}], "verdict": ["rank 5"]})));
        for other in [
            json!({"verdict": ["rank 6"], "late": [{"n": 3, "z": 0.5}]}),
            json!({"verdict": ["rank 5"], "late": [{"n": 4, "z": 0.5}]}),
            json!({"verdict": ["rank 5"], "late": [{"n": 3, "z": 0.6}]}),
            json!({"verdict": ["rank 5"], "late": []}),
            json!({"verdict": ["rank 5"]}),
        ] {
            assert!(!is_same(&here, &other), "{other}");
        }
    }

    #[test]
    fn lines_of_several_queries_are_told_apart() {
        let text =
            "WARNING of an engine\n{\"query\": \"a\", \"row\": {\"n\": 1}}\n{\"query\": \"b\", \"row\": {\"n\": 2}}\n";
        let answers = parse(text).unwrap_or_default();
        assert_eq!((&answers["a"][0]["n"], &answers["b"][0]["n"]), (&json!(1), &json!(2)));
        assert!(parse("{\"rank\": 1}").is_err());
    }
}
