//! The rules of names: thousands of good and hostile ones against a second, independent statement of the rules; what
//! the compiler says and what the running program says agree; every suggestion is a right name.

use proptest::prelude::*;
use warpline::catalog::name::{
    MAX_LEN, MAX_NAMESPACE_LEN, NameFault, Text, check, check_namespace, explain, explain_namespace, suggest,
    suggest_namespace,
};

/// Evaluated by the compiler: namespace, name, verdict, suggestion.
type Verdict = (&'static str, &'static str, Result<(), NameFault>, Text<MAX_LEN>);
static WHILE_COMPILING: [Verdict; 1_000] = include!(concat!(env!("OUT_DIR"), "/names.rs"));

#[test]
fn the_compiler_and_the_program_agree() {
    let (mut good, mut bad) = (0, 0);
    for (namespace, name, verdict, right) in &WHILE_COMPILING {
        // Owned copies, so that nothing of this is evaluated while compiling.
        let (namespace, name) =
            (std::hint::black_box((*namespace).to_owned()), std::hint::black_box((*name).to_owned()));
        assert_eq!(*verdict, check(&namespace, &name), "{namespace:?} {name:?}");
        assert_eq!(right.as_str(), suggest(&namespace, &name).as_str(), "{namespace:?} {name:?}");
        *if verdict.is_ok() { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 200 && bad > 200, "{good} good names and {bad} bad ones say little");
}

/// The rules as the documentation states them, written with other means.
fn is_right(namespace: &str, name: &str) -> bool {
    let segments = |text: &str| {
        text.split('.').all(|segment| {
            !segment.is_empty() && segment.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
    };
    name.len() <= 120
        && segments(name)
        && name.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.')).is_some_and(|own| !own.is_empty())
}

fn good_namespace() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9_]{1,8}(\\.[a-z0-9_]{1,8}){0,3}",
        // As long as it may be, where there is least room for a suggestion.
        (MAX_NAMESPACE_LEN - 6..=MAX_NAMESPACE_LEN).prop_map(|len| "n".repeat(len)),
    ]
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9_.]{0,20}",
        "[a-zA-Z0-9_.:/ \\-]{0,40}",
        "[a-z]{1,4}(\\.[a-z]{1,4}){0,4}",
        "\\PC{0,60}",
        any::<String>(),
        "[a-z.]{100,140}",
        ".{0,400}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4_000) })]

    #[test]
    fn the_rules_are_what_the_documentation_says(
        namespace in good_namespace(),
        name in any_name(),
        inside in any::<bool>(),
    ) {
        let name = if inside { format!("{namespace}.{name}") } else { name };
        prop_assert_eq!(check(&namespace, &name).is_ok(), is_right(&namespace, &name), "{} {:?}", namespace, name);
    }

    #[test]
    fn a_suggestion_is_a_right_name(namespace in good_namespace(), name in any_name(), inside in any::<bool>()) {
        let name = if inside { format!("{namespace}.{name}") } else { name };
        let right = suggest(&namespace, &name);
        prop_assert_eq!(check(&namespace, right.as_str()), Ok(()), "{:?} -> {:?}", name, right.as_str());
        if check(&namespace, &name).is_ok() {
            prop_assert_eq!(right.as_str(), name, "a right name needs no other");
        }
    }

    #[test]
    fn a_suggested_namespace_is_right(namespace in any_name()) {
        let right = suggest_namespace(&namespace);
        prop_assert_eq!(check_namespace(right.as_str()), Ok(()), "{:?} -> {:?}", namespace, right.as_str());
        if check_namespace(&namespace).is_ok() {
            prop_assert_eq!(right.as_str(), namespace, "a right namespace needs no other");
        }
    }

    #[test]
    fn an_explanation_is_whole(namespace in good_namespace(), name in any_name()) {
        if let Err(fault) = check(&namespace, &name) {
            let text = explain(&namespace, &name, fault);
            let ending = format!("; write `{}`", suggest(&namespace, &name).as_str());
            prop_assert!(text.as_str().ends_with(&ending), "{}", text.as_str());
        }
        if let Err(fault) = check_namespace(&name) {
            let text = explain_namespace(&name, fault);
            prop_assert!(text.as_str().ends_with('`'), "{}", text.as_str());
        }
    }

    #[test]
    fn no_namespace_whatever_makes_them_panic(namespace in any_name(), name in any_name()) {
        let _ = (check(&namespace, &name), suggest(&namespace, &name), suggest_namespace(&namespace));
    }
}
