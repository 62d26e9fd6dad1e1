//! Which kernel of a captured transformer block is which, by CUPTI's names and their order alone.
//!
//! The library `transformer` launches kernels of its own names between those of cuBLAS, and on one stream they run in the order of
//! the capture. The GPU tests hold warpline's labels against this; that it tells kernels apart is tested without a GPU.

/// A kernel, as the block launches it: the section that it is of, the operation, and its own name. What a library launches has
/// names of the library's: any, but for what they have in it.
pub struct Wanted {
    pub section: &'static str,
    pub operation: &'static str,
    name: Name,
}

enum Name {
    Own(&'static str),
    Nccl,
    /// One kernel or several, of cuBLAS.
    Cublas,
}

/// The kernels of a block that so many ranks share, in the order of the capture.
pub fn wanted(ranks: usize) -> Vec<Wanted> {
    use Name::{Cublas, Nccl, Own};
    let all = [
        ("qkv_proj", "tensor.layernorm", Own("layernorm")),
        ("qkv_proj", "tensor.product", Cublas),
        ("attention", "tensor.split_heads", Own("split_heads")),
        ("attention", "tensor.products", Cublas),
        ("attention", "tensor.softmax", Own("softmax")),
        ("attention", "tensor.products", Cublas),
        ("attention", "tensor.join_heads", Own("join_heads")),
        ("out_proj", "tensor.product", Cublas),
        ("out_proj", "tensor.all_reduce", Nccl),
        ("out_proj", "tensor.add", Own("add")),
        ("mlp", "tensor.layernorm", Own("layernorm")),
        ("mlp", "tensor.product", Cublas),
        ("mlp", "tensor.gelu", Own("gelu")),
        ("mlp", "tensor.product", Cublas),
        ("mlp", "tensor.all_reduce", Nccl),
        ("mlp", "tensor.add", Own("add")),
    ];
    all.into_iter()
        .filter(|(.., name)| ranks > 1 || !matches!(name, Nccl))
        .map(|(section, operation, name)| Wanted { section, operation, name })
        .collect()
}

/// Which of `wanted` each kernel of a replay is, by its name and its order alone.
pub fn told_apart<'a>(wanted: &'a [Wanted], names: &[&str]) -> Vec<&'a Wanted> {
    let is_own = |name: &str| wanted.iter().any(|one| matches!(one.name, Name::Own(own) if own == name));
    let mut at = 0;
    let mut told = Vec::new();
    for (one, next) in wanted.iter().zip(wanted.iter().skip(1).map(Some).chain([None])) {
        let begin = at;
        while at < names.len() {
            let name = names[at];
            let is_it = match one.name {
                Name::Own(own) => at == begin && name == own,
                Name::Nccl => name.contains("nccl"),
                Name::Cublas => !is_own(name) && !name.contains("nccl"),
            };
            if !is_it {
                break;
            }
            told.push(one);
            at += 1;
        }
        let next = next.map_or("the end", |next| next.operation);
        assert!(at > begin, "no kernel of {} before that of {next}, at {at} of {names:?}", one.operation);
    }
    assert_eq!(told.len(), names.len(), "kernels behind the last: {names:?}");
    told
}

#[test]
fn kernels_are_told_apart_by_their_names_and_order() {
    let of = |ranks| -> Vec<String> {
        wanted(ranks)
            .iter()
            .flat_map(|one| match one.name {
                Name::Own(own) => vec![own.to_owned()],
                Name::Nccl => vec!["ncclDevKernel_AllReduce_Sum_f32_RING_LL".to_owned()],
                Name::Cublas => vec!["sm90_gemm".to_owned(), "splitKreduce".to_owned()],
            })
            .collect()
    };
    let told = |ranks, names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let wanted = wanted(ranks);
        told_apart(&wanted, &names).iter().map(|one| one.section).collect::<Vec<_>>()
    };
    assert_eq!(told(1, &of(1)).iter().filter(|section| **section == "attention").count(), 7);
    assert_eq!(told(2, &of(2)).len(), told(1, &of(1)).len() + 2);
    // Without any one of the block's own kernels, or with one more, it is not the block.
    for (place, name) in
        of(1).into_iter().enumerate().filter(|(_, name)| !name.contains("gemm") && name != "splitKreduce")
    {
        let (mut without, mut twice) = (of(1), of(1));
        without.remove(place);
        twice.insert(place, name.clone());
        for names in [without, twice] {
            assert!(std::panic::catch_unwind(|| told(1, &names)).is_err(), "{name}: {names:?}");
        }
    }
}
