//! The forms that a catalog is shown in: JSON against its published schema, the others against what their readers need.

use warpline::catalog::{ByteOrder, Records};

/// The records of two notes that no compiler let through: every text holds what could break a format.
fn hostile() -> Records {
    let text = "a|b \"c\", <d>\r\n\u{1b}[31m `e` \\ ß日本";
    let range = [text, "host", "fine", text, text, "030201", text, text, "7", text, text, text];
    let mut section = Vec::new();
    for (kind, texts) in [(2_u32, &[text, text, text, text, "7", text][..]), (1, &range)] {
        let texts: String = texts.iter().map(|text| format!("{text}\0")).collect();
        let facts = [&1_u32.to_le_bytes(), texts.as_bytes()].concat();
        section.extend([9, facts.len() as u32, kind].map(u32::to_le_bytes).concat());
        section.extend(b"warpline\0\0\0\0");
        section.extend(facts);
        section.resize(section.len().next_multiple_of(4), 0);
    }
    Records::from_section(&section, ByteOrder::Little).unwrap()
}

mod marked {
    //! Sound marks, so that the sound forms have something to show.

    use warpline::{HostStream, gpu_zone, host_zone};

    /// Adds, with "quotes", a comma and a | in its description.
    #[gpu_zone("api.forms.add", lane = "copies", color = 0x0000ff, fields(n = n, m = n))]
    pub fn add(stream: &HostStream, n: u64) {
        let _ = (stream, n);
    }

    /// Loads a batch.
    #[host_zone("api.forms.load", level = fine)]
    pub fn load() {}
}

fn sound() -> Records {
    // Their zones are not those of another test's session.
    let _turn = warpline_tests::alone();
    let stream = warpline::HostStream::new("compute");
    marked::add(&stream, 1);
    marked::load();
    let mut records = warpline::catalog().records();
    // Other files of this binary have ranges, too.
    records.ranges.retain(|range| range.name.starts_with("api.forms."));
    records.namespaces.retain(|space| space.name == "api");
    records
}

#[test]
fn json_is_what_the_schema_says() {
    let schema = include_str!("../../docs/catalog.schema.json");
    let schema = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::options().build(&schema).unwrap();
    for records in [sound(), Records::default()] {
        let json = serde_json::from_str(&records.to_json()).unwrap();
        let faults: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(faults.is_empty(), "{faults:?}");
    }
    let broken = serde_json::from_str(&hostile().to_json()).unwrap();
    assert!(!validator.is_valid(&broken), "the schema lets a bad name through");
}

#[test]
fn json_keeps_every_text() {
    let records = hostile();
    let json: serde_json::Value = serde_json::from_str(&records.to_json()).unwrap();
    let range = &json["ranges"][0];
    assert_eq!(range["description"], records.ranges[0].description.as_str());
    assert_eq!(range["lane"], records.ranges[0].lane.as_deref().unwrap());
    assert_eq!(range["color"], "#030201");
    assert_eq!(range["fields"].as_array().unwrap().len(), 2);
    assert_eq!(json["hash"], format!("{:#018x}", records.catalog_hash()));
}

#[test]
fn json_ends_in_one_newline_and_has_no_other_control_characters() {
    let json = hostile().to_json();
    assert!(json.ends_with("\n}\n"));
    assert!(!json.contains(|c: char| c.is_control() && c != '\n'));
}

#[test]
fn the_hash_covers_what_a_range_is_and_not_where() {
    let records = sound();
    let moved = |change: fn(&mut Records)| {
        let mut moved = records.clone();
        change(&mut moved);
        moved.catalog_hash() == records.catalog_hash()
    };
    assert!(moved(|records| records.ranges[0].line += 1));
    assert!(moved(|records| records.ranges[0].file.push('x')));
    assert!(moved(|records| records.ranges[0].module.push_str("::deeper")));
    assert!(moved(|records| records.namespaces[0].line += 1));
    assert!(!moved(|records| records.ranges[0].name.push('x')));
    assert!(!moved(|records| records.ranges[0].description.push('x')));
    assert!(!moved(|records| records.ranges[0].lane = None));
    assert!(!moved(|records| records.ranges[0].color = None));
    assert!(!moved(|records| records.ranges[0].fields.swap(0, 1)));
    assert!(!moved(|records| records.ranges[0].version.push('x')));
    assert!(!moved(|records| records.namespaces[0].about.push('x')));
    assert!(!moved(|records| drop(records.ranges.pop())));
}

/// A reader of RFC 4180, by the letter.
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut value, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => value.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut value)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {
                chars.next();
                row.push(std::mem::take(&mut value));
                rows.push(std::mem::take(&mut row));
            }
            c => value.push(c),
        }
    }
    assert!(value.is_empty() && row.is_empty() && !quoted, "the last line has no end");
    rows
}

