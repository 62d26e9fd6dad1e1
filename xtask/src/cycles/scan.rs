//! Reads the files of a crate as tokens: which modules it declares, what each defines and imports, and every path in it.
//! The step calls it. It never follows `include!`.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::modules::{Module, ModuleId, Modules, Reference, Segments};
use crate::tokens::{BETWEEN, ITEMS, attribute, is_for_tests, is_group, is_punct, item_length};

type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Reads a crate from the file of its root; `read` gives the text of a file, or none if it is not there.
///
/// # Errors
/// A file that is missing or is not made of Rust's tokens.
pub fn read(root: &Path, read: Read<'_>) -> Result<Modules, String> {
    let mut modules = Modules { all: vec![Module::default()], references: Vec::new() };
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    file(&mut modules, 0, root, folder, read)?;
    Ok(modules)
}

fn file(modules: &mut Modules, module: ModuleId, path: &Path, folder: PathBuf, read: Read<'_>) -> Result<(), String> {
    let text = read(path).ok_or_else(|| format!("`{}` cannot be read", path.display()))?;
    let tokens: TokenStream = text.parse().map_err(|error| format!("`{}`: {error}", path.display()))?;
    let mut scanner = Scanner { modules, module, file: path, folder, read, is_macro: false };
    scanner.stream(tokens, true)
}

/// Reads one module's part of a file.
struct Scanner<'a> {
    modules: &'a mut Modules,
    module: ModuleId,
    file: &'a Path,
    /// Where the files of this module's children are.
    folder: PathBuf,
    read: Read<'a>,
    /// Inside `macro_rules!`: what is declared there is declared elsewhere.
    is_macro: bool,
}

