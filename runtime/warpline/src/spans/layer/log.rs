//! Zones as events of `tracing`, for programs that have logs and no trace UI.
//!
//! A zone's event is emitted when the zone is complete, on the collector's thread. The layer of `spans/` ignores that thread, so it does
//! not record these events. The event's target is the range's namespace. `tracing` requires that the metadata of an event lives as long as
//! the program, so each range keeps one [`Site`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::sync::{Mutex, OnceLock};

use tracing_core::callsite::{self, Callsite, Identifier};
use tracing_core::dispatcher::{Dispatch, get_default};
use tracing_core::field::{DisplayValue, FieldSet, Value, display};
use tracing_core::subscriber::{Interest, NoSubscriber};
use tracing_core::{Event, Field, Kind, Level, Metadata};

use crate::settings::Config;
use warpline_core::catalog;
use warpline_core::catalog::RangeSpec;
use warpline_core::fields;
use warpline_core::lock::lock;
use warpline_core::record::ZoneRecord;
use warpline_report::Report;
use warpline_report::sink::{Batch, SessionInfo, Sink};

/// Creates the sink that emits each zone as an event, if the settings ask for it.
pub(crate) fn sink(config: &Config) -> Option<Box<dyn Sink>> {
    config.log.then(|| Box::<LogSink>::default() as _)
}

/// The sink that emits each zone as an event.
#[derive(Default)]
struct LogSink {
    /// The subscriber of the thread that started the session. If there was none, the global one is used for each event.
    dispatch: Option<Dispatch>,
}

impl Sink for LogSink {
    fn name(&self) -> String {
        "log".to_owned()
    }

    fn start(&mut self, _: &SessionInfo) -> io::Result<()> {
        self.dispatch = get_default(|dispatch| (!dispatch.is::<NoSubscriber>()).then(|| dispatch.clone()));
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        batch.zones().iter().for_each(|record| self.zone(record));
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        static SITE: OnceLock<&Site> = OnceLock::new();
        let names = ["message", "begun", "recorded", "captured", "dropped", "reasons"];
        let make = || Site::leak("session", env!("CARGO_PKG_NAME"), Level::INFO, None, names.to_vec());
        let dropped = report.dropped.total();
        let reasons = report.dropped.reasons().map(|(reason, count)| format!("{reason}={count} ")).collect::<String>();
        let reasons = (dropped > 0).then(|| reasons.trim_end());
        let captured = (report.captured > 0).then_some(report.captured);
        let values: [&dyn Value; 6] =
            [&display("session ended"), &report.begun, &report.recorded, &captured, &dropped, &reasons];
        self.emit(SITE.get_or_init(make), &values);
        Ok(())
    }
}

impl LogSink {
    fn zone(&self, record: &ZoneRecord) {
        let site = Site::for_range(record.range);
        let stream = record.stream.as_ref().map(|stream| stream.name.as_str());
        let device = record.stream.as_ref().map(|stream| stream.device.name.as_str());
        let (on_stream, on_host) = (record.gpu_ns(), record.host.duration_ns());
        let early_by_ns = on_stream.and(Some(record.end_early_by_ns)).filter(|ns| *ns > 0);
        let launch_ns = on_stream.map(|_| on_host);
        let host_ns = on_stream.is_none().then_some(on_host);
        let parent = record.parent.map(|parent| parent.name);
        let (label, error) = (record.fields.label(), record.error.as_deref());
        let more = more(record);
        let fixed: [&dyn Value; FIXED.len()] = [
            &display("zone ended"),
            &record.range.name(),
            &stream,
            &device,
            &on_stream,
            &early_by_ns,
            &launch_ns,
            &host_ns,
            &record.status.as_str(),
            &error,
            &label,
            &parent,
            &more,
        ];
        let own: Vec<_> = record.range.fields().iter().map(|name| Own::new(record.fields.get(name))).collect();
        let values: Vec<_> = fixed.into_iter().chain(own.iter().map(Own::value)).collect();
        self.emit(site, &values);
    }

    fn emit(&self, site: &'static Site, values: &[&dyn Value]) {
        let emit = |dispatch: &Dispatch| {
            let metadata = site.metadata();
            if dispatch.enabled(metadata) {
                let fields: Vec<Field> = metadata.fields().iter().collect();
                let Some(first) = fields.first() else { return };
                let mut set: [(&Field, Option<&dyn Value>); MAX_VALUES] = [(first, None); MAX_VALUES];
                for (place, (field, value)) in set.iter_mut().zip(fields.iter().zip(values)) {
                    *place = (field, Some(*value));
                }
                dispatch.event(&Event::new_child_of(None, metadata, &metadata.fields().value_set(&set)));
            }
        };
        match &self.dispatch {
            Some(dispatch) => emit(dispatch),
            None => get_default(emit),
        }
    }
}

