//! The source map of a definition: the locations of its keys and values in the file.

use std::fmt;

use indexmap::IndexMap;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use super::location::SourceLocation;

/// A value of a definition, with the locations of the keys and values in it.
#[derive(Debug)]
pub(super) enum SourceMap {
    Scalar,
    List(Vec<Spanned<SourceMap>>),
    Mapping(IndexMap<String, MappingEntry>),
}

#[derive(Debug)]
pub(super) struct MappingEntry {
    key: Location,
    value: Spanned<SourceMap>,
}

impl SourceMap {
    /// The location of a key or value, given its path such as `steps.charge.after.0`. If the file does not
    /// have it, the location of the closest parent that the file has.
    pub(super) fn location(&self, path: &str) -> Option<SourceLocation> {
        let start = SourceLocation { line: 1, column: 1, bytes: 0..0 };
        let (mut value, mut rest, mut deepest) = (self, path, Some(start));
        while let Some((location, child, child_rest)) = value.child(rest) {
            deepest = SourceLocation::new(location);
            (value, rest) = (child, child_rest);
        }
        deepest
    }

    /// Resolves the first key of `path`. Returns the location to show, the value, and the rest of the path.
    /// Keys may contain dots.
    fn child<'p>(&self, path: &'p str) -> Option<(Location, &Self, &'p str)> {
        match self {
            Self::Scalar => None,
            Self::List(items) => {
                let (index, rest) = path.split_once('.').unwrap_or((path, ""));
                let item = items.get(index.parse::<usize>().ok()?)?;
                Some((item.referenced, &item.value, rest))
            }
            Self::Mapping(keys) => {
                let (_, entry, rest) = keys
                    .iter()
                    .filter_map(|(key, entry)| {
                        let rest = path.strip_prefix(key.as_str())?;
                        let rest = if rest.is_empty() { "" } else { rest.strip_prefix('.')? };
                        Some((key.len(), entry, rest))
                    })
                    .max_by_key(|(length, ..)| *length)?;
                let value = &entry.value;
                // A mapping may span many lines, so its key is shown.
                let location = match &value.value {
                    Self::Mapping(_) => entry.key,
                    Self::Scalar | Self::List(_) => value.referenced,
                };
                Some((location, &value.value, rest))
            }
        }
    }

    /// The location of the key `name` in the mapping at `path`.
    pub(super) fn key_location(&self, path: &[String], name: &str) -> Option<SourceLocation> {
        SourceLocation::new(self.mapping(path)?.get(name)?.key)
    }

    /// Renames the key `from` in the mapping at `path`.
    pub(super) fn rename(&mut self, path: &[String], from: &str, to: &str) {
        if let Some(keys) = self.mapping_mut(path)
            && let Some((index, _, entry)) = keys.shift_remove_full(from)
        {
            keys.shift_insert(index, to.to_owned(), entry);
        }
    }

    /// Removes an item of a list. The indices of the items after it decrease by one.
    pub(super) fn remove_item(&mut self, list: &[String], index: usize) {
        if let Some(Self::List(items)) = self.get_mut(list)
            && index < items.len()
        {
            items.remove(index);
        }
    }

    fn mapping(&self, path: &[String]) -> Option<&IndexMap<String, MappingEntry>> {
        let found = path.iter().try_fold(self, |value, key| match value {
            Self::Mapping(keys) => Some(&keys.get(key)?.value.value),
            Self::List(items) => Some(&items.get(key.parse::<usize>().ok()?)?.value),
            Self::Scalar => None,
        })?;
        match found {
            Self::Mapping(keys) => Some(keys),
            Self::List(_) | Self::Scalar => None,
        }
    }

    fn mapping_mut(&mut self, path: &[String]) -> Option<&mut IndexMap<String, MappingEntry>> {
        match self.get_mut(path)? {
            Self::Mapping(keys) => Some(keys),
            Self::List(_) | Self::Scalar => None,
        }
    }

    fn get_mut(&mut self, path: &[String]) -> Option<&mut Self> {
        path.iter().try_fold(self, |value, key| match value {
            Self::Mapping(keys) => Some(&mut keys.get_mut(key)?.value.value),
            Self::List(items) => Some(&mut items.get_mut(key.parse::<usize>().ok()?)?.value),
            Self::Scalar => None,
        })
    }
}

impl<'de> Deserialize<'de> for SourceMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceMapVisitor)
    }
}

struct SourceMapVisitor;

impl<'de> Visitor<'de> for SourceMapVisitor {
    type Value = SourceMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SourceMap, A::Error> {
        let mut keys = IndexMap::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            keys.insert(key.value, MappingEntry { key: key.referenced, value: map.next_value()? });
        }
        Ok(SourceMap::Mapping(keys))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<SourceMap, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(SourceMap::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<SourceMap, E> {
        Ok(SourceMap::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<SourceMap, E> {
        Ok(SourceMap::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<SourceMap, E> {
        Ok(SourceMap::Scalar)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<SourceMap, E> {
        // The value itself is read as null.
        if !value.is_finite() {
            return Err(E::custom("JSON has no infinite numbers and no `.nan`"));
        }
        Ok(SourceMap::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<SourceMap, E> {
        Ok(SourceMap::Scalar)
    }

    fn visit_unit<E>(self) -> Result<SourceMap, E> {
        Ok(SourceMap::Scalar)
    }
}
