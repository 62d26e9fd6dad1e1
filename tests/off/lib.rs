//! Without feature `enable` a marked function is the same machine code as an unmarked one: see `off.rs`.
