//! The items that users reach through a crate, from the JSON that rustdoc writes, each on a line with its signature, sorted. A
//! `use` of an item of another crate is followed into that crate's JSON. What is `#[doc(hidden)]`, private, not re-exported, or
//! implemented for every type is left out.

use std::collections::BTreeSet;

use serde_json::Value;

use super::types::{bounds, generics, kind_of, list, signature, text, type_of, wheres};

/// An item: the index of its crate, and its id there.
type Key = (usize, String);

/// The lines of the first crate, which may re-export items of the others.
pub fn lines(crates: &[Value]) -> BTreeSet<String> {
    let mut lines =
        Lines { crates, current: 0, lines: BTreeSet::new(), reached: BTreeSet::new(), impls: BTreeSet::new() };
    let Some(root) = crates.first().map(|krate| &krate["root"]) else { return lines.lines };
    let name = lines.item(root).map(|root| text(&root["name"]).to_owned()).unwrap_or_default();
    lines.walk(root, &name, &mut Vec::new());
    let Lines { mut lines, reached, impls, .. } = lines;
    let public = impls.into_iter().filter(|(_, ends)| ends.iter().all(|end| reached.contains(end)));
    lines.extend(public.map(|(line, _)| line));
    lines
}

struct Lines<'a> {
    crates: &'a [Value],
    /// The crate that ids count in.
    current: usize,
    lines: BTreeSet<String>,
    reached: BTreeSet<Key>,
    /// Implementations, each with the items of these crates that its trait and its type name.
    impls: BTreeSet<(String, Vec<Key>)>,
}

