//! The name that somebody may have meant who wrote another one.
//!
//! Settings and requests for ranges ask it where they know no such name, for the hint in the error. It is never called where
//! zones begin.

/// The nearest of the names that there are, if it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.into_iter().map(|name| (distance(word, name), name)).min_by_key(|(distance, _)| *distance);
    // Of a word of three letters, two more are another word.
    let most = |name: &str| if name.len().min(word.len()) > 3 { (word.len() / 4).max(2) } else { 1 };
    near.filter(|(distance, name)| *distance <= most(name)).map(|(_, name)| name)
}

/// Levenshtein distance of two short words; long ones are simply far.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 128 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
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
