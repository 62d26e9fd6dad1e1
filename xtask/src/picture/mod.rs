//! `cargo xtask picture TRACE OUT.svg`: a picture of a trace for people who have not opened it yet, such as the README's.
//!
//! It asks Perfetto's own trace processor for everything that it draws, so it shows what the UI would show. `svg.rs` draws.
//! The window is from the first launch to the end of the third of the zones that take most of the time; `--from` and
//! `--length` choose another, in ms since the session began.
//!
//! `cargo xtask picture TRACE OUT.png` takes a picture of Perfetto's own UI with the trace, in the browser that tests pages, and `cargo xtask
//! picture PAGE.html OUT.png` one of a page.

mod svg;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use crate::gate::Tools;
use crate::pages;
use crate::shell::Stop;

/// How many of the main zones the window holds if nobody says otherwise.
const MAIN_ZONES: usize = 3;

/// One row per lane of each track: id, whether it is a thread's, its name, its heading, its rank, what it is merged with. A
/// track below a stream or a thread stands beside it. Render stages are the kernels once more.
const TRACKS: &str = "
select t.id, th.utid is not null,
  iif(th.utid is not null, coalesce(th.name, 'thread ' || th.tid) || coalesce(': ' || t.name, ''),
    iif(above.id is null, t.name, parent.name || ': ' || t.name)),
  iif(th.utid is not null, 'process ' || p.name, coalesce(above.name, parent.name)),
  cast(coalesce(extract_arg(iif(above.id is null, t.source_arg_set_id, parent.source_arg_set_id), 'sibling_order_rank'), '0') as int),
  coalesce(t.track_group_id, -1 - t.id)
from track t left join track parent on parent.id = t.parent_id left join track above on above.id = parent.parent_id
left join thread_track tt on tt.id = t.id left join thread th using (utid) left join process p using (upid)
where t.id in (select track_id from slice) and coalesce(t.name, '') != 'session' and t.type != 'gpu_render_stage'";

const SLICES: &str = "
select s.id, s.track_id, s.name, s.ts - start_ts, s.dur, s.depth from slice s, trace_bounds
where s.name not in ('session begins', 'session ends') order by s.ts, s.depth";

const FLOWS: &str = "select slice_out, slice_in from flow";

const DETAILS: &str = "
select s.id, a.key, a.display_value from slice s join args a using (arg_set_id)
where a.key like 'debug.%' and a.display_value is not null order by s.id, a.id";

/// What is drawn.
struct Picture {
    rows: Vec<Row>,
    flows: Vec<(i64, i64)>,
    /// The slice whose details are shown, and they.
    selected: Option<(i64, Vec<(String, String)>)>,
    /// In ns since the session began.
    from_ns: i64,
    to_ns: i64,
}

/// A row of the UI: a thread or a stream, with its lanes below each other.
struct Row {
    name: String,
    heading: String,
    is_thread: bool,
    lanes: Vec<Vec<Slice>>,
}

struct Slice {
    id: i64,
    name: String,
    begin_ns: i64,
    length_ns: i64,
    depth: usize,
}

/// Runs `cargo xtask picture` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let ms = |text: &str| {
        let ms = text.parse::<f64>().ok().filter(|ms| ms.is_finite());
        ms.map(|ms| (ms * 1e6) as i64).ok_or_else(|| format!("`{text}` is not a number of ms, such as `12.5`"))
    };
    if let [page, out, rest @ ..] = options
        && page.split('#').next().is_some_and(|file| file.ends_with(".html"))
    {
        let (size, theme) = match rest {
            [] => ("1280x800", "light"),
            ["--dark"] => ("1280x800", "dark"),
            ["--size", size] => (*size, "light"),
            ["--size", size, "--dark"] => (*size, "dark"),
            _ => return Err(format!("`picture` of a page does not know `{}`", rest.join(" "))),
        };
        return Ok(ended(pages::picture(page, Path::new(out), size, theme)));
    }
    if let [trace, out, rest @ ..] = options
        && out.ends_with(".png")
    {
        let (size, window) = match rest {
            [] => ("1280x640", None),
            ["--size", size] => (*size, None),
            ["--from", from, "--length", length] => ("1280x640", Some((ms(from)?, ms(length)?))),
            ["--size", size, "--from", from, "--length", length] => (*size, Some((ms(from)?, ms(length)?))),
            _ => return Err(format!("`picture` of a trace in the UI does not know `{}`", rest.join(" "))),
        };
        let window = window.map(|(from_ns, length_ns)| (from_ns as f64 / 1e6, length_ns as f64 / 1e6));
        return Ok(ended(pages::picture_in_ui(Path::new(trace), Path::new(out), size, window)));
    }
    let (trace, out, window) = match options {
        [trace, out] => (trace, out, None),
        [trace, out, "--from", from, "--length", length] => (trace, out, Some((ms(from)?, ms(length)?))),
        _ => return Err(format!("`picture` does not know `{}`", options.join(" "))),
    };
    Ok(ended(draw(Path::new(trace), Path::new(out), window)))
}

fn ended(result: Result<(), Stop>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Lacks(what) | Stop::Failed(what) | Stop::Skipped(what)) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}

