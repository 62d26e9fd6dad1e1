//! The items of a crate that rustdoc has described, each on a line with its signature, sorted. What is `#[doc(hidden)]`, private,
//! or implemented for every type is left out.

use std::collections::BTreeSet;

use serde_json::Value;

use super::types::{bounds, generics, kind_of, list, signature, text, type_of, wheres};

/// The lines of the crate.
pub fn lines(krate: &Value) -> BTreeSet<String> {
    let mut lines = Lines { krate, lines: BTreeSet::new() };
    let name = lines.item(&krate["root"]).map(|root| text(&root["name"]).to_owned()).unwrap_or_default();
    lines.walk(&krate["root"], &name, &mut Vec::new());
    lines.lines
}

struct Lines<'a> {
    krate: &'a Value,
    lines: BTreeSet<String>,
}

impl<'a> Lines<'a> {
    fn item(&self, id: &Value) -> Option<&'a Value> {
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        let item = self.krate["index"].get(&id)?;
        let is_hidden = list(&item["attrs"]).any(|attribute| attribute.to_string().contains("doc(hidden)"));
        (!is_hidden).then_some(item)
    }

    fn add(&mut self, item: &Value, line: String) {
        let attributes = list(&item["attrs"]).filter_map(Value::as_str);
        let is_open = attributes.into_iter().any(|attribute| attribute.contains("non_exhaustive"));
        self.lines.insert(line + if is_open { " #[non_exhaustive]" } else { "" });
    }

    /// The lines of an item that can be named so, and of what is in it. `above` is the items that it is in.
    fn walk(&mut self, id: &Value, path: &str, above: &mut Vec<String>) {
        let Some(item) = self.item(id) else { return };
        let key = id.to_string();
        if above.contains(&key) {
            return;
        }
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

    fn child(&mut self, id: &Value, path: &str, above: &mut Vec<String>) {
        let Some(item) = self.item(id) else { return };
        let (kind, inner) = kind_of(&item["inner"]);
        if kind != "use" {
            return self.walk(id, &format!("{path}::{}", text(&item["name"])), above);
        }
        let name = format!("{path}::{}", text(&inner["name"]));
        let target = self.item(&inner["id"]);
        match (target, inner["is_glob"] == true) {
            (Some(_), false) => self.walk(&inner["id"], &name, above),
            (Some(target), true) => {
                let (_, inner) = kind_of(&target["inner"]);
                let children = list(&inner["items"]).chain(list(&inner["variants"]));
                children.for_each(|child| self.child(child, path, above));
            }
            (None, true) => self.add(item, format!("use {path}::* = {}", text(&inner["source"]))),
            (None, false) => self.add(item, format!("use {name} = {}", text(&inner["source"]))),
        }
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

    fn implementation(&mut self, id: &Value, path: &str, above: &mut Vec<String>) {
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
        self.lines.insert(format!("impl{generics} {word}{implemented} for {}{end}", type_of(&inner["for"])));
    }
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
        assert_eq!(lines(&krate).into_iter().collect::<Vec<_>>(), wanted);
    }
}