/// The fields of every zone's event, before those of its range.
const FIXED: [&str; 13] = [
    "message",
    "range",
    "stream",
    "device",
    "gpu_ns",
    "end_early_by_ns",
    "launch_ns",
    "host_ns",
    "status",
    "error",
    "label",
    "parent",
    "fields",
];

const MAX_VALUES: usize = FIXED.len() + fields::MAX_FIELDS;

/// A missing value.
static NOTHING: Option<bool> = None;

/// The value of a field that the range declares. `tracing` has no lists and no maps, so these are texts.
enum Own<'a> {
    Nothing,
    One(&'a dyn Value),
    Several(DisplayValue<&'a fields::Value>),
}

impl<'a> Own<'a> {
    fn new(value: Option<&'a fields::Value>) -> Own<'a> {
        match value {
            None => Own::Nothing,
            Some(fields::Value::U64(value)) => Own::One(value),
            Some(fields::Value::I64(value)) => Own::One(value),
            Some(fields::Value::F64(value)) => Own::One(value),
            Some(fields::Value::Bool(value)) => Own::One(value),
            Some(fields::Value::Str(value)) => Own::One(value),
            Some(fields::Value::Text(value)) => Own::One(value),
            Some(value) => Own::Several(display(value)),
        }
    }

    fn value(&self) -> &dyn Value {
        match self {
            Own::Nothing => &NOTHING,
            Own::One(value) => *value,
            Own::Several(value) => value,
        }
    }
}

/// Returns the fields that the range does not declare, as one text.
fn more(record: &ZoneRecord) -> Option<String> {
    let declared = record.range.fields();
    let mut text = String::new();
    for (name, value) in record.fields.iter().filter(|(name, _)| !declared.contains(name)) {
        let gap = if text.is_empty() { "" } else { " " };
        // Writing to a `String` does not fail.
        let _ = write!(text, "{gap}{name}={value}");
    }
    (!text.is_empty()).then_some(text)
}

/// The callsite of an event.
struct Site {
    metadata: OnceLock<Metadata<'static>>,
}

impl Site {
    /// Returns the site of a range's zones, which the first call creates.
    fn for_range(range: &'static RangeSpec) -> &'static Site {
        static SITES: Mutex<BTreeMap<u32, &'static Site>> = Mutex::new(BTreeMap::new());
        let number = range.number();
        let known = lock(&SITES).get(&number).copied();
        // The site is created without the lock, because this calls subscribers.
        known.unwrap_or_else(|| {
            let site = Site::new(range);
            *lock(&SITES).entry(number).or_insert(site)
        })
    }

    fn new(range: &'static RangeSpec) -> &'static Site {
        let level = match range.level() {
            catalog::Level::Coarse => Level::INFO,
            _ => Level::DEBUG,
        };
        let own = range.fields().iter().map(|name| match FIXED.contains(name) {
            true => &*Box::leak(format!("field.{name}").into_boxed_str()),
            false => name,
        });
        Site::leak("zone", range.namespace(), level, Some(range), FIXED.into_iter().chain(own).collect())
    }

    fn leak(
        name: &'static str,
        target: &'static str,
        level: Level,
        range: Option<&'static RangeSpec>,
        fields: Vec<&'static str>,
    ) -> &'static Site {
        let site: &'static Site = Box::leak(Box::new(Site { metadata: OnceLock::new() }));
        let fields = FieldSet::new(Vec::leak(fields), Identifier(site));
        let (file, line, module) =
            (range.map(RangeSpec::file), range.map(RangeSpec::line), range.map(RangeSpec::module));
        let metadata = Metadata::new(name, target, level, file, line, module, fields, Kind::EVENT);
        let _ = site.metadata.set(metadata);
        callsite::register(site);
        site
    }

    fn metadata(&self) -> &Metadata<'static> {
        self.metadata.get().unwrap_or(&NOWHERE_METADATA)
    }
}

impl Callsite for Site {
    /// Does nothing, because each event queries the subscriber.
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        Site::metadata(self)
    }
}

/// The site of the fallback metadata. No caller gets a site without its own metadata, because `leak` sets it first.
static NOWHERE: Site = Site { metadata: OnceLock::new() };
static NOWHERE_METADATA: Metadata<'static> =
    Metadata::new("zone", "", Level::TRACE, None, None, None, FieldSet::new(&[], Identifier(&NOWHERE)), Kind::EVENT);
