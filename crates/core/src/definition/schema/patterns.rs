//! The regular expressions of a schema. The matcher turns an expression into a finite automaton while it reads a text, and then needs
//! one lookup for each byte. If the automaton becomes too large, the matcher simulates the expression instead, and needs time in
//! proportion to the size of the expression for each byte: seconds for a text of 128 KiB. So publication builds the automata of all
//! expressions completely, and refuses those that do not fit.

use std::collections::HashSet;

use regex_automata::{
    Anchored,
    hybrid::{
        LazyStateID,
        dfa::{Cache, Config, DFA},
        regex::Regex,
    },
    nfa::thompson,
    util::{start, syntax},
};

use crate::limits;

/// The bytes of one compiled expression, before it is an automaton.
pub(super) const BYTES_MAX: usize = limits::SCHEMA_PATTERNS_BYTES_MAX;

/// The bytes that an expression needs beside its automaton.
const OVERHEAD_BYTES: usize = 4 * 1024;

/// Checks the size of all `patterns` together.
///
/// # Errors
/// A pattern does not fit, or cannot be matched by an automaton.
pub(super) fn check(patterns: Vec<&str>) -> Result<(), String> {
    let mut left = limits::SCHEMA_PATTERNS_BYTES_MAX;
    for pattern in patterns.into_iter().collect::<HashSet<_>>() {
        // The compiler of the schema reports an invalid pattern.
        let Ok(translated) = jsonschema_regex::to_rust_regex(pattern) else { continue };
        if regex::Regex::new(&translated)
            .is_err_and(|error| matches!(error, regex::Error::Syntax(_)))
        {
            continue;
        }
        let used = automaton_bytes(&translated, left);
        left = used.and_then(|used| left.checked_sub(used)).ok_or_else(|| too_complex(pattern))?;
    }
    Ok(())
}

fn too_complex(pattern: &str) -> String {
    let shown: String = pattern.chars().take(limits::NAME_CHARS_MAX).collect();
    format!(
        "the pattern `{shown}` is too complex: limit lengths by `maxLength`, not by `{{0,200}}`, and use no `\\b`"
    )
}

/// The bytes of the automata that match `pattern` from either end. `None` if they are more than `max`, or there are none.
fn automaton_bytes(pattern: &str, max: usize) -> Option<usize> {
    let config = Config::new().cache_capacity(max).minimum_cache_clear_count(Some(0));
    let regex = Regex::builder()
        .syntax(syntax::Config::new())
        .thompson(thompson::Config::new().nfa_size_limit(Some(max)))
        .dfa(config)
        .build(pattern)
        .ok()?;
    let forward = determinized_bytes(regex.forward(), Anchored::No)?;
    let reverse = determinized_bytes(regex.reverse(), Anchored::Yes)?;
    Some(OVERHEAD_BYTES + forward + reverse)
}

/// Computes all states of an automaton. Returns its bytes, or `None` if they exceed its capacity.
fn determinized_bytes(dfa: &DFA, anchored: Anchored) -> Option<usize> {
    let mut cache = dfa.create_cache();
    let mut pending: Vec<LazyStateID> = vec![];
    for behind in std::iter::once(None).chain((0..=u8::MAX).map(Some)) {
        let config = start::Config::new().anchored(anchored).look_behind(behind);
        pending.push(dfa.start_state(&mut cache, &config).ok()?);
    }
    let mut seen: HashSet<_> = pending.iter().copied().collect();
    while let Some(state) = pending.pop() {
        if state.is_dead() {
            continue;
        }
        let mut next = vec![dfa.next_eoi_state(&mut cache, state).ok()?];
        for byte in dfa.byte_classes().representatives(0..=u8::MAX).filter_map(|unit| unit.as_u8())
        {
            next.push(dfa.next_state(&mut cache, state, byte).ok()?);
        }
        pending.extend(next.into_iter().filter(|next| seen.insert(*next)));
    }
    fits(&cache).then(|| dfa.get_nfa().memory_usage() + cache.memory_usage())
}

/// Whether no state had to be dropped.
fn fits(cache: &Cache) -> bool {
    cache.clear_count() == 0
}
