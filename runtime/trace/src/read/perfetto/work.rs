//! Kernels and copies as stages of a device: the form in which other tools write them, and warpline once more.

use warpline_core::record::Span;

use super::super::kinds::{Args, Key, Kind};
use super::super::parts::RenderStage;
use super::super::wire::Fields;
use super::{Reader, Slice, Stop, Visitor};
use crate::write::perfetto::proto::stage;
use warpline_report::names::{Name, Names};

impl<V: Visitor> Reader<'_, V> {
    /// Work of a device, with the zone that launched it.
    pub(super) fn work(&mut self, on: usize, ns: i64, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let Some(sequence) = self.sequences.get(on) else { return Ok(()) };
        let work = RenderStage::read(bytes)?;
        let specification = |iid| sequence.specifications.get(iid).copied();
        let of = specification(work.stage_iid).unwrap_or_default();
        let name = match &work.name {
            Some(name) => names.number(name)?,
            None => sequence.event_names.get(work.name_iid).copied().unwrap_or_default(),
        };
        let mut args = Args { has_correlation: true, stream: specification(work.queue_iid), ..Args::default() };
        for field in Fields(work.launch.unwrap_or_default()) {
            let (stage::ARGS, argument) = field? else { continue };
            let (mut key, mut text) = ("".into(), None);
            for field in Fields(argument.bytes()) {
                match field? {
                    (stage::ARG_NAME, value) => key = value.text(),
                    (stage::ARG_STRING, value) => text = Some(value.text()),
                    _ => {}
                }
            }
            if let (Key::Zone, Some(text)) = (Key::of(&key), text) {
                args.zone = Some(names.number(&text)?);
            }
        }
        let kind = if names.text(of).eq_ignore_ascii_case("kernel") { Kind::Kernel } else { Kind::Copy };
        let name = if name == Name::default() { of } else { name };
        let end_ns = i64::try_from(work.duration_ns).ok().and_then(|length_ns| ns.checked_add(length_ns));
        let end_ns = end_ns.ok_or(Stop::Malformed)?;
        let span = Span { begin_ns: ns, end_ns };
        // Its row is not one of the tracks.
        self.visitor.slice(&Slice { kind, name, row: usize::MAX, span, launch: None, args: &args }, &self.rows, names);
        Ok(())
    }
}
