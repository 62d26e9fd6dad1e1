//! Reads the tables of ranks with Parquet's own reader.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

/// A row: the values by column.
#[derive(Clone, Debug)]
pub struct Row(Vec<(String, Field)>);

impl Row {
    fn field(&self, name: &str) -> &Field {
        &self.0.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no column `{name}`")).1
    }

    pub fn columns(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    pub fn int(&self, name: &str) -> i64 {
        match self.field(name) {
            Field::Int(value) => i64::from(*value),
            Field::Long(value) => *value,
            other => panic!("`{name}` is {other:?}"),
        }
    }

    pub fn is_null(&self, name: &str) -> bool {
        matches!(self.field(name), Field::Null)
    }

    pub fn text(&self, name: &str) -> &str {
        match self.field(name) {
            Field::Str(text) => text,
            other => panic!("`{name}` is {other:?}"),
        }
    }
}

/// The files of a table, by window and name.
pub fn files(root: &Path, table: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.join(table)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
            if path.is_dir() {
                folders.push(path);
            } else if !name.starts_with('.') {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

pub fn rows_of(file: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(file).expect("it is there")).expect("a whole file");
    let row = |row: parquet::errors::Result<parquet::record::Row>| {
        Row(row.expect("a row").get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect())
    };
    reader.get_row_iter(None).expect("rows").map(row).collect()
}

/// The rows of a table, in all windows.
pub fn rows(root: &Path, table: &str) -> Vec<Row> {
    files(root, table).iter().flat_map(|file| rows_of(file)).collect()
}
