//! The frame of warpline's HTML pages: each is one file that needs nothing else. Style, script and data are in it, and its policy forbids every
//! request. The data is JSON in which no `<` stands, so no name that it holds can end its element; scripts make text of it, never markup.
//!
//! `report/page/` fills the frame with a report, and the command `warpline-ranks` with what it says of many ranks.

use std::hash::{BuildHasher, RandomState};

const FRAME: &str = include_str!("frame.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 2] = [include_str!("format.js"), include_str!("theme.js")];

/// What a page has of its own: markup, a style behind the common one, and scripts that become one with the common ones, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    pub title: &'a str,
    pub body: &'a str,
    pub style: &'a str,
    pub scripts: &'a [&'a str],
}

impl Page<'_> {
    /// Returns the page with this JSON as the text of its element `data`.
    pub fn with_data(&self, json: &str) -> String {
        // In JSON, `<` stands in texts alone.
        let data = json.replace('<', "\\u003c");
        let (style, script) = ([STYLE, self.style].concat(), [&SCRIPTS[..], self.scripts].concat().concat());
        let parts = [
            ("NONCE", nonce()),
            ("TITLE", self.title.to_owned()),
            ("STYLE", style),
            ("BODY", self.body.to_owned()),
            ("SCRIPT", script),
            ("DATA", data),
        ];
        filled(FRAME, &parts)
    }

    /// Checks, for tests, that no part asks for another file, makes markup of texts, or ends the element it is in.
    ///
    /// # Panics
    /// If one does.
    pub fn assert_needs_nothing_else(&self) {
        const WORDS: [&str; 9] =
            ["http:", "https:", "import ", "@import", "url(", "innerHTML", "insertAdjacentHTML", "eval(", "src="];
        let scripts = || SCRIPTS.iter().chain(self.scripts);
        for part in [FRAME, STYLE, self.title, self.body, self.style].iter().chain(scripts()) {
            let word = WORDS.iter().find(|word| part.contains(**word));
            assert!(
                word.is_none(),
                "`{}` is in the part that begins with {:?}",
                word.unwrap_or(&""),
                part.lines().next()
            );
        }
        assert!(scripts().all(|part| !part.contains("</script") && !part.contains("<!--")));
    }
}

/// The template with its `{{NAME}}`s replaced, each place once: what is put in is not looked at again.
fn filled(template: &str, parts: &[(&str, String)]) -> String {
    let mut page = String::with_capacity(template.len() + parts.iter().map(|part| part.1.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, name, after)) = place(rest) {
        page.push_str(before);
        page.push_str(parts.iter().find(|part| part.0 == name).map_or("", |part| &part.1));
        rest = after;
    }
    page.push_str(rest);
    page
}

fn place(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (name, after) = rest.split_once("}}")?;
    Some((before, name, after))
}

/// A random number that whoever chooses the names in the data cannot know. Only elements with it run.
fn nonce() -> String {
    format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_not_looked_at_again() {
        let parts = [("A", "{{B}} {{A}}".to_owned()), ("B", "b".to_owned())];
        assert_eq!(filled("<{{A}}|{{B}}|{{C}}>", &parts), "<{{B}} {{A}}|b|>");
        assert_eq!(filled("no end {{A", &parts), "no end {{A");
    }

    #[test]
    fn a_nonce_is_long_and_new_each_time() {
        assert_eq!(nonce().len(), 32);
        assert_ne!(nonce(), nonce());
    }

    #[test]
    #[should_panic(expected = "`https:` is in the part")]
    fn a_part_that_asks_for_another_file_is_found() {
        Page { title: "t", body: "", style: "", scripts: &["fetch('https://example.com')"] }
            .assert_needs_nothing_else();
    }
}
