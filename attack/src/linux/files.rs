//! Whether a file that a session wrote, or that a killed program left, can be read, and what is in it is consistent.

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::path::Path;

use warpline_cli::stragglers::Calls;

use super::trace;

/// The ranges whose zones the programs make, each with a number that no other zone of its row has.
const RANGES: [&str; 2] = ["attack.step", "attack.part"];

/// How a program came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was killed: the last packet may be cut short.
    Killed,
    /// It finished its session.
    Finished,
}

/// How many zones a Perfetto trace has.
pub(crate) fn pftrace(bytes: &[u8], end: End) -> Result<u64, String> {
    let whole = whole_packets(bytes)?;
    if whole < bytes.len() && end == End::Finished {
        return Err(format!("the last packet, at byte {whole} of {}, is cut short", bytes.len()));
    }
    if whole == 0 {
        return Ok(0);
    }
    let skipped = Calls::default().read(bytes).map_err(|error| format!("`stragglers` refuses it: {error}"))?;
    if skipped.unread.malformed > 0 || skipped.unread.damaged_at.is_some() {
        return Err(format!("`stragglers` cannot read a part of it: {skipped:?}"));
    }
    let slices = catch_unwind(|| trace::slices(&bytes[..whole]));
    let slices = slices.map_err(|panic| format!("a packet makes no sense: {}", super::inputs::text(&*panic)))?;
    let (mut seen, mut zones) = (HashSet::new(), 0);
    for slice in
        slices.iter().filter(|slice| RANGES.contains(&&*slice.name) && slice.argument("status") != Some("open"))
    {
        let Some(n) = slice.argument("n") else { continue };
        zones += 1;
        if !seen.insert((&slice.track, n)) {
            return Err(format!("zone {n} of row `{}` is in it twice", slice.track));
        }
    }
    Ok(zones)
}

/// Where the last whole packet ends.
fn whole_packets(bytes: &[u8]) -> Result<usize, String> {
    let mut at = 0;
    while let Some(tag) = bytes.get(at) {
        if *tag != 0x0A {
            return Err(format!("no packet begins at byte {at} of {}", bytes.len()));
        }
        let (mut len, mut header) = (0_u64, 1);
        loop {
            let Some(byte) = bytes.get(at + header) else { return Ok(at) };
            len |= u64::from(byte & 0x7F) << (7 * (header - 1));
            header += 1;
            if byte & 0x80 == 0 {
                break;
            }
            if header > 5 {
                return Err(format!("the packet at byte {at} has no length"));
            }
        }
        let end = at as u64 + header as u64 + len;
        if end > bytes.len() as u64 {
            return Ok(at);
        }
        at = end as usize;
    }
    Ok(at)
}

/// How many zones the file of a flight recorder has.
pub(crate) fn flight(path: &Path, end: End) -> Result<u64, String> {
    /// Bytes of the header, behind which the pieces are.
    const HEADER: usize = 4096;
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut recovered = Vec::new();
    let found = match warpline::recovery::recover(&mut std::io::Cursor::new(&bytes), &mut recovered) {
        Ok(found) => found,
        // It was killed before it recorded anything, or before the file had its length.
        Err(warpline::recovery::RecoverError::Empty) if end == End::Killed => return Ok(0),
        Err(warpline::recovery::RecoverError::NoPiece { damaged: 0, missing })
            if end == End::Killed && (missing == 0 || bytes.iter().skip(HEADER).all(|byte| *byte == 0)) =>
        {
            return Ok(0);
        }
        Err(error) => return Err(format!("`recover` refuses it: it {error}")),
    };
    if found.missing > 0 || found.damaged > 1 {
        return Err(format!("{} pieces are damaged and {} missing", found.damaged, found.missing));
    }
    let zones = pftrace(&recovered, End::Finished)?;
    if zones != found.zones {
        return Err(format!("`recover` speaks of {} zones, and {zones} are in the trace", found.zones));
    }
    Ok(zones)
}

/// How many zones a Chrome trace has.
pub(crate) fn chrome(bytes: &[u8], end: End) -> Result<u64, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string());
    let text = text?;
    if text.is_empty() && end == End::Killed {
        return Ok(0);
    }
    let document =
        serde_json::from_str(text).or_else(|error| if end == End::Killed { without_end(text) } else { Err(error) });
    let document: serde_json::Value = document.map_err(|error| {
        let last: String = text.chars().rev().take(80).collect::<Vec<_>>().into_iter().rev().collect();
        format!("it is no JSON, nor an array of events that has no end: {error}; it ends with {last:?}")
    })?;
    let events = document.as_array().or_else(|| document["traceEvents"].as_array()).ok_or("it has no events")?;
    let (mut seen, mut zones) = (HashSet::new(), 0);
    if end == End::Killed {
        recovered(bytes, events.len() as u64)?;
    }
    // A launch has the zone's arguments, too.
    for event in events.iter().filter(|event| event["name"] == RANGES[0] && event["cat"] == "gpu_user_annotation") {
        zones += 1;
        let n = event["args"]["n"].to_string();
        if !seen.insert((event["tid"].to_string(), n.clone())) {
            return Err(format!("zone {n} is in it twice"));
        }
    }
    Ok(zones)
}

/// What a killed program leaves: an array of whole events without its closing bracket. One that was killed while it finished may
/// have the last members of the document behind the array, which readers skip.
fn without_end(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    let events = text.split_once("\n]").map_or(text, |(events, _)| events);
    serde_json::from_str(&format!("{events}\n]"))
}

/// `warpline recover` finds as many events.
fn recovered(bytes: &[u8], events: u64) -> Result<(), String> {
    match warpline_cli::recover_chrome(bytes, &mut std::io::sink()) {
        Ok((found, _)) if found == events => Ok(()),
        Ok((found, _)) => Err(format!("it has {events} events, and `recover` finds {found}")),
        Err(error) => Err(format!("`recover` refuses it: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chrome_trace_of_a_killed_program_is_whole_events() {
        let whole = r#"[{"name":"attack.step","cat":"gpu_user_annotation","tid":1,"args":{"n":1}}"#;
        for rest in ["\n]", "", "   ", "\n],\n\"schemaVersion\":1,\n\"disp"] {
            assert_eq!(chrome(format!("{whole}{rest}").as_bytes(), End::Killed), Ok(1), "{rest}");
        }
        for rest in [",\n{\"name\":\"a", ",\n{\"name\":\"a\",\"args\":{\"b\":{}}", ",\n\u{FF}"] {
            let error = chrome(format!("{whole}{rest}").as_bytes(), End::Killed).expect_err("an event is cut");
            assert!(error.starts_with("it is no JSON"), "{rest}: {error}");
        }
        assert!(chrome(whole.as_bytes(), End::Finished).is_err());
        assert_eq!(chrome(format!("{whole}]").as_bytes(), End::Finished), Ok(1));
        assert!(
            chrome(format!("{whole},{}]", &whole[1..]).as_bytes(), End::Finished).is_err_and(|e| e.contains("twice"))
        );
        assert!(chrome(b"{\"traceEvents\":[{}", End::Killed).is_err());
    }

    #[test]
    fn a_perfetto_trace_is_packets_up_to_the_last_one() {
        assert_eq!(whole_packets(b"\x0a\x02ab\x0a\x03ab"), Ok(4));
        assert_eq!(whole_packets(b"\x0a\x02ab\x0a"), Ok(4));
        assert!(whole_packets(b"\x0a\x02ab\0\0").is_err());
    }
}
