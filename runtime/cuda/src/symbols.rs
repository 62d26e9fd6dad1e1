//! Tables of the driver's symbols, for the modules that call it.

use std::borrow::Cow;

use warpline_core::backend::BackendError;

/// Declares `Symbols`, a table of functions that return a `CUresult`, each with its exported name. If one that is not optional is missing,
/// so is the table.
macro_rules! table {
    (optional $($field:ident: $symbol:literal fn($($argument:ty),*);)*) => {
        /// The symbols. Callers must pass valid handles, and out-pointers of the right type.
        struct Symbols {
            $($field: Option<unsafe extern "C" fn($($argument),*) -> Code>,)*
        }

        impl Symbols {
            fn load(library: &libloading::Library) -> Symbols {
                Symbols {
                    $($field: {
                        // SAFETY: the type is the one that CUDA's headers declare for this symbol.
                        let symbol = unsafe { library.get($symbol) };
                        symbol.ok().map(|symbol| *symbol)
                    },)*
                }
            }
        }
    };
    ($($field:ident: $symbol:literal fn($($argument:ty),*);)*) => {
        /// The symbols. Callers must pass pointers that the driver created, or out-pointers of the right type.
        struct Symbols {
            $($field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Symbols {
            /// The names under which the driver exports them.
            #[allow(dead_code, reason = "`probe` asks for those of the table that every program needs")]
            const NAMES: &[&[u8]] = &[$($symbol),*];

            fn load(library: &libloading::Library) -> Result<Symbols, warpline_core::backend::BackendError> {
                Ok(Symbols {
                    $($field: {
                        // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 12.0.
                        let symbol = unsafe { library.get($symbol) };
                        *symbol.map_err(|_| $crate::symbols::missing($symbol))?
                    },)*
                })
            }
        }
    };
}

/// Returns the error for a symbol that the driver lacks.
pub(super) fn missing(symbol: &[u8]) -> BackendError {
    BackendError(format!("the CUDA driver has no `{}`: install a driver for CUDA 12.0 or newer", readable(symbol)))
}

/// Returns the name of a symbol as text.
pub(super) fn readable(symbol: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(symbol.strip_suffix(b"\0").unwrap_or(symbol))
}
