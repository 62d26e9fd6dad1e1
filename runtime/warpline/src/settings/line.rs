//! `WARPLINE=…`: every setting of a session in one line.
//!
//! The line consists of `key` and `key=value`, joined by commas. The builder reads it from the environment or from the
//! program, and the NVTX mirror, which needs no session, from the environment. The parser rejects unknown settings and
//! lists the known ones. It never panics.

use super::config::Config;
use super::setting::{Read, Setting};
use super::suggest::{blank_for_comma, unknown};
use super::table::SETTINGS;
use crate::error::ConfigError;

/// The environment variable with the settings.
pub(super) const VARIABLE: &str = "WARPLINE";

/// Returns the text that `help` prints.
pub(super) fn help() -> String {
    let mut text = format!("{VARIABLE} takes these settings, joined by commas:");
    for setting in SETTINGS {
        let lack = match setting.feature {
            _ if setting.is_supported => String::new(),
            Some(feature) => format!(" [no feature `{feature}`]"),
            None => " [not on this system]".to_owned(),
        };
        text.push_str(&format!("\n  {:<19}  {}{lack}", setting.form(), setting.help));
    }
    text.push_str("\nFILE may have `{pid}`, `{rank}` and `{host}` in it. Nothing is recorded in this run.");
    text
}

impl Config {
    /// Adds a line of settings to these.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub(super) fn add(&mut self, line: &str) -> Result<(), ConfigError> {
        let mut seen = Vec::new();
        for (text, key, value) in settings(line) {
            let wrong = |problem: String| ConfigError::new(text, problem);
            let setting = SETTINGS.iter().find(|setting| setting.key == key);
            if value.is_some() && seen.contains(&key) && setting.is_some_and(|setting| !setting.repeats) {
                return Err(wrong(format!("`{key}` is given more than once; remove all but one")));
            }
            seen.push(key);
            if let Some(problem) = blank_for_comma(text) {
                return Err(wrong(problem));
            }
            let setting = setting.ok_or_else(|| wrong(unknown(text, key)))?;
            self.read(setting, value).map_err(wrong)?;
        }
        Ok(())
    }

    /// Sets one setting.
    ///
    /// # Errors
    /// The fault of the value, and the text to write instead.
    fn read(&mut self, setting: &Setting, value: Option<&str>) -> Result<(), String> {
        let key = setting.key;
        setting.supported()?;
        match (&setting.read, value) {
            (Read::Flag(_), Some(_)) => Err(format!("takes no value; write `{key}`")),
            (Read::Flag(field), None) => {
                *field(self) = true;
                Ok(())
            }
            (Read::Value(..), None | Some("")) => Err(format!("needs a value, as in `{key}={}`", setting.example)),
            (Read::Value(_, set), Some(value)) => set(self, value),
            (Read::Optional(set), value) => set(self, value),
        }
    }
}

/// Returns the settings of a line: the text, the key and the value of each.
pub(super) fn settings(line: &str) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
    let settings = line.split(',').map(str::trim).filter(|setting| !setting.is_empty());
    settings.map(|setting| match setting.split_once('=') {
        Some((key, value)) => (setting, key.trim(), Some(value.trim())),
        None => (setting, setting, None),
    })
}

/// Returns whether a line has a setting with this key.
pub(super) fn has(line: &str, key: &str) -> bool {
    settings(line).any(|(_, known, _)| known == key)
}

