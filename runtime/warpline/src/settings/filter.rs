//! Patterns over range names, which select the ranges that a session or a subscription records.
//!
//! The setting `filter`, the builder, `Session::set_filter` and control requests use the same syntax. Matching takes at
//! most the product of the two lengths, however many stars a pattern has.

use std::fmt;

use crate::error::ConfigError;
use warpline_core::text::matches;

/// A pattern over range names, in which `*` matches any characters. A leading `!` excludes the ranges that the pattern
/// matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pattern: String,
    leave_out: bool,
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.leave_out { "!" } else { "" }, self.pattern)
    }
}

impl Filter {
    /// Parses patterns joined by commas.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Filter>, ConfigError> {
        let patterns = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        let wrong = |pattern: &str, problem| ConfigError::new(format!("filter={pattern}"), problem);
        patterns.map(|pattern| Filter::parse(pattern).map_err(|problem| wrong(pattern, problem))).collect()
    }

    pub(crate) fn parse(text: &str) -> Result<Filter, String> {
        let (leave_out, pattern) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let legal = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '.' | '*');
        let lower = pattern.to_ascii_lowercase();
        if lower != pattern && lower.chars().all(legal) {
            let not = if leave_out { "!" } else { "" };
            return Err(format!("names of ranges are in lower case; write `filter={not}{lower}`"));
        }
        if pattern.is_empty() || !pattern.chars().all(legal) {
            return Err(
                "a filter is a range name with `*` for any characters, as in `demo.*` or `!demo.mlp`; in a shell, quote the \
                 `!`: 'filter=!demo.mlp'"
                    .to_owned(),
            );
        }
        Ok(Filter { pattern: pattern.to_owned(), leave_out })
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    pub(crate) fn leaves_out(&self) -> bool {
        self.leave_out
    }

    /// Returns whether the pattern matches the whole name. The time is at most the product of the two lengths.
    pub(crate) fn matches(&self, name: &str) -> bool {
        matches(&self.pattern, name)
    }
}

/// Returns whether a name matches one of the filters without `!`, if there are any, and none of those with it.
pub(crate) fn lets_through(filters: &[Filter], name: &str) -> bool {
    let mut wanted = filters.iter().filter(|filter| !filter.leave_out).peekable();
    let is_wanted = wanted.peek().is_none() || wanted.any(|filter| filter.matches(name));
    is_wanted && !filters.iter().any(|filter| filter.leave_out && filter.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        let matches = |pattern: &str, name: &str| Filter::parse(pattern).expect(pattern).matches(name);
        assert!(matches("demo.*", "demo.add") && matches("*", "demo.add") && matches("*.add", "demo.add"));
        assert!(matches("d*o.*d", "demo.add") && matches("demo.add", "demo.add") && matches("demo.add*", "demo.add"));
        assert!(!matches("demo.*", "demos.add") && !matches("demo", "demo.add") && !matches("*.mul", "demo.add"));
        let stars = "*a".repeat(40);
        assert!(!matches(&stars, &"b".repeat(120)));
    }
}
