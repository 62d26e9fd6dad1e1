//! Types and signatures as rustdoc's JSON has them, as text. A path is its last segment, so that moving an item changes no other line.

use serde_json::Value;

/// The elements, if it is an array.
pub fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The text, if it is one.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// An enum of the format: the name of the variant, and what is in it.
pub fn kind_of(value: &Value) -> (&str, &Value) {
    match value.as_object().and_then(|object| object.iter().next()) {
        Some((kind, inner)) => (kind, inner),
        None => (text(value), &Value::Null),
    }
}

/// A function with its name.
pub fn signature(function: &Value, path: &str) -> String {
    let header = &function["header"];
    let mut words = String::new();
    for (flag, word) in [("is_const", "const "), ("is_async", "async "), ("is_unsafe", "unsafe ")] {
        if header[flag] == true {
            words += word;
        }
    }
    // `Rust`, or an object with the name of another one.
    let (abi, _) = kind_of(&header["abi"]);
    if !matches!(abi, "" | "Rust") {
        words += &format!("extern \"{abi}\" ");
    }
    let generics_of = &function["generics"];
    let inputs = list(&function["sig"]["inputs"]).map(|input| parameter(text(&input[0]), &input[1]));
    let inputs: Vec<_> = inputs.collect();
    let (generics, end) = (generics(generics_of), wheres(generics_of));
    format!("{words}fn {path}{generics}({}){}{end}", inputs.join(", "), output(&function["sig"]["output"]))
}

fn parameter(name: &str, of_type: &Value) -> String {
    let written = type_of(of_type);
    // An unused parameter has an underscore before its name.
    match (name.trim_start_matches('_'), written.as_str()) {
        ("self", "Self") => "self".to_owned(),
        ("self", "&Self") => "&self".to_owned(),
        ("self", "&mut Self") => "&mut self".to_owned(),
        ("", _) => written,
        (name, _) => format!("{name}: {written}"),
    }
}

fn output(of_type: &Value) -> String {
    if of_type.is_null() { String::new() } else { format!(" -> {}", type_of(of_type)) }
}

/// A type.
pub fn type_of(value: &Value) -> String {
    let (kind, inner) = kind_of(value);
    let mutable = if inner["is_mutable"] == true { "mut " } else { "" };
    match kind {
        "resolved_path" => {
            let path = text(&inner["path"]);
            path.rsplit("::").next().unwrap_or(path).to_owned() + &arguments(&inner["args"])
        }
        "generic" | "primitive" => text(inner).to_owned(),
        "tuple" => format!("({})", types(inner)),
        "slice" => format!("[{}]", type_of(inner)),
        "array" => format!("[{}; {}]", type_of(&inner["type"]), text(&inner["len"])),
        "impl_trait" => format!("impl {}", bounds(inner)),
        "dyn_trait" => {
            let traits: Vec<_> = list(&inner["traits"]).map(poly_trait).collect();
            let lifetime = inner["lifetime"].as_str().map(|lifetime| format!(" + {lifetime}"));
            format!("dyn {}{}", traits.join(" + "), lifetime.unwrap_or_default())
        }
        "borrowed_ref" => {
            let lifetime = inner["lifetime"].as_str().map(|lifetime| format!("{lifetime} "));
            format!("&{}{mutable}{}", lifetime.unwrap_or_default(), type_of(&inner["type"]))
        }
        "raw_pointer" => {
            let mutable = if mutable.is_empty() { "const " } else { mutable };
            format!("*{mutable}{}", type_of(&inner["type"]))
        }
        "function_pointer" => {
            let of_inputs = list(&inner["sig"]["inputs"]).map(|input| type_of(&input[1]));
            let inputs: Vec<_> = of_inputs.collect();
            let words = signature(&serde_json::json!({ "header": inner["header"] }), "");
            format!("{}({}){}", words.trim_end_matches("()"), inputs.join(", "), output(&inner["sig"]["output"]))
        }
        "qualified_path" => {
            let of_type = type_of(&inner["self_type"]);
            let name = text(&inner["name"]).to_owned() + &arguments(&inner["args"]);
            match text(&inner["trait"]["path"]) {
                "" => format!("{of_type}::{name}"),
                _ => format!(
                    "<{of_type} as {}>::{name}",
                    type_of(&serde_json::json!({ "resolved_path": inner["trait"] }))
                ),
            }
        }
        "infer" => "_".to_owned(),
        _ => value.to_string(),
    }
}

