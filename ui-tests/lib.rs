//! What must compile, what must not, and what the compiler then says: see `ui.rs`.
