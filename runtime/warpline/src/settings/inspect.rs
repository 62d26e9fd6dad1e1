//! What a line of settings asks for, for the command `warpline doctor`.
//!
//! The command is not the program that the settings are for, which may have other features. A setting that this build
//! lacks is therefore not an error here: it is listed with the feature that the program needs. Nothing is started and
//! no file is touched.

use std::path::PathBuf;

use super::config::Config;
use super::line;
use super::table::SETTINGS;
use super::values::is_missing_feature;
use crate::error::ConfigError;
use warpline_core::file_name;

/// What a line of settings asks for.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InspectedSettings {
    /// The first setting that is invalid, and what to write instead.
    pub problem: Option<String>,
    /// Nothing is recorded: `off`, `help`, or an empty line.
    pub is_off: bool,
    /// The features that the program needs for its settings.
    pub features: Vec<&'static str>,
    /// The traces and the flight recorder's file, with the placeholders of this process.
    pub files: Vec<PathBuf>,
    /// `kernels` or `timing=kernels`.
    pub kernels: bool,
    /// `graph_timing` other than `off`.
    pub graph_timing: bool,
    /// `nvtx`: asked for, turned off, or not mentioned.
    pub nvtx: Option<bool>,
    /// `tracy`.
    pub tracy: bool,
    /// `control`.
    pub control: bool,
}

/// Reads a line as a program with every feature would.
pub fn inspect(text: &str) -> InspectedSettings {
    let mut found = InspectedSettings { is_off: text.trim().is_empty(), ..InspectedSettings::default() };
    let mut config = Config::default();
    let mut kept = Vec::new();
    for (setting, key, value) in line::settings(text) {
        let value = value.unwrap_or_default();
        found.kernels |= matches!(key, "kernels" | "synchronizations") || (key, value) == ("timing", "kernels");
        found.graph_timing |= key == "graph_timing" && value != "off";
        found.tracy |= key == "tracy";
        let feature = match key {
            "timing" => (value == "kernels").then_some("cupti"),
            "graph_timing" => (value != "off").then_some("cuda"),
            key => SETTINGS.iter().find(|setting| setting.key == key).and_then(|setting| setting.feature),
        };
        found.features.extend(feature.filter(|feature| !found.features.contains(feature)));
        let lacks_feature = |error: ConfigError| is_missing_feature(error.problem());
        if !Config::default().add(setting).is_err_and(lacks_feature) {
            kept.push(setting);
        }
    }
    // Together, so that a setting that is given twice is found.
    let checked = config.add(&kept.join(",")).and_then(|()| if config.off { Ok(()) } else { config.check() });
    found.problem = checked.err().map(|error| error.to_string());
    found.is_off |= config.off || config.help;
    found.nvtx = config.nvtx;
    found.control = config.control;
    let flight = config.flight.iter().filter_map(|flight| flight.path.clone());
    let own =
        config.flight.iter().filter(|flight| flight.path.is_none()).map(|_| PathBuf::from("warpline-{pid}.flight"));
    let files: Vec<_> = config.perfetto.iter().chain(&config.chrome).cloned().chain(flight).chain(own).collect();
    found.files = files.into_iter().map(|path| file_name::expand(&path).unwrap_or(path)).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_it_asks_for_whatever_this_build_has() {
        let found = inspect("perfetto=a/t.pftrace,kernels,graph_timing=stamps,log,nvtx,flight=64MiB");
        assert_eq!(found.problem, None);
        assert_eq!(found.features, ["cupti", "cuda", "tracing"]);
        assert!(found.kernels && found.graph_timing && !found.tracy && !found.is_off);
        let line = "ranks=run,otlp=http://localhost:4318,prometheus=9464,event_pool_capacity=1,timing=kernels";
        assert_eq!(inspect(line).features, ["ranks", "otlp", "prometheus", "timeline", "cupti"]);
        assert_eq!(inspect("timing=events,graph_timing=off,summary").features, [""; 0]);
        assert_eq!(found.nvtx, Some(true));
        assert_eq!(found.files[0], PathBuf::from("a/t.pftrace"));
        assert_eq!(found.files[1], PathBuf::from(format!("warpline-{}.flight", std::process::id())));
    }

    #[test]
    fn what_is_wrong_is_said_as_a_session_says_it() {
        let problem = |line: &str| inspect(line).problem.expect(line);
        assert!(problem("kernels,sumary").contains("did you mean `summary`?"));
        assert!(problem("level=fine,tracy,level=coarse").contains("given more than once"));
        assert!(problem("rotate=256MiB").contains("needs a Perfetto trace to rotate"));
        assert!(problem("graph_timing=cupti").contains("is `off`, `stamps`"));
        assert!(inspect("").is_off && inspect("off,rotate=256MiB").problem.is_none());
    }
}
