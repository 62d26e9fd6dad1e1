//! In each edition a marked function drops its values in the order of an unmarked one: see `shapes.rs`.
