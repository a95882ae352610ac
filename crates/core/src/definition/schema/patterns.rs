//! The regular expressions of a schema. The matcher turns an expression into a finite automaton while it reads a text, and then needs
//! one lookup for each byte. If the automaton becomes too large, the matcher simulates the expression instead, and needs time in
//! proportion to the size of the expression for each byte: seconds for a text of 128 KiB. So publication builds the automata of all
//! expressions completely, and refuses those that do not fit.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use regex::{Regex, RegexBuilder};
use regex_automata::{
    Anchored,
    hybrid::{
        LazyStateID,
        dfa::{Cache, Config, DFA},
    },
    nfa::thompson,
    util::start,
};

use crate::limits;

/// The bytes that an expression needs beside its automaton.
const OVERHEAD_BYTES: usize = 1024;

/// The compiled expressions of a schema.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    /// By their text in the schema. A clone of an expression would have memory of its own for its automata.
    compiled: HashMap<String, Arc<Regex>>,
    /// In the order of the schema.
    texts: Vec<String>,
}

impl Patterns {
    /// Compiles an expression, once.
    ///
    /// # Errors
    /// It is no regular expression, or longer than the limits.
    pub(super) fn compile(&mut self, pattern: &str) -> Result<Arc<Regex>, String> {
        if let Some(compiled) = self.compiled.get(pattern) {
            return Ok(compiled.clone());
        }
        let bytes = self.texts.iter().map(String::len).sum::<usize>() + pattern.len();
        if bytes > limits::SCHEMA_PATTERNS_TEXT_BYTES_MAX {
            return Err(format!(
                "its patterns have more than {} bytes",
                limits::SCHEMA_PATTERNS_TEXT_BYTES_MAX
            ));
        }
        let invalid =
            || format!("the pattern `{}` is no regular expression of ECMAScript", shown(pattern));
        let supported = with_rusts_dots(pattern)?;
        if !jsonschema_regex::is_valid_ecma_regex(pattern) {
            return Err(invalid());
        }
        let translated = jsonschema_regex::to_rust_regex(&supported).map_err(|()| invalid())?;
        let builder = RegexBuilder::new(&translated).size_limit(PATTERN_BYTES_MAX).build();
        let compiled = builder.map(Arc::new).map_err(|error| {
            let is_large = matches!(error, regex::Error::CompiledTooBig(_));
            if is_large { too_complex(pattern) } else { invalid() }
        })?;
        self.texts.push(pattern.to_owned());
        self.compiled.insert(pattern.to_owned(), compiled.clone());
        Ok(compiled)
    }

    /// Checks the size of all automata.
    ///
    /// # Errors
    /// A pattern does not fit, or cannot be matched by an automaton.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut left = limits::SCHEMA_PATTERNS_BYTES_MAX;
        for (pattern, compiled) in
            self.texts.iter().filter_map(|text| self.compiled.get_key_value(text))
        {
            let used = automaton_bytes(compiled.as_str(), PATTERN_BYTES_MAX);
            let used = used.ok_or_else(|| too_complex(pattern))?;
            left = left.checked_sub(used).ok_or_else(|| {
                let max = limits::SCHEMA_PATTERNS_BYTES_MAX;
                format!(
                    "its patterns need more than {max} bytes together, from `{}` on",
                    shown(pattern)
                )
            })?;
        }
        Ok(())
    }
}

/// The bytes of one expression and its automata.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

fn shown(pattern: &str) -> String {
    pattern.chars().take(limits::NAME_CHARS_MAX).collect()
}

fn too_complex(pattern: &str) -> String {
    format!(
        "the pattern `{}` is too complex: limit lengths by `maxLength`, not by `{{0,200}}`, and use no `\\b`",
        shown(pattern)
    )
}

/// `pattern`, but a dot matches in Rust what it matches in ECMAScript: no end of a line.
///
/// # Errors
/// ECMAScript refuses the pattern, or means something that Rust does not support.
fn with_rusts_dots(pattern: &str) -> Result<String, String> {
    let mut translated = String::with_capacity(pattern.len());
    let mut in_class = false;
    let mut rest = pattern.chars();
    loop {
        if let Some(advice) = advice(rest.as_str(), in_class) {
            return Err(format!("the pattern `{}` is not supported: {advice}", shown(pattern)));
        }
        match rest.next() {
            None => return Ok(translated),
            Some('.') if !in_class => translated.push_str("[^\\n\\r\\u{2028}\\u{2029}]"),
            Some('\\') => translated.extend(std::iter::once('\\').chain(rest.next())),
            Some(other) => {
                in_class = other == '[' || (in_class && other != ']');
                translated.push(other);
            }
        }
    }
}

/// What to write instead of the start of `rest`, if ECMAScript refuses it, or Rust reads it otherwise.
fn advice(rest: &str, in_class: bool) -> Option<&'static str> {
    let mut chars = rest.chars();
    let [first, second, third, fourth] = std::array::from_fn(|_| chars.next());
    Some(match (first?, second?, third, fourth) {
        ('\\', 'A', ..) => "write `^` instead of `\\A`",
        ('\\', 'z' | 'Z', ..) => "write `$` instead of `\\z`",
        ('\\', '<' | '>', ..) => "write `<` and `>` without a `\\`",
        ('\\', '0', ..) => "write `\\x00` instead of `\\0`",
        ('\\', '1'..='9' | 'k', ..) => "back-references would not be matched in linear time",
        ('\\', 'x', Some('{'), _) => "write `\\u{61}` instead of `\\x{61}`",
        ('\\', 'u', Some('D' | 'd'), Some('8'..='9' | 'A'..='F' | 'a'..='f')) => {
            "write `\\u{1F600}` instead of `\\uD83D\\uDE00`"
        }
        ('\\', 'p' | 'P', Some(letter), _) if letter != '{' => "write `\\p{L}` instead of `\\pL`",
        _ if in_class => return None,
        ('[', ']', ..) | ('[', '^', Some(']'), _) => "a class must list at least one character",
        ('(', '?', Some('=' | '!'), _) | ('(', '?', Some('<'), Some('=' | '!')) => {
            "look-around would not be matched in linear time"
        }
        ('(', '?', Some('P'), _) => "write `(?<name>a)` instead of `(?P<name>a)`",
        ('(', '?', Some('i' | 'm' | 's' | '-'), _) => {
            "write `[Aa]` instead of flags such as `(?i)a`"
        }
        ('*' | '+' | '?', '+', ..) => {
            "write one `+`: matching never goes back, so `++` means nothing"
        }
        _ => return None,
    })
}

/// The bytes of the automata that match `pattern` from either end. `None` if they are more than `max`, or there are none.
fn automaton_bytes(pattern: &str, max: usize) -> Option<usize> {
    let config = Config::new().cache_capacity(max).minimum_cache_clear_count(Some(0));
    let regex = regex_automata::hybrid::regex::Regex::builder()
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
