//! The clocks as a table beside the others, for engines that have only the files: `late` and the views on it read it.

use std::path::PathBuf;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use crate::engine::{Engine, Rows};
use crate::error::Error;
use crate::generate::replace_file;

/// Writes the engine's table `clocks` to `clocks/run=ID/clocks.parquet` in its folder, in place of an older one, and
/// returns the path.
pub fn write(engine: &Engine) -> Result<PathBuf, Error> {
    let folder = engine.folder();
    let path = folder.path.join("clocks").join(format!("run={}", folder.run)).join("clocks.parquet");
    // Without `run`, which the path says.
    let columns = "host, boot_id, beside, segment, mid_ns, meetings, offset_ns, drift, err_ns, least_ns, most_ns";
    let rows = engine.query("clocks", &format!("SELECT {columns} FROM clocks ORDER BY segment, host"))?;
    let bytes = encoded(&rows).map_err(|error| Error::write(&path, error))?;
    replace_file(&path, &bytes)?;
    Ok(path)
}

fn encoded(rows: &Rows) -> Result<Vec<u8>, ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema.clone(), Some(properties))?;
    for batch in &rows.batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::clocks::{Options, clocks};
    use crate::generate::{Plan, generate};

    #[test]
    fn the_clocks_are_written_as_a_table_and_change_no_other() {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), &Plan { ranks: 4, hosts: 2, steps: 70, ..Plan::default() }).unwrap();
        let engine = Engine::open(folder.path(), None).unwrap();
        let found = clocks(&engine, Options::default()).unwrap().clocks.len();
        let path = write(&engine).unwrap();
        assert_eq!(write(&engine).unwrap(), path, "again");
        assert_eq!(path, folder.path().join("clocks/run=generated/clocks.parquet"));
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), found as i64);
        assert!(found >= 2 && reader.get_row_iter(None).unwrap().all(|row| row.is_ok()));
        assert_eq!(Engine::open(folder.path(), None).unwrap().folder().left_out().1, 0);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }
}