impl<'a> Lines<'a> {
    fn item(&self, id: &Value) -> Option<&'a Value> {
        let item = self.crates.get(self.current)?["index"].get(id_text(id))?;
        let is_hidden = list(&item["attrs"]).any(|attribute| attribute.to_string().contains("doc(hidden)"));
        (!is_hidden).then_some(item)
    }

    /// Where an item is, if it is one of these crates.
    fn key(&self, id: &Value) -> Option<Key> {
        let krate = &self.crates[self.current];
        let id = id_text(id);
        let summary = &krate["paths"][&id];
        if krate["index"].get(&id).is_some() || summary["crate_id"] == 0 {
            return Some((self.current, id));
        }
        let name = text(summary["path"].get(0)?);
        let other = self.crates.iter().position(|krate| krate["index"][id_text(&krate["root"])]["name"] == name)?;
        let paths = self.crates[other]["paths"].as_object()?;
        let is_it = |it: &Value| it["crate_id"] == 0 && it["path"] == summary["path"] && it["kind"] == summary["kind"];
        let found = paths.iter().find(|(_, it)| is_it(it)).map(|(id, _)| id.clone());
        // Hidden items have no path: no walk reaches this key.
        Some((other, found.unwrap_or_default()))
    }

    fn add(&mut self, item: &Value, line: String) {
        let attributes = list(&item["attrs"]).filter_map(Value::as_str);
        let is_open = attributes.into_iter().any(|attribute| attribute.contains("non_exhaustive"));
        self.lines.insert(line + if is_open { " #[non_exhaustive]" } else { "" });
    }

    /// The lines of an item that can be named so, and of what is in it. `above` is the items that it is in.
    fn walk(&mut self, id: &Value, path: &str, above: &mut Vec<Key>) {
        let Some(item) = self.item(id) else { return };
        let key = (self.current, id_text(id));
        if above.contains(&key) {
            return;
        }
        self.reached.insert(key.clone());
        above.push(key);
        let (kind, inner) = kind_of(&item["inner"]);
        let named = |word: &str| format!("{word} {path}{}", generics(&inner["generics"]));
        let end = wheres(&inner["generics"]);
        match kind {
            "module" => {
                self.add(item, format!("mod {path}"));
                list(&inner["items"]).for_each(|child| self.child(child, path, above));
            }
            "struct" | "union" => {
                let (shape, fields) = kind_of(&inner["kind"]);
                self.add(item, named(kind) + if shape == "unit" { ";" } else { "" } + &end);
                let of_union = list(&inner["fields"]);
                self.fields(of_union.chain(list(&fields["fields"])).chain(list(fields)), path);
            }
            "enum" => {
                self.add(item, named(kind) + &end);
                list(&inner["variants"]).for_each(|variant| self.variant(variant, path));
            }
            "trait" => {
                let supers = bounds(&inner["bounds"]);
                let supers = if supers.is_empty() { supers } else { format!(": {supers}") };
                let word = if inner["is_unsafe"] == true { "unsafe trait" } else { "trait" };
                self.add(item, named(word) + &supers + &end);
                list(&inner["items"]).for_each(|child| self.child(child, path, above));
            }
            "function" => self.add(item, signature(inner, path)),
            "constant" | "assoc_const" => {
                self.add(item, format!("const {path}: {}", type_of(&inner["type"])));
            }
            "static" => self.add(item, format!("static {path}: {}", type_of(&inner["type"]))),
            "type_alias" => self.add(item, named("type") + " = " + &type_of(&inner["type"]) + &end),
            "assoc_type" => {
                let bounds = bounds(&inner["bounds"]);
                self.add(item, named("type") + if bounds.is_empty() { "" } else { ": " } + &bounds);
            }
            "macro" => {
                let arms: Vec<_> = text(inner).split_whitespace().collect();
                self.add(item, format!("macro {path}! {}", arms.join(" ")));
            }
            _ => self.add(item, format!("{kind} {path}")),
        }
        for id in list(&inner["impls"]).chain(list(&inner["implementations"])) {
            self.implementation(id, path, above);
        }
        above.pop();
    }

    fn child(&mut self, id: &Value, path: &str, above: &mut Vec<Key>) {
        let Some(item) = self.item(id) else { return };
        let (kind, inner) = kind_of(&item["inner"]);
        if kind != "use" {
            return self.walk(id, &format!("{path}::{}", text(&item["name"])), above);
        }
        let name = format!("{path}::{}", text(&inner["name"]));
        let is_glob = inner["is_glob"] == true;
        let here = self.current;
        let (home, id) = self.key(&inner["id"]).unwrap_or_default();
        let id = Value::String(id);
        self.current = home;
        match (self.item(&id), is_glob) {
            (Some(_), false) => self.walk(&id, &name, above),
            (Some(target), true) => {
                let (_, inner) = kind_of(&target["inner"]);
                let children = list(&inner["items"]).chain(list(&inner["variants"]));
                children.for_each(|child| self.child(child, path, above));
            }
            (None, true) => self.add(item, format!("use {path}::* = {}", text(&inner["source"]))),
            (None, false) => self.add(item, format!("use {name} = {}", text(&inner["source"]))),
        }
        self.current = here;
    }

    fn fields(&mut self, ids: impl Iterator<Item = &'a Value>, path: &str) {
        for item in ids.filter_map(|id| self.item(id)).collect::<Vec<_>>() {
            let (kind, inner) = kind_of(&item["inner"]);
            if kind == "struct_field" {
                self.add(item, format!("field {path}.{}: {}", text(&item["name"]), type_of(inner)));
            }
        }
    }

    fn variant(&mut self, id: &Value, path: &str) {
        let Some(item) = self.item(id) else { return };
        let path = format!("{path}::{}", text(&item["name"]));
        self.add(item, format!("variant {path}"));
        let (_, inner) = kind_of(&item["inner"]);
        let (_, fields) = kind_of(&inner["kind"]);
        self.fields(list(&fields["fields"]).chain(list(fields)), &path);
    }

    fn implementation(&mut self, id: &Value, path: &str, above: &mut Vec<Key>) {
        let Some(item) = self.item(id) else { return };
        let inner = &item["inner"]["impl"];
        if inner["is_synthetic"] == true || !inner["blanket_impl"].is_null() {
            return;
        }
        if inner["trait"].is_null() {
            let mut before: Vec<_> = std::mem::take(above);
            list(&inner["items"]).for_each(|child| self.child(child, path, &mut before));
            *above = before;
            return;
        }
        let word = if inner["is_negative"] == true { "!" } else { "" };
        let implemented = type_of(&serde_json::json!({ "resolved_path": inner["trait"] }));
        let (generics, end) = (generics(&inner["generics"]), wheres(&inner["generics"]));
        let mut ids = Vec::new();
        named_in(&inner["trait"], &mut ids);
        named_in(&inner["for"], &mut ids);
        let ends = ids.into_iter().filter_map(|id| self.key(id)).collect();
        self.impls.insert((format!("impl{generics} {word}{implemented} for {}{end}", type_of(&inner["for"])), ends));
    }
}

/// The ids of the items that a trait or type names.
fn named_in<'a>(value: &'a Value, ids: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            ids.extend(object.get("id").filter(|_| object.contains_key("path")));
            object.values().for_each(|value| named_in(value, ids));
        }
        Value::Array(array) => array.iter().for_each(|value| named_in(value, ids)),
        _ => {}
    }
}