fn types(value: &Value) -> String {
    list(value).map(type_of).collect::<Vec<_>>().join(", ")
}

/// The arguments of a path.
fn arguments(value: &Value) -> String {
    let (kind, inner) = kind_of(value);
    match kind {
        "angle_bracketed" => {
            let given = list(&inner["args"]).map(|argument| match kind_of(argument) {
                ("type", of_type) => type_of(of_type),
                ("const", constant) => text(&constant["expr"]).to_owned(),
                ("infer", _) => "_".to_owned(),
                (_, lifetime) => text(lifetime).to_owned(),
            });
            let constraints = list(&inner["constraints"]).map(|constraint| {
                let name = text(&constraint["name"]);
                match kind_of(&constraint["binding"]) {
                    ("equality", term) => format!("{name} = {}", term_of(term)),
                    (_, limits) => format!("{name}: {}", bounds(limits)),
                }
            });
            let all: Vec<_> = given.chain(constraints).collect();
            if all.is_empty() { String::new() } else { format!("<{}>", all.join(", ")) }
        }
        "parenthesized" => format!("({}){}", types(&inner["inputs"]), output(&inner["output"])),
        _ => String::new(),
    }
}

fn term_of(term: &Value) -> String {
    match kind_of(term) {
        ("type", of_type) => type_of(of_type),
        (_, constant) => text(&constant["expr"]).to_owned(),
    }
}

/// What a type has to be.
pub fn bounds(value: &Value) -> String {
    let all = list(value).map(|bound| match kind_of(bound) {
        ("trait_bound", inner) => {
            let modifier = if inner["modifier"] == "maybe" { "?" } else { "" };
            format!("{modifier}{}", poly_trait(inner))
        }
        ("outlives", lifetime) => text(lifetime).to_owned(),
        ("use", names) => {
            let names: Vec<_> = list(names).map(|name| text(kind_of(name).1).to_owned()).collect();
            format!("use<{}>", names.join(", "))
        }
        _ => bound.to_string(),
    });
    all.collect::<Vec<_>>().join(" + ")
}

fn poly_trait(value: &Value) -> String {
    let lifetimes: Vec<_> = list(&value["generic_params"]).map(|parameter| text(&parameter["name"])).collect();
    let lifetimes = if lifetimes.is_empty() { String::new() } else { format!("for<{}> ", lifetimes.join(", ")) };
    lifetimes + &type_of(&serde_json::json!({ "resolved_path": value["trait"] }))
}

/// The parameters in angle brackets.
pub fn generics(value: &Value) -> String {
    let parameters = list(&value["params"]).filter_map(|parameter| {
        let (kind, inner) = kind_of(&parameter["kind"]);
        let name = text(&parameter["name"]);
        match kind {
            "type" if inner["is_synthetic"] == true => None,
            "type" => {
                let limits = bounds(&inner["bounds"]);
                Some(if limits.is_empty() { name.to_owned() } else { format!("{name}: {limits}") })
            }
            "const" => Some(format!("const {name}: {}", type_of(&inner["type"]))),
            _ => Some(name.to_owned()),
        }
    });
    let parameters: Vec<_> = parameters.collect();
    if parameters.is_empty() { String::new() } else { format!("<{}>", parameters.join(", ")) }
}

/// The conditions behind an item, with the space before them.
pub fn wheres(generics: &Value) -> String {
    let conditions = list(&generics["where_predicates"]).map(|condition| match kind_of(condition) {
        ("bound_predicate", inner) => format!("{}: {}", type_of(&inner["type"]), bounds(&inner["bounds"])),
        ("lifetime_predicate", inner) => {
            let outlived: Vec<_> = list(&inner["outlives"]).map(text).collect();
            format!("{}: {}", text(&inner["lifetime"]), outlived.join(" + "))
        }
        (_, inner) => format!("{} = {}", type_of(&inner["lhs"]), term_of(&inner["rhs"])),
    });
    let conditions: Vec<_> = conditions.collect();
    if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(", ")) }
}