#[test]
fn csv_reads_back() {
    for records in [sound(), hostile()] {
        let rows = csv_rows(&records.to_csv());
        assert_eq!(
            rows[0].join(" "),
            "name namespace description kind level lane color fields crate version module file line"
        );
        assert_eq!(rows.len(), 1 + records.ranges.len());
        // What would drive a terminal is spelled out.
        let spelled = |text: &str| text.replace('\u{1b}', "\\u{1b}");
        for (row, range) in rows[1..].iter().zip(&records.ranges) {
            assert_eq!(row.len(), 13);
            assert_eq!((&row[0], &row[2]), (&spelled(&range.name), &spelled(&range.description)));
            assert_eq!(row[5], spelled(range.lane.as_deref().unwrap_or_default()));
            assert_eq!(row[7], spelled(&range.fields.join(" ")));
            assert_eq!(row[12], range.line.to_string());
        }
    }
}

#[test]
fn markdown_has_one_table_a_namespace_and_one_line_a_range() {
    let text = sound().to_markdown();
    assert!(text.starts_with("# Ranges\n\n## `api`\n\nzones of the tests of the public API (crate api 0."), "{text}");
    let row = text.lines().find(|line| line.starts_with("| `api.forms.add`")).unwrap();
    assert!(
        row.contains("| gpu | coarse | copies | n, m | Adds, with \"quotes\", a comma and a \\| in its description. |"),
        "{row}"
    );
    let hostile = hostile().to_markdown();
    assert!(!hostile.contains(|c: char| c.is_control() && c != '\n'));
    let row = hostile.lines().find(|line| line.contains("host")).unwrap();
    assert_eq!(row.matches('|').count() - row.matches("\\|").count(), 8, "{row}");
}

#[test]
fn the_nsight_tools_get_their_filters() {
    let records = sound();
    assert_eq!(records.to_ncu(), "--nvtx\n--nvtx-include api@api.forms.add/\n");
    assert_eq!(records.to_nsys(), "--trace=cuda,nvtx\n--nvtx-domain-include=api\n");
    // A name that breaks the rules could be read as another filter, or as another option.
    assert_eq!(hostile().to_ncu(), "--nvtx\n");
    assert_eq!(hostile().to_nsys(), "--trace=cuda,nvtx\n");
}

/// Returns the fields of a message in the text format of Protocol Buffers, each with its path, in order.
fn text_fields(text: &str) -> Vec<String> {
    let (mut path, mut fields) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if line == "}" {
            assert!(path.pop().is_some(), "nothing is open at `{line}`:\n{text}");
        } else if let Some(name) = line.strip_suffix(" {") {
            assert!(is_name(name), "`{line}`");
            path.push(name);
        } else {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("`{line}` is no field"));
            let text = value.strip_prefix('"').map(|rest| rest.strip_suffix('"').expect("an end of the text"));
            let is_value =
                text.unwrap_or(value).bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\{}".contains(&byte));
            assert!(is_name(name) && is_value, "`{line}`");
            fields.push(format!("{}.{name} = {value}", path.join(".")).trim_start_matches('.').to_owned());
        }
    }
    assert!(path.is_empty(), "{path:?} is not closed:\n{text}");
    fields
}

/// The fields as `protos/perfetto/config/trace_config.proto` names and nests them.
const SYSTEM_FIELDS: [&str; 14] = [
    "buffers.size_kb = 65536",
    "buffers.fill_policy = RING_BUFFER",
    "builtin_data_sources.primary_trace_clock = BUILTIN_CLOCK_BOOTTIME",
    "write_into_file = true",
    "file_write_period_ms = 2500",
    "flush_period_ms = 5000",
    r#"data_sources.config.name = "linux.ftrace""#,
    r#"data_sources.config.ftrace_config.ftrace_events = "sched/sched_switch""#,
    r#"data_sources.config.ftrace_config.ftrace_events = "sched/sched_waking""#,
    r#"data_sources.config.ftrace_config.ftrace_events = "sched/sched_process_exit""#,
    r#"data_sources.config.ftrace_config.ftrace_events = "task/task_newtask""#,
    r#"data_sources.config.ftrace_config.ftrace_events = "task/task_rename""#,
    r#"data_sources.config.name = "linux.process_stats""#,
    "data_sources.config.process_stats_config.scan_all_processes_on_start = true",
];

#[test]
fn perfetto_gets_the_namespaces_as_categories() {
    let config = text_fields(&sound().to_perfetto());
    let of_events = [
        r#"data_sources.config.name = "track_event""#,
        r#"data_sources.config.track_event_config.disabled_categories = "*""#,
        r#"data_sources.config.track_event_config.enabled_categories = "api""#,
        r#"data_sources.config.track_event_config.enabled_categories = "api.*""#,
    ];
    assert_eq!(config, [&SYSTEM_FIELDS[..], &of_events].concat());
    // A name that breaks the rules could end its text and be read as another field.
    assert_eq!(text_fields(&hostile().to_perfetto()), SYSTEM_FIELDS);
}

#[test]
fn the_page_has_one_row_a_range_and_all_texts_are_escaped() {
    let sound = sound();
    let page = sound.to_html();
    assert!(
        page.contains("<h2>api</h2>") && page.contains("api.forms.add<td>gpu<td>coarse<td>copies<td>n, m"),
        "{page}"
    );
    assert_eq!(page.matches("<tr><td>").count(), sound.ranges.len());
    let hostile = hostile();
    let page = hostile.to_html();
    assert_eq!((page.matches("<tr><td>").count(), page.matches("<script>").count()), (hostile.ranges.len(), 1));
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'));
}
