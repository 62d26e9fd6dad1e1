//! All features that go together, for the steps that build or document everything. Cargo's `--all-features` would also turn on
//! those for older versions of cudarc, which do not build before the application picks its way of linking.

use serde_json::Value;

use crate::shell::{Stop, line};

/// Every feature of these packages, or of every package of the workspace if none is named: `package/feature`, with commas between
/// them.
pub fn all(packages: &[&str]) -> Result<String, Stop> {
    Ok(of_packages(&metadata("--no-deps")?, packages).join(","))
}

/// What Cargo says of the workspace with these options.
pub fn metadata(options: &str) -> Result<Value, Stop> {
    let command = format!("cargo metadata --format-version 1 {options}");
    let told = line(&command).output().and_then(|text| serde_json::from_str(&text).ok());
    told.ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))
}

fn of_packages(metadata: &Value, packages: &[&str]) -> Vec<String> {
    let all = metadata["packages"].as_array().into_iter().flatten();
    let named = all.filter_map(|package| Some((package["name"].as_str()?, package["features"].as_object()?)));
    let chosen = named.filter(|(name, _)| packages.is_empty() || packages.contains(name));
    let features = chosen.flat_map(|(name, features)| features.keys().map(move |feature| (name, feature)));
    let composable = features.filter(|(_, feature)| *feature != "default" && !feature.starts_with("cudarc-"));
    composable.map(|(name, feature)| format!("{name}/{feature}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn features_of_the_named_packages_but_for_versions_of_cudarc() {
        let metadata = json!({"packages": [
            {"name": "one", "features": {"cuda": [], "cudarc-0_18": [], "default": [], "enable": []}},
            {"name": "two", "features": {"enable": []}},
        ]});
        assert_eq!(of_packages(&metadata, &["one"]), ["one/cuda", "one/enable"]);
        assert_eq!(of_packages(&metadata, &[]), ["one/cuda", "one/enable", "two/enable"]);
    }
}
