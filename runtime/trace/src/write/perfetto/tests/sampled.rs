//! Zones of a sample say so on the slice that has their data, with or without a stream.

use super::*;

#[test]
fn a_zone_of_a_sample_says_its_share_on_a_stream_and_on_a_thread() {
    let mut records = records();
    for record in records.iter_mut().flatten() {
        record.sample_share = 0.25;
    }
    let said: Vec<_> = slices(&trace(&records))
        .into_iter()
        .filter(|slice| slice.annotations.contains(&("sampled_share".to_owned(), "double 0.25".to_owned())))
        .collect();
    assert_eq!(said.len(), records.iter().flatten().count(), "{said:#?}");
    assert_eq!(said.iter().filter(|slice| slice.name == LOAD.name()).count(), 2, "{said:#?}");
}