impl Scanner<'_> {
    fn stream(&mut self, tokens: TokenStream, has_items: bool) -> Result<(), String> {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut path_attribute = PathAttribute::default();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let (attribute, length) = attribute(&tokens[at..]);
                    match attribute {
                        Some(attribute) if is_for_tests(attribute) => {
                            if length == 3 {
                                // `#![cfg(test)]`: all of it.
                                return Ok(());
                            }
                            length + item_length(&tokens[at + length..])
                        }
                        Some(attribute) => {
                            path_attribute.read(attribute);
                            self.stream(attribute.stream(), false)?;
                            length
                        }
                        None => 1,
                    }
                }
                TokenTree::Ident(ident) => {
                    let name = plain(&ident.to_string());
                    match name.as_str() {
                        "mod" => self.declaration(&tokens[at..], &std::mem::take(&mut path_attribute))?,
                        "use" => self.import(&tokens[at..]),
                        "pub" => 1 + usize::from(is_group(tokens.get(at + 1), Delimiter::Parenthesis)),
                        "macro_rules" if is_punct(tokens.get(at + 1), '!') => {
                            self.define(&tokens[at..], has_items);
                            let was = std::mem::replace(&mut self.is_macro, true);
                            if let Some(TokenTree::Group(group)) = tokens.get(at + 3) {
                                self.stream(group.stream(), false)?;
                            }
                            self.is_macro = was;
                            4
                        }
                        keyword if ITEMS.contains(&keyword) => {
                            self.define(&tokens[at..], has_items);
                            1
                        }
                        _ => self.path(&tokens, at),
                    }
                }
                TokenTree::Group(group) => {
                    path_attribute = PathAttribute::default();
                    self.stream(group.stream(), false)?;
                    1
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => 1,
            };
        }
        Ok(())
    }

    /// `mod name;` or `mod name { … }`: returns how many tokens it is.
    fn declaration(&mut self, tokens: &[TokenTree], path: &PathAttribute) -> Result<usize, String> {
        let (Some(TokenTree::Ident(name)), Some(body)) = (tokens.get(1), tokens.get(2)) else { return Ok(1) };
        let name = plain(&name.to_string());
        if self.is_macro {
            return Ok(2);
        }
        let folder = self.folder.join(&name);
        match body {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let module = self.modules.child(self.module, &name);
                let (file, read) = (self.file, self.read);
                let mut inner = Scanner { modules: &mut *self.modules, module, file, folder, read, is_macro: false };
                inner.stream(group.stream(), true)?;
            }
            TokenTree::Punct(end) if end.as_char() == ';' => {
                let module = self.modules.child(self.module, &name);
                let beside = self.folder.join(format!("{name}.rs"));
                for path in &path.files {
                    let path = self.file.parent().unwrap_or(Path::new("")).join(path);
                    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                    file(self.modules, module, &path, folder, self.read)?;
                }
                if !path.replaces {
                    let path = if (self.read)(&beside).is_some() { beside } else { folder.join("mod.rs") };
                    file(self.modules, module, &path, folder, self.read)?;
                }
            }
            _ => return Ok(2),
        }
        Ok(3)
    }

    /// `use …;`: returns how many tokens it is.
    fn import(&mut self, tokens: &[TokenTree]) -> usize {
        let length = tokens.iter().take_while(|token| !is_punct(Some(token), ';')).count();
        // `use<'a>` is no import.
        if !is_punct(tokens.get(1), '<') {
            self.tree(&tokens[1..length], &[]);
            return length;
        }
        1
    }

    /// One tree of an import, below this path.
    fn tree(&mut self, tokens: &[TokenTree], above: &[String]) {
        let (mut path, mut name, mut line) = (above.to_vec(), None, None);
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    name = tokens.get(at + 1).map(|name| plain(&name.to_string()));
                    break;
                }
                TokenTree::Ident(ident) => {
                    path.push(plain(&ident.to_string()));
                    line = Some(ident.span().start().line);
                }
                TokenTree::Punct(star) if star.as_char() == '*' => {
                    self.reference(path.clone(), star.span().start().line);
                    if !self.is_macro {
                        self.modules.all[self.module].globs.push(path);
                    }
                    return;
                }
                TokenTree::Group(group) => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    inner.split(|token| is_punct(Some(token), ',')).for_each(|tree| self.tree(tree, &path));
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let (Some(line), Some(last)) = (line, path.last()) else { return };
        let name = name.unwrap_or_else(|| last.clone());
        self.reference(path.clone(), line);
        // `use name;` alone would lead to itself.
        if !self.is_macro && name != "_" && path.len() > 1 {
            self.modules.all[self.module].imports.entry(name).or_default().push(path);
        }
    }

    /// A path in the code: returns how many tokens it is.
    fn path(&mut self, tokens: &[TokenTree], begin: usize) -> usize {
        let mut path = Segments::new();
        let mut at = begin;
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            path.push(plain(&ident.to_string()));
            at += 1;
            if !(is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')) {
                break;
            }
            at += 2;
        }
        let before = begin.checked_sub(1).and_then(|before| tokens.get(before));
        // `::name` is another crate, `x.name` a member; `a: b` has one colon, and so no path before it.
        let goes_on = is_punct(before, '.')
            || (is_punct(before, ':') && is_punct(begin.checked_sub(2).and_then(|two| tokens.get(two)), ':'));
        if path.len() > 1 && !goes_on {
            self.reference(path, tokens[begin].span().start().line);
        }
        at - begin
    }

    fn reference(&mut self, path: Segments, line: usize) {
        let file = self.file.to_owned();
        self.modules.references.push(Reference { from: self.module, path, file, line });
    }

    /// Notes the name of the item that begins here.
    fn define(&mut self, tokens: &[TokenTree], has_items: bool) {
        let mut names = tokens.iter().skip(1).filter_map(|token| match token {
            TokenTree::Ident(ident) => Some(plain(&ident.to_string())),
            _ => None,
        });
        let name = names.find(|name| !BETWEEN.contains(&name.as_str()));
        if has_items && !self.is_macro {
            self.modules.all[self.module].items.extend(name);
        }
    }
}

/// The files that attributes of a module name.
#[derive(Default)]
struct PathAttribute {
    files: Vec<String>,
    /// The file beside the parent is never the module: `path` replaces it everywhere, `cfg_attr(…, path)` where the condition holds.
    replaces: bool,
}

impl PathAttribute {
    /// Takes `path = "…"` and `cfg_attr(…, path = "…")`.
    fn read(&mut self, attribute: &Group) {
        let tokens: Vec<_> = attribute.stream().into_iter().collect();
        match &tokens[..] {
            [TokenTree::Ident(name), TokenTree::Group(inner)] if name == "cfg_attr" => {
                let inner: Vec<_> = inner.stream().into_iter().collect();
                let attributes = inner.split(|token| is_punct(Some(token), ',')).skip(1);
                self.files.extend(attributes.filter_map(named_path));
            }
            tokens => {
                if let Some(path) = named_path(tokens) {
                    self.files.push(path);
                    self.replaces = true;
                }
            }
        }
    }
}

/// What `path = "…"` names.
fn named_path(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(path)] if name == "path" => {
            Some(path.to_string().trim_matches('"').to_owned())
        }
        _ => None,
    }
}

fn plain(name: &str) -> String {
    name.trim_start_matches("r#").to_owned()
}
