//! Kernels and copies as stages of a device: the form in which other tools write them, and warpline once more.

use crate::perfetto::proto::stage;
use warpline_core::record::Span;

use super::super::kinds::{Args, Key, Kind};
use super::super::names::{Name, Names};
use super::super::wire::Fields;
use super::{Reader, Slice, Stop, Visitor};

impl<V: Visitor> Reader<'_, V> {
    /// Work of a device, with the zone that launched it.
    pub(super) fn work(&mut self, on: u64, ns: i64, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let Some(sequence) = self.sequences.get(&on) else { return Ok(()) };
        let (mut args, mut name, mut length_ns, mut of) = (Args::NONE, Name::default(), 0_i64, Name::default());
        args.has_correlation = true;
        for read in Fields(bytes) {
            let (number, value) = read?;
            match number {
                stage::DURATION => length_ns = value.int() as i64,
                stage::NAME_IID => name = sequence.event_names.get(&value.int()).copied().unwrap_or_default(),
                stage::NAME => name = names.number(&value.text())?,
                stage::STAGE_IID => of = sequence.specifications.get(&value.int()).copied().unwrap_or_default(),
                stage::HW_QUEUE_IID => args.stream = sequence.specifications.get(&value.int()).copied(),
                stage::LAUNCH => {
                    for read in Fields(value.bytes()) {
                        let (stage::ARGS, argument) = read? else { continue };
                        let (mut key, mut text) = ("".into(), None);
                        for read in Fields(argument.bytes()) {
                            match read? {
                                (stage::ARG_NAME, value) => key = value.text(),
                                (stage::ARG_STRING, value) => text = Some(value.text()),
                                _ => {}
                            }
                        }
                        if let (Key::Zone, Some(text)) = (Key::of(&key), text) {
                            args.zone = Some(names.number(&text)?);
                        }
                    }
                }
                _ => {}
            }
        }
        let kind = if names.text(of).eq_ignore_ascii_case("kernel") { Kind::Kernel } else { Kind::Copy };
        let name = if name == Name::default() { of } else { name };
        let Some(end_ns) = ns.checked_add(length_ns).filter(|_| length_ns >= 0) else { return Err(Stop::Malformed) };
        let span = Span { begin_ns: ns, end_ns };
        // Its row is not one of the tracks.
        self.visitor.slice(&Slice { kind, name, row: usize::MAX, span, launch: None, args: &args }, &self.rows, names);
        Ok(())
    }
}
