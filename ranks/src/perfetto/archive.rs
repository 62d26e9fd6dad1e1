//! The archive that Perfetto opens as one trace: a TAR with a member for each rank, and a manifest.
//!
//! Perfetto reads the manifest (`perfetto_manifest`) since v58: it names the machine of each member. Older versions
//! skip it. The times need no manifest: each member is on the time line already.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

/// A trace in the archive.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    /// The host, on which its clock and its process ids are.
    pub machine: String,
    pub trace: Vec<u8>,
}

/// Writes the archive. `facts` are attributes of it.
///
/// # Errors
/// It cannot be written.
pub fn write(out: impl Write, members: &[Member], facts: &[(String, String)]) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    let mut append = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content)
    };
    append("perfetto_manifest.json", &manifest(members, facts))?;
    members.iter().try_for_each(|member| append(&member.name, &member.trace))?;
    archive.into_inner()?.flush()
}

/// Perfetto knows it by its first bytes, so it has one key.
fn manifest(members: &[Member], facts: &[(String, String)]) -> Vec<u8> {
    let files: Vec<Value> =
        members.iter().map(|member| json!({"path": member.name, "machine": {"name": member.machine}})).collect();
    let facts: Map<String, Value> = facts
        .iter()
        .map(|(key, value)| (key.clone(), value.parse::<i64>().map_or_else(|_| value.clone().into(), Value::from)))
        .collect();
    let mut manifest = json!({"version": 1, "files": files, "attributes": facts});
    if let Some(first) = members.first() {
        manifest["trace_time"] = json!({"clock": "BOOTTIME", "file": first.name});
    }
    json!({"perfetto_manifest": manifest}).to_string().into_bytes()
}
