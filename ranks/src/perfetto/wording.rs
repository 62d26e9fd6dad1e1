//! Times for people.

/// A time with a unit, and its sign.
pub fn time(ns: f64) -> String {
    match ns.abs() {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} µs", ns / 1e3),
        ..1e9 => format!("{:.3} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}
