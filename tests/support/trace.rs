//! Reads a Perfetto trace as far as these tests need it: slices and instants with their names, tracks and arguments.
//!
//! It knows the wire format and the numbers of some fields, and nothing of the writer. A trace in pieces defines its names
//! anew with each sequence that clears its state.
#![allow(dead_code, reason = "not every test asks for everything")]

use std::collections::HashMap;

/// Leaves a trace for `cargo xtask gate`, where that asks for it.
pub fn keep_for_gate(name: &str, trace: &[u8]) {
    if let Some(folder) = std::env::var_os("WARPLINE_GATE_DIR") {
        let path = std::path::Path::new(&folder).join(format!("{name}.pftrace"));
        std::fs::write(path, trace).expect("the gate's folder is there");
    }
}

#[derive(Clone, Debug)]
pub struct Slice {
    pub name: String,
    pub track: String,
    /// As the packet says it: in a trace of a session, since its begin.
    pub ns: u64,
    /// The flows that begin or go on in it.
    pub flows: Vec<u64>,
    pub ended_flows: Vec<u64>,
    pub args: Vec<(String, String)>,
}

impl Slice {
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.args.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct Sequence {
    track: u64,
    names: HashMap<u64, String>,
    argument_names: HashMap<u64, String>,
    strings: HashMap<u64, String>,
}

enum Wire<'a> {
    Int(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// What a track is called that is a thread's.
pub const THREAD: &str = "thread";

/// All slices and instants that have arguments or are an end of a flow, and so none of launches.
pub fn slices(mut trace: &[u8]) -> Vec<Slice> {
    let (mut sequences, mut tracks, mut slices) = (HashMap::<u64, Sequence>::new(), HashMap::new(), Vec::new());
    while !trace.is_empty() {
        let (1, Wire::Bytes(packet)) = field(&mut trace) else { panic!("a trace is packets") };
        let packet = message(packet);
        let id = int(&packet, 10).expect("a sequence");
        if int(&packet, 13).unwrap_or(0) & 1 != 0 {
            sequences.insert(id, Sequence::default());
        }
        let sequence = sequences.get_mut(&id).expect("a sequence begins with cleared state");
        if let Some(track) = bytes(&packet, 60).map(message) {
            tracks.insert(int(&track, 1).expect("an id"), bytes(&track, 2).map_or(THREAD.to_owned(), text));
        }
        if let Some(defaults) = bytes(&packet, 59).map(message) {
            sequence.track = int(&message(bytes(&defaults, 11).expect("of events")), 11).expect("a track");
        }
        if let Some(interned) = bytes(&packet, 12).map(message) {
            for (field, table) in
                [(2, &mut sequence.names), (3, &mut sequence.argument_names), (29, &mut sequence.strings)]
            {
                for entry in all(&interned, field).map(message) {
                    table.insert(int(&entry, 1).expect("a number"), bytes(&entry, 2).map_or(String::new(), text));
                }
            }
        }
        let Some(event) = bytes(&packet, 11).map(message) else { continue };
        if !matches!(int(&event, 9), Some(1 | 3)) {
            continue;
        }
        let name = match (bytes(&event, 23), int(&event, 10)) {
            (Some(name), _) => text(name),
            (None, Some(id)) => sequence.names.get(&id).expect("the name is defined in this piece").clone(),
            _ => continue,
        };
        let args = all(&event, 4).map(message).map(|argument| {
            let name = match (bytes(&argument, 10), int(&argument, 1)) {
                (Some(name), _) => text(name),
                (None, id) => sequence.argument_names[&id.expect("a name")].clone(),
            };
            (name, value(&argument, sequence))
        });
        let args: Vec<_> = args.collect();
        let [flows, ended_flows] = [47, 48].map(|field| fixed(&event, field).collect::<Vec<_>>());
        let track = int(&event, 11).unwrap_or(sequence.track);
        let track: &String = tracks.get(&track).expect("the track is described in this piece");
        if !args.is_empty() || !ended_flows.is_empty() {
            let ns = int(&packet, 8).expect("a time");
            slices.push(Slice { name, track: track.clone(), ns, flows, ended_flows, args });
        }
    }
    slices
}

fn value(argument: &[(u64, Wire<'_>)], sequence: &Sequence) -> String {
    for (field, wire) in argument {
        return match (field, wire) {
            (2, Wire::Int(value)) => (*value != 0).to_string(),
            (3, Wire::Int(value)) => value.to_string(),
            (4, Wire::Int(value)) => (*value as i64).to_string(),
            (5, Wire::Fixed(bits)) => f64::from_bits(*bits).to_string(),
            (6, Wire::Bytes(value)) => text(value),
            (17, Wire::Int(id)) => sequence.strings[id].clone(),
            (12, Wire::Bytes(_)) => {
                let elements = all(argument, 12).map(|element| value(&message(element), sequence));
                elements.collect::<Vec<_>>().join(" ")
            }
            (11, Wire::Bytes(_)) => {
                let entries = all(argument, 11).map(message).map(|entry| {
                    format!("{}={}", text(bytes(&entry, 10).expect("an entry has a name")), value(&entry, sequence))
                });
                entries.collect::<Vec<_>>().join(" ")
            }
            _ => continue,
        };
    }
    panic!("an argument has a value")
}

fn message(mut bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        fields.push(field(&mut bytes));
    }
    fields
}

fn field<'a>(bytes: &mut &'a [u8]) -> (u64, Wire<'a>) {
    let key = varint(bytes);
    let wire = match key & 7 {
        0 => Wire::Int(varint(bytes)),
        1 => {
            let (fixed, rest) = bytes.split_first_chunk().expect("eight bytes");
            *bytes = rest;
            Wire::Fixed(u64::from_le_bytes(*fixed))
        }
        2 => {
            let len = varint(bytes) as usize;
            let (content, rest) = bytes.split_at(len);
            *bytes = rest;
            Wire::Bytes(content)
        }
        other => panic!("no such wire type: {other}"),
    };
    (key >> 3, wire)
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn int(message: &[(u64, Wire<'_>)], field: u64) -> Option<u64> {
    message
        .iter()
        .find_map(|(id, wire)| if let (true, Wire::Int(value)) = (*id == field, wire) { Some(*value) } else { None })
}

fn fixed(message: &[(u64, Wire<'_>)], field: u64) -> impl Iterator<Item = u64> {
    message.iter().filter_map(
        move |(id, wire)| if let (true, Wire::Fixed(value)) = (*id == field, wire) { Some(*value) } else { None },
    )
}

fn all<'a, 'b: 'a>(message: &'a [(u64, Wire<'b>)], field: u64) -> impl Iterator<Item = &'b [u8]> + 'a {
    message.iter().filter_map(
        move |(id, wire)| if let (true, Wire::Bytes(bytes)) = (*id == field, wire) { Some(*bytes) } else { None },
    )
}

fn bytes<'b>(message: &[(u64, Wire<'b>)], field: u64) -> Option<&'b [u8]> {
    all(message, field).next()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
