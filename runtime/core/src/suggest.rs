//! The name that a misspelt name probably means.
//!
//! Settings and requests for ranges use it for the hint in the error about an unknown name.
//! It is never called where zones begin.

/// Returns the nearest of the names, if it is near enough to be meant.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 128 {
        return None;
    }
    let word: Vec<char> = word.chars().collect();
    let mut nearest: Option<(usize, &str)> = None;
    for name in names {
        // Two changes turn a word of three letters into another word.
        let length = name.len().min(word.len());
        let most = if length > 3 { (word.len() / 4).max(2) } else { 1 };
        // A name that is no nearer than an earlier one is useless.
        let most = nearest.map_or(Some(most), |(distance, _)| distance.checked_sub(1).map(|less| less.min(most)));
        let Some(most) = most else { break };
        if let Some(distance) = distance(&word, name, most) {
            nearest = Some((distance, name));
        }
    }
    nearest.map(|(_, name)| name)
}

/// Returns the Levenshtein distance of two short words, if it is at most `most`. Most words are far apart, which shows after a
/// few letters.
fn distance(a: &[char], b: &str, most: usize) -> Option<usize> {
    let b: Vec<char> = b.chars().collect();
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        let mut least = row[0];
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
            least = least.min(row[j + 1]);
        }
        if least > most {
            return None;
        }
    }
    Some(row[b.len()]).filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_near_one_and_another_word_has_none() {
        let names = ["demo.add", "demo.mlp", "demo.attention"];
        assert_eq!(nearest("demo.ad", names), Some("demo.add"));
        assert_eq!(nearest("demo.atention_", names), Some("demo.attention"));
        assert_eq!(nearest("demo.matmul", names), None);
        assert_eq!(nearest("add", names), None);
        assert_eq!((nearest("", []), nearest(&"a".repeat(1_000), names)), (None, None));
    }
}
