//! Code blocks of the project's Markdown. Steps run them as they stand, so that no page shows what does not work.

use crate::shell::{Stop, root};

/// A fenced code block.
pub struct Block {
    /// The file, from the root of the repository.
    pub file: String,
    /// The line of its fence, from 1.
    pub line: usize,
    /// What follows the fence: `rust,no_run`, `sql`.
    pub info: String,
    /// The code.
    pub code: String,
    /// The text behind it, up to the next block or the end.
    pub after: String,
}

impl Block {
    /// The language that its fence names.
    pub fn language(&self) -> &str {
        self.info.split([',', ' ']).next().unwrap_or_default()
    }

    /// Where it is, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// The blocks of a file, in order.
///
/// # Errors
/// The file cannot be read.
pub fn blocks_of(file: &str) -> Result<Vec<Block>, Stop> {
    let text =
        std::fs::read_to_string(root().join(file)).map_err(|error| Stop::Failed(format!("`{file}`: {error}")))?;
    Ok(blocks(file, &text))
}

/// The pages of the project: the README and everything in `docs/`, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn pages() -> Result<Vec<String>, Stop> {
    let failed = |error| Stop::Failed(format!("the folder `docs`: {error}"));
    let mut pages = vec!["README.md".to_owned()];
    for entry in std::fs::read_dir(root().join("docs")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    Ok(pages)
}

fn blocks(file: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), is_open) {
            (Some(info), false) => {
                let (file, info) = (file.to_owned(), info.trim().to_owned());
                blocks.push(Block { file, line: number + 1, info, code: String::new(), after: String::new() });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, _) => {
                if let Some(block) = blocks.last_mut() {
                    let text = if is_open { &mut block.code } else { &mut block.after };
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_code_and_what_follows_it() {
        let found = blocks("a.md", "# A\n\n```rust,no_run\nfn main() {}\n```\n\nText.\n\n```sql\nselect 1;\n```\n");
        let [rust, sql] = &found[..] else { panic!("two blocks") };
        assert_eq!((rust.language(), rust.code.as_str()), ("rust", "fn main() {}\n"));
        assert_eq!((rust.place().as_str(), rust.after.as_str()), ("a.md:3", "\nText.\n\n"));
        assert_eq!((sql.language(), sql.code.as_str(), sql.after.as_str()), ("sql", "select 1;\n", ""));
    }
}