/// Returns the settings of `WARPLINE` that are valid. The mirrors of zones read theirs, with or without a session; a session reports
/// the invalid ones.
pub(crate) fn of_environment() -> Config {
    let mut config = Config::default();
    if let Ok(line) = warpline_core::environment::var(VARIABLE) {
        let _ = config.add(&line);
    }
    config
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::super::values::{Console, FlightSettings, no_feature};
    use super::*;
    use warpline_core::catalog::Level;
    use warpline_core::timing::{EndMode, GraphTiming, Timing};

    fn parse(line: &str) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        config.add(line).map(|()| config)
    }

    fn problem(line: &str) -> String {
        parse(line).expect_err(line).to_string()
    }

    #[test]
    fn reads_every_setting() {
        let line = " perfetto=a.pftrace, chrome=a.json,summary,level=coarse,filter=demo.*,filter=!demo.mlp,ring=64,events=128,ends=lazy,budget=0.5%,sample=10%,timeout=250ms,";
        let config = parse(line).expect("a good line");
        assert_eq!(config.perfetto, [PathBuf::from("a.pftrace")]);
        assert_eq!(config.chrome, [PathBuf::from("a.json")]);
        assert!(config.summary == Some(Console::Error) && config.level == Level::Coarse && config.ring == 64);
        assert_eq!((config.events, config.ends, config.budget), (128, EndMode::Lazy, Some(0.005)));
        assert_eq!((config.filters.len(), config.sample), (2, 0.1));
        assert_eq!(config.finish_timeout, Duration::from_millis(250));
        assert_eq!(parse("").expect("empty"), Config::default());
        let nvtx = |line: &str| parse(line).expect(line).nvtx;
        let clock = |line: &str| parse(line).map(|config| config.timing);
        assert_eq!((clock(""), clock("timing=events")), (Ok(Timing::Events), Ok(Timing::Events)));
        match cfg!(feature = "cupti") {
            true => assert_eq!(clock("timing=kernels"), Ok(Timing::Kernels)),
            false => assert!(problem("timing=kernels").contains(&no_feature("cupti"))),
        }
        assert!(problem("timing=stamps").contains("is `events` or `kernels`"));
        let timing = |line: &str| parse(line).map(|config| config.graph_timing);
        assert_eq!((timing(""), timing("graph_timing=off")), (Ok(GraphTiming::Off), Ok(GraphTiming::Off)));
        match cfg!(feature = "cuda") {
            true => {
                assert_eq!(timing("graph_timing=stamps"), Ok(GraphTiming::Stamps));
                assert_eq!(timing("graph_timing=launch-order-stamps"), Ok(GraphTiming::LaunchOrderStamps));
            }
            false => assert!(
                problem("graph_timing=stamps").contains("without warpline's feature `cuda`; build it with that")
            ),
        }
        for value in ["cupti", "events"] {
            assert!(problem(&format!("graph_timing={value}")).contains("is `off`, `stamps` or `launch-order-stamps`"));
        }
        assert_eq!((nvtx("summary"), nvtx("nvtx"), nvtx("nvtx=off,nvtx")), (None, Some(true), Some(false)));
        #[cfg(target_os = "linux")]
        assert!(parse("control").is_ok_and(|config| config.control && !config.has_output()));
        assert!(parse("summary,off").expect("off").off && parse("calibrate").expect("a flag").calibrate);
    }

    #[test]
    fn says_what_to_write_instead() {
        assert_eq!(
            problem("summary,perfeto=a"),
            "`perfeto=a`: there is no setting `perfeto`; did you mean `perfetto`?"
        );
        assert_eq!(
            problem("verbose=2"),
            "`verbose=2`: there is no setting `verbose`; run the program with `WARPLINE=help`, which lists them"
        );
        assert_eq!(problem("perfetto="), "`perfetto=`: needs a value, as in `perfetto=trace.pftrace`");
        assert_eq!(problem("level=medium"), "`level=medium`: a level is `coarse` or `fine`");
        if cfg!(feature = "tracy") {
            assert!(parse("tracy").expect("it is built in").tracy);
        } else {
            assert!(problem("tracy").contains("without warpline's feature `tracy`; build it with that"));
        }
        assert_eq!(problem("quiet=yes"), "`quiet=yes`: takes no value; write `quiet`");
        for summary in
            ["summary=yes", "summary=", "summary=r.htm", "summary=r.html.gz", "summary=r.CSV", "summary=.json"]
        {
            let problem = problem(summary);
            assert!(problem.contains("ends with `.html`, `.json` or `.md`, as in `summary=report.html`"), "{problem}");
        }
        assert_eq!(problem("ring=0"), "`ring=0`: a ring holds 1 to 1048575 zones a stream, as in `ring=4096`");
        assert_eq!(problem("ends=late"), "`ends=late`: ends are `auto`, `eager` or `lazy`");
        assert_eq!(problem("roctx=on"), "`roctx=on`: write `roctx` or `roctx=off`");
        assert_eq!(problem("nvtx=on"), "`nvtx=on`: write `nvtx` or `nvtx=off`");
        assert_eq!(
            problem("budget=5"),
            "`budget=5`: a budget is a share of the launching thread's time and needs a `%`; write `budget=5%`"
        );
        assert_eq!(
            problem("budget=0.5"),
            "`budget=0.5`: a budget is a share of the launching thread's time and needs a `%`; write `budget=0.5%`, or \
             `budget=50%` for that share of 1"
        );
        assert_eq!(
            problem("budget=500%"),
            "`budget=500%`: a budget is a share of the launching thread's time, above 0 % and up to 100 %, as in `budget=0.5%`"
        );
        assert!(problem("budget=0%").contains("above 0 % and up to 100 %, as in `budget=0.5%`"));
        assert_eq!(
            problem("sample=0"),
            "`sample=0`: a sample is a share of each range's zones, above 0 %, as in `sample=10%`; write `off` to record nothing"
        );
        assert_eq!(
            problem("sample=0%").split_once(": ").map(|(_, text)| text),
            problem("sample=0").split_once(": ").map(|(_, text)| text)
        );
        assert!(problem("sample=10").ends_with("needs a `%`; write `sample=10%`"));
        assert!(problem("sample=half").ends_with("as in `sample=10%`"));
        assert_eq!(
            problem("level=coarse,level=fine"),
            "`level=fine`: `level` is given more than once; remove all but one"
        );
        assert!(problem("budget=1%,summary,budget=2%").contains("`budget` is given more than once"));
        assert!(parse("summary,summary,filter=a.*,filter=b.*,nvtx,nvtx=off").is_ok());
        assert_eq!(
            problem("perfetto=t.{node}.pftrace"),
            "`perfetto=t.{node}.pftrace`: has no placeholder `{node}`; there are `{pid}`, `{rank}` and `{host}`; write `{{` for \
             a brace"
        );
        assert!(problem("flight=1MiB:{x}").contains("no placeholder `{x}`"));
        assert!(problem("events=1").contains("as in `events=16384`"));
        assert_eq!(
            problem("timeout=5"),
            "`timeout=5`: a time is a number with `ms`, `s`, `m` or `h`, as in `5s` or `250ms`"
        );
        match parse("kernels") {
            Ok(config) => assert!(config.kernels && cfg!(feature = "cupti")),
            Err(error) => assert_eq!(error.to_string(), format!("`kernels`: {}", no_feature("cupti"))),
        }
        match parse("synchronizations") {
            Ok(config) => assert!(config.synchronizations && !config.kernels && cfg!(feature = "cupti")),
            Err(error) => assert_eq!(error.to_string(), format!("`synchronizations`: {}", no_feature("cupti"))),
        }
        match parse("log") {
            Ok(config) => assert!(config.log && cfg!(feature = "tracing")),
            Err(error) => assert_eq!(error.to_string(), format!("`log`: {}", no_feature("tracing"))),
        }
        assert_eq!(
            problem("filter=Demo.*"),
            "`filter=Demo.*`: names of ranges are in lower case; write `filter=demo.*`"
        );
        assert!(problem("filter=!Demo.Mlp").ends_with("write `filter=!demo.mlp`"));
        assert!(problem("filter=\\!demo").contains("'filter=!demo.mlp'"));
        assert!(problem("filter=De mo").contains("as in `demo.*`"));
        assert_eq!(
            problem("filter=demo.*,!demo.mlp"),
            "`!demo.mlp`: is a pattern; each takes its own `filter=`: write `filter=!demo.mlp`"
        );
        assert!(problem("filter=demo.*,demo.mlp").contains("write `filter=demo.mlp`"));
        assert_eq!(problem("a.json"), "`a.json`: is a file; write `chrome=a.json`");
        assert!(problem("a.pftrace").contains("write `perfetto=a.pftrace`"));
        for far in ["on", "foo", "x", "verbose", "Demo.Step"] {
            assert!(!problem(far).contains("did you mean"), "{}", problem(far));
        }
        for (near, meant) in [("log2", "log"), ("of", "off"), ("kep=3", "keep"), ("sumary", "summary")] {
            assert!(problem(near).contains(&format!("did you mean `{meant}`?")), "{}", problem(near));
        }
        assert!(problem("timeout=-1s").contains("a time is") && problem("timeout=NaNs").contains("a time is"));
    }

    #[test]
    fn help_lists_every_setting_that_is_read() {
        assert!(parse("help").is_ok_and(|config| config.help && !config.has_output()));
        let help = help();
        for setting in SETTINGS {
            let (key, form) = (setting.key, setting.form());
            let line =
                help.lines().find(|line| line.starts_with(&format!("  {form} "))).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(line.ends_with(']'), !setting.is_supported, "{line}");
            let lack = setting.feature.filter(|_| !setting.is_supported);
            assert!(lack.is_none_or(|feature| line.ends_with(&format!(" [no feature `{feature}`]"))), "{line}");
            let example = if form == key { form } else { format!("{key}={}", setting.example) };
            // Settings that are not built in, or not available on this system, are rejected with a message that says
            // so.
            let is_known = parse(&example).map_or_else(|error| error.to_string().contains("built without"), |_| true);
            assert!(is_known || cfg!(not(target_os = "linux")), "{example}");
        }
        let without_lack = |line: &str| line.split(" [").next().map_or(0, |line| line.chars().count());
        assert!(help.lines().all(|line| without_lack(line) <= 100), "{help}");
    }

    #[test]
    fn no_text_of_a_setting_acts_on_a_terminal() {
        for text in ["\u{1b}[31m=1", "\u{202e}perfetto", "a\u{1b}[2J.pftrace", "a\u{1b}.*", "x=\u{2028} summary"] {
            let error = Config::default().add(text).expect_err(text).to_string();
            assert!(!error.contains(warpline_core::text::deceives), "{error:?}");
        }
    }

    #[test]
    fn a_blank_is_no_comma() {
        assert_eq!(
            problem("perfetto=t.pftrace filter=demo.*"),
            "`perfetto=t.pftrace filter=demo.*`: settings are joined by commas: write `perfetto=t.pftrace,filter=demo.*`"
        );
        assert!(problem("summary level=coarse").contains("write `summary,level=coarse`"));
        assert!(problem("chrome=my trace.json  summary").contains("write `chrome=my trace.json,summary`"));
        let path = |line: &str| parse(line).expect(line).perfetto;
        assert_eq!(path("perfetto=my summary.pftrace"), [PathBuf::from("my summary.pftrace")]);
        assert_eq!(path("perfetto=the log of it.pftrace, summary"), [PathBuf::from("the log of it.pftrace")]);
    }

    #[test]
    fn two_traces_in_one_file_are_refused() {
        let folder = std::env::temp_dir().join(format!("warpline-one-file-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).expect("a folder");
        let at = |name: &str| folder.join(name).display().to_string();
        let check = |line: &str| parse(line).expect(line).check();
        let (a, again, b) = (at("a"), at("below/../a"), at("b"));
        for line in [
            format!("perfetto={a},perfetto={a}"),
            format!("perfetto={a},chrome={again}"),
            format!("perfetto={a},flight=1MiB:{again}"),
            format!("perfetto={a},perfetto={again},rotate=1MiB"),
        ] {
            let error = check(&line).expect_err(&line).to_string();
            assert!(error.ends_with("is named twice; each trace needs a file of its own"), "{error}");
        }
        assert_eq!(check(&format!("perfetto={a},chrome={b},flight=1MiB:{}", at("c"))), Ok(()));
        #[cfg(unix)]
        {
            assert_eq!(check("perfetto=/dev/null,chrome=/dev/null"), Ok(()));
            std::os::unix::fs::symlink("a", folder.join("link")).expect("a link");
            let by_link = format!("perfetto={a},chrome={}", at("link"));
            check(&by_link).expect_err("a link to what is not there yet");
            std::fs::write(folder.join("a"), "").expect("a file");
            std::fs::hard_link(folder.join("a"), folder.join("hard")).expect("a link");
            check(&by_link).expect_err("a link");
            check(&format!("perfetto={a},chrome={}", at("hard"))).expect_err("the same file by another name");
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn sizes_and_what_goes_with_them_are_checked() {
        let config = parse("perfetto=a.pftrace,rotate=256MiB,keep=4,flight=64MiB:/tmp/a:b,stall=10s,dump_on=sigusr2");
        let config = config.expect("a good line");
        assert_eq!(
            (config.rotate, config.keep, config.stall),
            (Some(256 << 20), Some(4), Some(Duration::from_secs(10)))
        );
        assert_eq!(config.flight, Some(FlightSettings { bytes: 64 << 20, path: Some("/tmp/a:b".into()) }));
        assert!(config.dump_on_sigusr2 && config.check().is_ok());
        assert_eq!(parse("flight=1GiB").expect("a size").flight.expect("it").path, None);
        let rotate = |size: &str| parse(&format!("rotate={size}")).expect(size).rotate;
        assert_eq!(
            (rotate("256MB"), rotate("8GB"), rotate("99KB")),
            (Some(256_000_000), Some(8_000_000_000), Some(99_000))
        );
        let timeout = |time: &str| parse(&format!("timeout={time}")).expect(time).finish_timeout.as_secs();
        assert_eq!((timeout("2m"), timeout("1.5h")), (120, 5_400));
        for (line, says) in [
            ("rotate=256", "as in `rotate=256MiB`"),
            ("rotate=256Mb", "`KB`, `MB`, `GB`, `KiB`, `MiB` or `GiB`"),
            ("rotate=1KiB", "at least `64KiB`"),
            ("rotate=65KB", "at least `64KiB`"),
            ("rotate=99999999999GiB", "as in `rotate=256MiB`"),
            ("keep=0", "`keep=0`: at least 1 file stays"),
            ("keep=some", "as in `keep=4`"),
            ("flight=64", "as in `flight=64MiB`"),
            ("flight=1KiB", "from `256KiB` to `64GiB`"),
            ("flight=64MiB:", "names no file"),
            ("stall=1ms", "the shortest time is `100ms`"),
            ("stall=soon", "as in `stall=10s`"),
            ("dump_on=sigint", "write `dump_on=sigusr2`"),
        ] {
            assert!(problem(line).contains(says), "{}", problem(line));
        }
        for (line, says) in [
            ("rotate=1MiB", "`rotate`: needs a Perfetto trace to rotate"),
            ("perfetto=a,keep=2", "`keep`: needs files to keep some of"),
            ("stall=10s", "`stall`: needs a flight recorder to write out, as in `flight=64MiB,stall=10s`"),
            ("dump_on=sigusr2", "`dump_on`: needs a flight recorder"),
        ] {
            let error = parse(line).expect(line).check().expect_err(line).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
