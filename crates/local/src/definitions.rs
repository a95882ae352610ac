//! Definition files: YAML or JSON in, a workflow that can run out, or every reason why not, each with
//! its line and column.

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
};

use indexmap::IndexMap;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Error, Localizer, Location, MessageFormatter, Spanned, UserMessageFormatter};
use steward_core::{
    limits,
    template::Template,
    workflow::{Problem, Workflow},
};

/// Why a definition file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// The file cannot be read.
    #[error("{}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is too large to be published.
    #[error("{}: {bytes} bytes; the limit is {max}", path.display(), max = limits::DEFINITION_BYTES_MAX)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: usize,
    },
    /// It is not a definition: YAML, keys, types, expressions.
    #[error("{}: {message}{lines}", Spot { path, place })]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in it, if that is known.
        place: Option<Place>,
        /// What is wrong.
        message: String,
        /// The lines around the place, each after a newline; may be empty.
        lines: String,
    },
    /// It is a definition, but cannot run.
    #[error("{}", Places { path, problems })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Each problem with its line and column, in their order.
        problems: Vec<(Problem, Option<Place>)>,
    },
}

/// A place in a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

/// As terminals and editors know to follow it: `file:line:column`.
struct Spot<'a> {
    path: &'a Path,
    place: &'a Option<Place>,
}

impl fmt::Display for Spot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.place {
            Some(Place { line, column }) => write!(f, "{path}:{line}:{column}"),
            None => write!(f, "{path}"),
        }
    }
}

impl Place {
    fn of(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

struct Places<'a> {
    path: &'a Path,
    problems: &'a [(Problem, Option<Place>)],
}

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (problem, place)) in self.problems.iter().enumerate() {
            let newline = if at == 0 { "" } else { "\n" };
            write!(f, "{newline}{}: {problem}", Spot { path: self.path, place })?;
        }
        Ok(())
    }
}

/// Reads one definition file.
///
/// # Errors
/// Every reason why it is of no use.
pub fn read_file(path: &Path) -> Result<Workflow, DefinitionError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DefinitionError::Unreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Reads all `.yaml`, `.yml` and `.json` files of a folder, in the order of their names.
///
/// # Errors
/// The first file that is of no use.
pub fn read_dir(dir: &Path) -> Result<Vec<Workflow>, DefinitionError> {
    let unreadable = |source| DefinitionError::Unreadable { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| read_file(path)).collect()
}

/// Reads a definition from `text`, which came from `path`.
///
/// # Errors
/// Every reason why it is of no use.
pub fn parse(path: &Path, text: &str) -> Result<Workflow, DefinitionError> {
    let path = path.to_owned();
    if text.len() > limits::DEFINITION_BYTES_MAX {
        return Err(DefinitionError::TooLarge { path, bytes: text.len() });
    }
    let workflow: Workflow = read(text).map_err(|error| malformed(&path, text, error))?;
    let problems = workflow.problems();
    if problems.is_empty() {
        return Ok(workflow);
    }
    let outline = read(text).unwrap_or_default();
    let placed = |problem: Problem| {
        let place = place(&outline, &problem.at);
        (problem, place)
    };
    let mut problems: Vec<_> = problems.into_iter().map(placed).collect();
    problems.sort_by_key(|(_, place)| *place);
    Err(DefinitionError::Invalid { path, problems })
}

/// JSON is YAML, so one parser reads both.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    // YAML 1.1 takes the country code `NO` for false; 1.2 knows better.
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

fn malformed(path: &Path, text: &str, error: Error) -> DefinitionError {
    let error = match read::<Requests>(text) {
        Err(closer) if Messages::of(&closer) == Messages::of(&error) => closer,
        Ok(_) | Err(_) => error,
    };
    let message = Messages::of(&error);
    // The library says message and place above the lines and the message once more below them; here
    // both stand in front, once, as with every other error.
    let name = path.display().to_string();
    let options = serde_saphyr::render_options! { formatter: &Messages, source_name: Some(&name) };
    let rendered = error.render_with_options(options);
    let lines = rendered.lines().skip_while(|line| line.trim() != "|");
    let lines =
        lines.map(|line| format!("\n{}", line.trim_end_matches(&message).trim_end())).collect();
    let place = error.location().filter(|location| *location != Location::UNKNOWN).map(Place::of);
    DefinitionError::Malformed { path: path.to_owned(), place, message, lines }
}

/// The library's messages in the words of YAML's users, without the place.
struct Messages;

impl Messages {
    fn of(error: &Error) -> String {
        error.without_snippet().render_with_formatter(&Self)
    }
}

impl MessageFormatter for Messages {
    fn localizer(&self) -> &dyn Localizer {
        self
    }

    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
        match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("key `{key}` is there twice").into()
            }
            Error::InvalidScalar { ty: "u32", .. } => {
                "expected a whole number, not negative".into()
            }
            Error::Unexpected { expected: "mapping start", .. } => {
                "expected keys with values".into()
            }
            Error::Unexpected { expected: "sequence start", .. } => {
                "expected a list, as `[a, b]`".into()
            }
            Error::Unexpected { expected: "string scalar", .. } => "expected a single value".into(),
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

impl Localizer for Messages {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        message
    }
}

/// The texts of all requests, each read as a template of its own: a broken expression is found at
/// its own place, and not at the start of the request's body, which is read as one value.
#[derive(Deserialize)]
struct Requests {
    #[serde(rename = "steps")]
    _steps: IndexMap<String, RequestOfStep>,
}

#[derive(Deserialize)]
struct RequestOfStep {
    #[serde(rename = "request")]
    _request: Texts,
    #[serde(rename = "undo")]
    _undo: Option<Texts>,
}

struct Texts;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self, E> {
        match Template::parse(text.into()).problems().first() {
            None => Ok(self),
            Some((_, problem)) => Err(E::custom(problem)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

/// Just enough of a definition to know where its keys are: those of maps in maps, and no lists.
#[derive(Debug, Default)]
struct Outline(IndexMap<String, Spanned<Outline>>);

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OutlineVisitor)
    }
}

struct OutlineVisitor;

impl<'de> Visitor<'de> for OutlineVisitor {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let mut keys = IndexMap::new();
        while let Some((key, value)) = map.next_entry()? {
            keys.insert(key, value);
        }
        Ok(Outline(keys))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Outline, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Outline::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Outline, E> {
        Ok(Outline::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Outline, E> {
        Ok(Outline::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Outline, E> {
        Ok(Outline::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Outline, E> {
        Ok(Outline::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Outline, E> {
        Ok(Outline::default())
    }

    fn visit_unit<E>(self) -> Result<Outline, E> {
        Ok(Outline::default())
    }
}

/// Where the key is that a problem is about, as `steps.charge.after`: as deep as the file has it.
fn place(outline: &Outline, at: &str) -> Option<Place> {
    let (mut here, mut found) = (outline, None);
    for key in at.split('.') {
        let Some(next) = here.0.get(key) else { break };
        found = Some(Place::of(next.referenced));
        here = &next.value;
    }
    found
}

#[cfg(test)]
mod tests;
