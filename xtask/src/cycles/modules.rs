//! The modules of one crate, and to which of them a path leads. `scan` fills it, and `graph` asks it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Longer chains of re-exports are circular.
const MOST_RE_EXPORTS: usize = 32;

/// The segments of a path, as they are written.
pub type Segments = Vec<String>;

/// A module: an index into the modules of its crate.
pub type ModuleId = usize;

/// A path that stands in a module.
pub struct Reference {
    /// The module that it stands in.
    pub from: ModuleId,
    /// The path.
    pub path: Segments,
    /// The file that it stands in.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// What one module has in it.
#[derive(Default)]
pub struct Module {
    pub name: String,
    pub parent: Option<ModuleId>,
    pub children: HashMap<String, ModuleId>,
    /// Names that `use` brings in; more than one path for one name under different `cfg`s.
    pub imports: HashMap<String, Vec<Segments>>,
    pub globs: Vec<Segments>,
    pub items: HashSet<String>,
}

/// The modules of a crate, the root first, and the paths in them.
pub struct Modules {
    pub all: Vec<Module>,
    pub references: Vec<Reference>,
}

impl Modules {
    /// The child of this name, which is made if it is not there yet.
    pub fn child(&mut self, parent: ModuleId, name: &str) -> ModuleId {
        if let Some(child) = self.all[parent].children.get(name) {
            return *child;
        }
        let child = self.all.len();
        self.all.push(Module { name: name.to_owned(), parent: Some(parent), ..Module::default() });
        self.all[parent].children.insert(name.to_owned(), child);
        child
    }

    /// The modules from the root's child down to this one.
    pub fn line_of(&self, module: ModuleId) -> Vec<ModuleId> {
        let mut line: Vec<_> = std::iter::successors(Some(module), |at| self.all[*at].parent).collect();
        line.pop();
        line.reverse();
        line
    }

    /// The module's path in the crate.
    pub fn path_of(&self, module: ModuleId) -> String {
        let names: Vec<_> = self.line_of(module).iter().map(|at| self.all[*at].name.as_str()).collect();
        names.join("::")
    }

    /// The module that defines what the path names; none if that is in another crate or not a path at all.
    pub fn target(&self, reference: &Reference) -> Option<ModuleId> {
        self.resolve(reference.from, &reference.path, MOST_RE_EXPORTS)
    }

    /// A path as it is written in this module.
    fn resolve(&self, from: ModuleId, path: &[String], budget: usize) -> Option<ModuleId> {
        let budget = budget.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(0, rest, budget),
            "self" => self.walk(from, rest, budget),
            "super" => self.walk(self.all[from].parent?, rest, budget),
            name => {
                let module = &self.all[from];
                match (module.children.get(name), module.imports.get(name)) {
                    (Some(child), _) => self.walk(*child, rest, budget),
                    (None, Some(imports)) => self.through(from, imports, rest, budget),
                    (None, None) => None,
                }
            }
        }
    }

    /// The rest of a path that led to this module.
    fn walk(&self, at: ModuleId, rest: &[String], budget: usize) -> Option<ModuleId> {
        let Some((first, behind)) = rest.split_first() else { return Some(at) };
        let module = &self.all[at];
        match first.as_str() {
            "self" => return self.walk(at, behind, budget),
            "super" => return self.walk(module.parent?, behind, budget),
            _ => {}
        }
        if let Some(child) = module.children.get(first) {
            return self.walk(*child, behind, budget);
        }
        if module.items.contains(first) {
            return Some(at);
        }
        let imported = module.imports.get(first).and_then(|imports| self.through(at, imports, behind, budget));
        // What another crate defines, or a macro does, is taken for the module's own.
        imported.or_else(|| self.through_globs(at, rest, budget)).or(Some(at))
    }

    fn through(&self, at: ModuleId, imports: &[Segments], behind: &[String], budget: usize) -> Option<ModuleId> {
        imports.iter().find_map(|path| self.resolve(at, &[path, behind].concat(), budget))
    }

    fn through_globs(&self, at: ModuleId, rest: &[String], budget: usize) -> Option<ModuleId> {
        let targets = self.all[at].globs.iter().filter_map(|glob| self.resolve(at, glob, budget));
        let name = rest.first()?;
        let has = |module: &Module| {
            module.items.contains(name) || module.children.contains_key(name) || module.imports.contains_key(name)
        };
        targets.filter(|target| *target != at && has(&self.all[*target])).find_map(|target| {
            let budget = budget.checked_sub(1)?;
            self.walk(target, rest, budget)
        })
    }
}
