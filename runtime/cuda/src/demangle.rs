//! Readable names of kernels.
//!
//! CUPTI and the driver name a kernel by its symbol; records and reports show its declaration.

use std::borrow::Cow;

/// Returns a kernel's symbol in a readable form, as other profilers show it.
pub(crate) fn readable_name(symbol: &str) -> Cow<'_, str> {
    // Symbols without the prefix of C++ are plain names: those of `extern "C"`, Triton and Rust.
    let name = symbol.starts_with("_Z").then(|| cpp_demangle::Symbol::new(symbol).ok()?.demangle().ok()).flatten();
    name.map_or(Cow::Borrowed(symbol), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::readable_name;

    #[test]
    fn a_symbol_of_cpp_is_shown_as_it_was_declared_and_any_other_as_it_is() {
        let shown = "void cutlass::Kernel2<cutlass_80_simt_sgemm>(cutlass_80_simt_sgemm::Params)";
        assert_eq!(readable_name("_ZN7cutlass7Kernel2I21cutlass_80_simt_sgemmEEvNT_6ParamsE"), shown);
        for name in ["softmax", "sm80_xmma_gemm_f32f32", "_Zebra", "_Z", "", "kernel without a name"] {
            assert_eq!(readable_name(name), name);
        }
    }
}
