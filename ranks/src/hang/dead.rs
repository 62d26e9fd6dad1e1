//! The last zone of a dead rank, from the file of its flight recorder, which survives a kill.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

use warpline_judge::progress::{Open, Progress};
use warpline_trace::read::{LastOpenZone, open_zones};

use super::progress::plain;

/// Returns the zone that it was in, or why its recorder does not show it. None if it has no recorder, or if the file is
/// not on this machine.
pub fn last_open(progress: &Progress) -> Option<Result<Open, String>> {
    let path = Path::new(progress.flight.as_deref()?);
    let read = || {
        let (file, facts) = match plain(path)? {
            Some(opened) => opened,
            None => return Ok(None),
        };
        // The files of the kernel, some of which wait until there is something to read, say that they are empty.
        if facts.len() == 0 {
            return Err("is empty".to_owned());
        }
        open_zones(&mut BufReader::new(file)).map(Some).map_err(|error| error.to_string())
    };
    match read() {
        Ok(None) => None,
        Ok(Some((process, _))) if i64::from(process) != progress.pid => {
            Some(Err(format!("is of process {process}, and not of {}", progress.pid)))
        }
        Ok(Some((_, zones))) => place(&zones).map(|zone| Ok(open(zone))),
        Err(why) => Some(Err(why)),
    }
}

/// The oldest zone that has no other zone inside it. What a thread is inside of comes before what is only on a stream.
fn place(zones: &[LastOpenZone]) -> Option<&LastOpenZone> {
    // Zones are sorted by their begins, so the last one of a thread is the innermost one.
    let mut innermost: BTreeMap<u64, &LastOpenZone> = BTreeMap::new();
    innermost.extend(zones.iter().filter(|zone| !zone.is_launched).map(|zone| (zone.thread_id, zone)));
    innermost.into_values().min_by_key(|zone| zone.begin_ns).or(zones.first())
}

fn open(zone: &LastOpenZone) -> Open {
    let place = zone.began_at.as_deref().and_then(|place| place.rsplit_once(':'));
    Open {
        name: zone.name.clone(),
        file: place.map(|(file, _)| file.to_owned()),
        line: place.and_then(|(_, line)| line.parse().ok()),
        thread: zone.thread.clone(),
        since_ns: zone.begin_ns,
        fields: zone.fields.iter().cloned().collect(),
        launched: zone.is_launched,
        ..Open::default()
    }
}
