//! What was seen, as tables.

use crate::seen::{Section, Seen};

/// What a profiler alone can say of the replays: where the kernels ran, and of how many it knows what they are for.
pub fn before(seen: &Seen) -> String {
    let known = seen.kernels.iter().filter(|kernel| kernel.has_zone).count();
    let kernels = seen.kernels.len().to_string();
    let rows = [["lane", "kernels", "in a zone"], [&seen.stream, &kernels, &known.to_string()]];
    let title = format!("before: {} launches of one opaque graph, as a profiler sees them", seen.replays);
    format!("{title}\n{}", lines(&rows.map(|row| row.map(str::to_owned).to_vec()), 1))
}

/// The same kernels by lane and zone, with the time of each section's kernels in a replay.
pub fn after(sections: &[(Section, usize)], seen: &Seen) -> String {
    let mut rows = vec![["lane", "zone", "nodes", "kernels", "µs a replay"].map(str::to_owned).to_vec()];
    let us = |ns: i64| format!("{:.1}", ns as f64 / 1e3 / seen.replays.max(1) as f64);
    for (section, nodes) in sections {
        let own = || seen.kernels.iter().filter(|kernel| kernel.section == *section);
        let (count, ns) = (own().count(), own().map(|kernel| kernel.ns).sum());
        let lane = section.lane.clone().unwrap_or_else(|| seen.stream.clone());
        rows.push(vec![lane, zone(section), nodes.to_string(), count.to_string(), us(ns)]);
    }
    let (nodes, ns) =
        (sections.iter().map(|(_, nodes)| nodes).sum::<usize>(), seen.kernels.iter().map(|kernel| kernel.ns).sum());
    rows.push(vec!["all".to_owned(), String::new(), nodes.to_string(), seen.kernels.len().to_string(), us(ns)]);
    format!("after: with the zones that were captured\n{}", lines(&rows, 2))
}

/// Nodes by lane and zone, where nobody has seen a replay.
pub fn of_nodes(sections: &[(Section, usize)]) -> String {
    let mut rows = vec![["lane", "zone", "nodes"].map(str::to_owned).to_vec()];
    for (section, nodes) in sections {
        let lane = section.lane.clone().unwrap_or_else(|| "the stream".to_owned());
        rows.push(vec![lane, zone(section), nodes.to_string()]);
    }
    format!("the zones that were captured\n{}", lines(&rows, 2))
}

/// What the collectives of the replays moved, a line for each that differs.
pub fn collectives(seen: &Seen) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for replayed in &seen.collectives {
        let Some(message) = &replayed.zone.message else { continue };
        let text = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
        let line = format!(
            "{}: {} of {} {} ({} bytes) in {}, number {}",
            replayed.zone.range.name(),
            message.kind,
            text(message.count.map(|count| count.to_string())),
            text(message.dtype.map(|dtype| dtype.as_str().to_owned())),
            text(message.bytes().map(|bytes| bytes.to_string())),
            text(message.group.as_ref().map(|group| group.lane().to_owned())),
            text(message.seq.map(|seq| seq.to_string())),
        );
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    lines.into_iter().map(|(line, count)| format!("{line}, in {count} replays")).collect()
}

fn zone(section: &Section) -> String {
    section.zone.unwrap_or("-").to_owned()
}

/// So many columns of texts, then columns of numbers.
fn lines(rows: &[Vec<String>], texts: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < texts { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::SeenKernel;

    #[test]
    fn the_tables_say_what_was_known_before_and_what_after() {
        let section = |lane: Option<&str>, zone| Section { lane: lane.map(str::to_owned), zone };
        let (proj, attention) = (section(None, Some("b.proj")), section(Some("attention"), Some("b.attention")));
        let kernel = |replay, node, section: &Section, ns| SeenKernel {
            name: "k".to_owned(),
            node: (replay, node),
            section: section.clone(),
            ns,
            has_zone: false,
        };
        let kernels = (0..2)
            .flat_map(|replay| {
                [
                    kernel(replay, 0, &proj, 10_000),
                    kernel(replay, 1, &attention, 1_500),
                    kernel(replay, 2, &attention, 500),
                ]
            })
            .collect();
        let seen = Seen { stream: "stream 13".to_owned(), replays: 2, kernels, collectives: Vec::new() };
        assert_eq!(
            before(&seen),
            "before: 2 launches of one opaque graph, as a profiler sees them\n\
             \x20 lane       kernels  in a zone\n\
             \x20 stream 13        6          0\n"
        );
        let sections = [(proj, 1), (attention, 2)];
        assert_eq!(
            after(&sections, &seen),
            "after: with the zones that were captured\n\
             \x20 lane       zone         nodes  kernels  µs a replay\n\
             \x20 stream 13  b.proj           1        2         10.0\n\
             \x20 attention  b.attention      2        4          2.0\n\
             \x20 all                         3        6         12.0\n"
        );
        assert_eq!(
            of_nodes(&sections),
            "the zones that were captured\n\
             \x20 lane        zone         nodes\n\
             \x20 the stream  b.proj           1\n\
             \x20 attention   b.attention      2\n"
        );
        assert_eq!(collectives(&seen), Vec::<String>::new());
    }
}
