//! The plain names of kernels, so that a demangled name from a profiler can be compared with the mangled name in the driver.

use std::collections::HashMap;

use warpline_trace::read::budget::MemoryBudget;

use crate::annotations::Work;

/// The name of copies and fills, independent of the trace.
const COPY: &str = "copy";
const FILL: &str = "fill";

/// The number of all names that exceed the memory limit.
const OTHER: u32 = u32::MAX;
/// The memory limit for names.
const NAMES: usize = 64 << 20;
/// The approximate memory of a name in addition to its bytes.
const ENTRY: usize = 128;

/// Assigns numbers to plain names.
#[derive(Debug)]
pub(super) struct Names {
    numbers: HashMap<String, u32>,
    texts: Vec<String>,
    purse: MemoryBudget,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { numbers: HashMap::new(), texts: Vec::new(), purse: MemoryBudget::new(NAMES) }
    }

    pub(super) fn number(&mut self, work: Work, name: &str) -> u32 {
        let name = match work {
            Work::Kernel => plain(name),
            Work::Memcpy => COPY,
            Work::Memset => FILL,
        };
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if !self.purse.spend(2 * name.len() + ENTRY) {
            return OTHER;
        }
        let number = self.texts.len() as u32;
        self.texts.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("one of too many names", String::as_str)
    }
}

/// The plain name of a function: without namespaces, template arguments and parameters.
fn plain(name: &str) -> &str {
    match name.strip_prefix("_Z") {
        Some(mangled) => last_part(mangled).unwrap_or(name),
        None => {
            let name = name.trim_start_matches("void ").trim_start_matches("(anonymous namespace)::");
            let name = match name.find("(anonymous namespace)::") {
                Some(at) if !name[..at].contains(['<', '(']) => &name[at + "(anonymous namespace)::".len()..],
                _ => name,
            };
            let end = name.find(['<', '(']).unwrap_or(name.len());
            let name = &name[..end];
            name.rsplit("::").next().unwrap_or(name).trim()
        }
    }
}

/// The last name before the first template argument or parameter of a mangled name (Itanium ABI).
fn last_part(mangled: &str) -> Option<&str> {
    let mut rest = mangled.trim_start_matches(['N', 'K', 'V', 'L']);
    let mut last = None;
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(len) = rest[..digits].parse::<usize>() else { return last };
        last = Some(rest.get(digits..digits.checked_add(len)?)?);
        rest = &rest[digits + len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_and_mangled_names_agree() {
        for (mangled, readable, expected) in [
            ("_Z9layernormPfPKfi", "layernorm(float*, float const*, int)", "layernorm"),
            ("sm90_xmma_gemm_f32f32_tn", "sm90_xmma_gemm_f32f32_tn", "sm90_xmma_gemm_f32f32_tn"),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4EZZEEvv",
                "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::f()>(int)",
                "vectorized_elementwise_kernel",
            ),
            (
                "_ZN2at6native12_GLOBAL__N_120softmax_warp_forwardIffEEvv",
                "void at::native::(anonymous namespace)::softmax_warp_forward<float, float>(int)",
                "softmax_warp_forward",
            ),
            ("_ZN7cutlass7Kernel2I4GemmEEvv", "void cutlass::Kernel2<Gemm>(Gemm::Params)", "Kernel2"),
        ] {
            assert_eq!((plain(mangled), plain(readable)), (expected, expected));
        }
    }

    #[test]
    fn no_name_breaks_it() {
        for name in ["_Z", "_Z99x", "_ZN", "_Z18446744073709551615x", "<>", "", "_Z3ä"] {
            plain(name);
        }
    }
}