fn draw(trace: &Path, out: &Path, window: Option<(i64, i64)>) -> Result<(), Stop> {
    let queries = [TRACKS, SLICES, FLOWS, DETAILS].map(str::to_owned);
    let answers = Tools::ready()?.query(trace, &queries)?;
    let tables: Vec<_> = answers.results.into_iter().collect::<Result<_, _>>().map_err(Stop::Failed)?;
    let [tracks, slices, flows, details] = tables.as_slice() else {
        return Err(Stop::Failed("the trace processor left a query without an answer".to_owned()));
    };
    let rows = rows(tracks, slices);
    let flows: Vec<_> = flows.iter().map(|row| (int(row, 0), int(row, 1))).collect();
    let (from_ns, to_ns) = match window {
        Some((from_ns, length_ns)) => (from_ns, from_ns + length_ns.max(1)),
        None => main_window(&rows).ok_or_else(|| Stop::Failed(format!("{} has no zones", trace.display())))?,
    };
    let mut picture = Picture { rows, flows, selected: None, from_ns, to_ns };
    picture.selected = picture.most_telling(details);
    std::fs::write(out, svg::render(&picture))
        .map_err(|error| Stop::Failed(format!("`{}`: {error}", out.display())))?;
    println!("{}: {:.3} ms from {:.3} ms", out.display(), (to_ns - from_ns) as f64 / 1e6, from_ns as f64 / 1e6);
    Ok(())
}

/// Threads first, then streams, as the UI orders them.
fn rows(tracks: &[Vec<Value>], slices: &[Vec<Value>]) -> Vec<Row> {
    let mut of_track: BTreeMap<i64, Vec<Slice>> = BTreeMap::new();
    for row in slices {
        of_track.entry(int(row, 1)).or_default().push(Slice {
            id: int(row, 0),
            name: text(row, 2),
            begin_ns: int(row, 3),
            length_ns: int(row, 4).max(0),
            depth: usize::try_from(int(row, 5)).unwrap_or(0),
        });
    }
    let mut rows: BTreeMap<_, Row> = BTreeMap::new();
    for track in tracks {
        let is_thread = int(track, 1) == 1;
        let key = (!is_thread, text(track, 3), int(track, 4), text(track, 2), int(track, 5));
        let row = rows.entry(key).or_insert_with(|| {
            let (name, heading) = (text(track, 2), text(track, 3));
            Row { name, heading, is_thread, lanes: Vec::new() }
        });
        row.lanes.extend(of_track.remove(&int(track, 0)));
    }
    rows.into_values().collect()
}

/// From the first launch to the end of the third of the zones that take most of the time.
fn main_window(rows: &[Row]) -> Option<(i64, i64)> {
    let outermost = || rows.iter().filter(|row| !row.is_thread).flat_map(|row| row.lanes.iter().flatten());
    let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
    for slice in outermost().filter(|slice| slice.depth == 0) {
        *totals.entry(&slice.name).or_default() += slice.length_ns;
    }
    let main = totals.into_iter().max_by_key(|(_, total)| *total)?.0;
    let mut ends: Vec<_> = outermost().filter(|slice| slice.name == main).map(Slice::end_ns).collect();
    ends.sort_unstable();
    let to_ns = *ends.get(MAIN_ZONES - 1).or(ends.last())?;
    let launches = rows.iter().filter(|row| row.is_thread).flat_map(|row| row.lanes.iter().flatten());
    let names: Vec<_> = outermost().map(|slice| slice.name.as_str()).collect();
    let launched = launches.filter(|slice| names.contains(&slice.name.as_str())).map(|slice| slice.begin_ns).min();
    let from_ns = launched.or_else(|| outermost().map(|slice| slice.begin_ns).min())?;
    let margin = (to_ns - from_ns) / 40;
    Some((from_ns - margin, to_ns + margin))
}

impl Picture {
    /// Whether any of the slice is in the window.
    fn shows(&self, slice: &Slice) -> bool {
        slice.begin_ns < self.to_ns && slice.end_ns() > self.from_ns
    }

    /// The zone in the window that says most of itself, and the longest of those.
    fn most_telling(&self, details: &[Vec<Value>]) -> Option<(i64, Vec<(String, String)>)> {
        let mut of_slice: BTreeMap<i64, Vec<(String, String)>> = BTreeMap::new();
        for row in details {
            let key = text(row, 1).trim_start_matches("debug.").to_owned();
            of_slice.entry(int(row, 0)).or_default().push((key, text(row, 2)));
        }
        let zones = self.rows.iter().filter(|row| !row.is_thread).flat_map(|row| row.lanes.iter().flatten());
        let whole = zones.filter(|slice| slice.begin_ns >= self.from_ns && slice.end_ns() <= self.to_ns);
        let known = whole.filter_map(|slice| Some((of_slice.get(&slice.id)?.len(), slice.length_ns, slice.id)));
        let (_, _, id) = known.max()?;
        Some((id, of_slice.remove(&id)?))
    }
}

impl Slice {
    /// Something waits here. Names of zones have no spaces.
    fn is_wait(&self) -> bool {
        self.name.starts_with("wait ")
    }

    /// An end of an arrow from a signal to a wait, and nothing that takes time.
    fn is_mark(&self) -> bool {
        self.length_ns == 0 && (self.name.starts_with("signal ") || self.name.starts_with("resume "))
    }

    fn end_ns(&self) -> i64 {
        self.begin_ns + self.length_ns
    }
}

fn int(row: &[Value], column: usize) -> i64 {
    row.get(column).and_then(Value::as_i64).unwrap_or(0)
}

fn text(row: &[Value], column: usize) -> String {
    row.get(column).and_then(Value::as_str).unwrap_or_default().to_owned()
}
