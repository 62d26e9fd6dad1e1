//! Suggestions for texts that are not settings. The parser adds them to its errors.

use super::filter::Filter;
use super::table::SETTINGS;
use warpline_core::suggest::nearest;

/// Returns the suggestion for an unknown setting.
pub(super) fn unknown(setting: &str, key: &str) -> String {
    for (extension, sink) in [(".pftrace", "perfetto"), (".json", "chrome")] {
        if !setting.contains('=') && setting.ends_with(extension) {
            return format!("is a file; write `{sink}={setting}`");
        }
    }
    let lower = setting.to_ascii_lowercase();
    let is_pattern = setting.contains(['.', '*', '!']) && Filter::parse(&lower).is_ok();
    if is_pattern {
        return format!("is a pattern; each takes its own `filter=`: write `filter={lower}`");
    }
    match nearest(key, keys()) {
        Some(near) => format!("there is no setting `{key}`; did you mean `{near}`?"),
        None => format!("there is no setting `{key}`; run the program with `WARPLINE=help`, which lists them"),
    }
}

/// Returns the suggestion for a blank that should be a comma.
pub(super) fn blank_for_comma(setting: &str) -> Option<String> {
    let mut words = setting.split_whitespace().peekable();
    let mut meant = words.next()?.to_owned();
    let mut is_joined = false;
    while let Some(word) = words.next() {
        let (key, has_value) = word.split_once('=').map_or((word, false), |(key, _)| (key, true));
        let is_setting = keys().any(|known| known == key) && (has_value || words.peek().is_none());
        is_joined |= is_setting;
        meant.push(if is_setting { ',' } else { ' ' });
        meant.push_str(word);
    }
    is_joined.then(|| format!("settings are joined by commas: write `{meant}`"))
}

/// Returns the key of each setting.
fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.key)
}
