//! A table of required driver symbols; `driver` and `stamps` each have one.

use warpline_core::backend::BackendError;

/// Declares `Symbols`, a table of functions that return a `CUresult`, each with its exported name.
macro_rules! table {
    ($($field:ident: $symbol:literal fn($($argument:ty),*);)*) => {
        /// The symbols. Callers must pass pointers that the driver created, or out-pointers of the right type.
        struct Symbols {
            $($field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Symbols {
            /// The names under which the driver exports them.
            #[allow(dead_code, reason = "`probe` asks for those of the table that every program needs")]
            const NAMES: &[&[u8]] = &[$($symbol),*];

            fn load(library: &libloading::Library) -> Result<Symbols, BackendError> {
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
    let symbol = String::from_utf8_lossy(symbol.strip_suffix(b"\0").unwrap_or(symbol)).into_owned();
    BackendError(format!("the CUDA driver has no `{symbol}`: install a driver for CUDA 12.0 or newer"))
}