/// An id, which is a number or a text, as keys have it.
fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_public_item_is_a_line() {
        let item = |name: &str, attrs: &[&str], inner: Value| json!({"name": name, "attrs": attrs, "inner": inner});
        let none = json!({"params": [], "where_predicates": []});
        let u32 = json!({"primitive": "u32"});
        let krate = json!({"root": 0, "format_version": 57, "index": {
            "0": item("demo", &[], json!({"module": {"items": [1, 5, 6, 7]}})),
            "1": item("S", &["non_exhaustive"], json!({"struct": {
                "kind": {"plain": {"fields": [2]}}, "generics": none, "impls": [3, 8]}})),
            "2": item("n", &[], json!({"struct_field": u32})),
            "3": {"name": null, "attrs": [], "inner": {"impl": {
                "is_synthetic": false, "blanket_impl": null, "trait": null, "items": [4], "generics": none}}},
            "4": item("grow", &[], json!({"function": {
                "sig": {"inputs": [["self", {"borrowed_ref": {"lifetime": null, "is_mutable": true, "type": {"generic": "Self"}}}],
                    ["by", u32]], "output": u32},
                "generics": none, "header": {"is_const": true}}})),
            "5": {"name": null, "attrs": [], "inner": {"use": {"source": "a::S", "name": "T", "id": 1, "is_glob": false}}},
            "6": item("secret", &["#[doc(hidden)]"], json!({"module": {"items": [1]}})),
            "7": {"name": null, "attrs": [], "inner": {"use": {"source": "other::gpu", "name": "gpu", "id": 99, "is_glob": false}}},
            "8": {"name": null, "attrs": [], "inner": {"impl": {
                "is_synthetic": false, "blanket_impl": null, "trait": {"path": "fmt::Debug", "args": null}, "items": [],
                "for": {"resolved_path": {"path": "a::S", "args": null}}, "generics": none}}},
        }});
        let wanted = [
            "const fn demo::S::grow(&mut self, by: u32) -> u32",
            "const fn demo::T::grow(&mut self, by: u32) -> u32",
            "field demo::S.n: u32",
            "field demo::T.n: u32",
            "impl Debug for S",
            "mod demo",
            "struct demo::S #[non_exhaustive]",
            "struct demo::T #[non_exhaustive]",
            "use demo::gpu = other::gpu",
        ];
        assert_eq!(lines(&[krate]).into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn items_of_other_crates_are_listed_where_they_are_re_exported() {
        let none = json!({"params": [], "where_predicates": []});
        let used = |name: &str, id: u32| json!({"name": null, "attrs": [], "inner": {"use": {"source": "core::a", "name": name, "id": id, "is_glob": false}}});
        let module =
            |name: &str, items: Value| json!({"name": name, "attrs": [], "inner": {"module": {"items": items}}});
        let unit = |name: &str, impls: Value| json!({"name": name, "attrs": [], "inner": {"struct": {"kind": "unit", "generics": none, "impls": impls}}});
        let of_trait = |id: u32, name: &str| {
            json!({"name": null, "attrs": [], "inner": {"impl": {
                "is_synthetic": false, "blanket_impl": null, "trait": {"id": id, "path": name, "args": null}, "items": [],
                "for": {"resolved_path": {"id": 1, "path": "A", "args": null}}, "generics": none}}})
        };
        let path = |id: u32, path: Value| json!({"crate_id": id, "path": path, "kind": "struct"});
        let facade = json!({"root": 0, "index": {"0": module("demo", json!([1])), "1": used("A", 9)},
            "paths": {"9": path(3, json!(["core", "a", "A"]))}});
        let core = json!({"root": 0, "index": {
            "0": module("core", json!([1, 2])), "1": unit("A", json!([4, 5])), "2": unit("B", json!([])),
            "4": of_trait(7, "Clone"), "5": of_trait(3, "Inner"),
            "3": {"name": "Inner", "attrs": [], "inner": {"trait": {"generics": none}}},
        }, "paths": {"1": path(0, json!(["core", "a", "A"])), "3": path(0, json!(["core", "Inner"])), "7": path(1, json!(["std", "Clone"]))}});
        let wanted = ["impl Clone for A", "mod demo", "struct demo::A;"];
        assert_eq!(lines(&[facade, core]).into_iter().collect::<Vec<_>>(), wanted);
    }
}
