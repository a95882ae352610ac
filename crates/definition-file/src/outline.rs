//! Where the keys and values of a definition are in its file.

use std::fmt;

use indexmap::IndexMap;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use super::Place;

/// A definition's shape: of each key and of each value, where it is.
#[derive(Debug)]
pub(super) enum Outline {
    Single,
    List(Vec<Spanned<Outline>>),
    Keys(IndexMap<String, Entry>),
}

#[derive(Debug)]
pub(super) struct Entry {
    key: Location,
    value: Spanned<Outline>,
}

impl Outline {
    /// Where the key or value is that a problem is about, as `steps.charge.after.0`: as deep as the
    /// file has it.
    pub(super) fn place(&self, at: &str) -> Option<Place> {
        let start = Place { line: 1, column: 1, bytes: 0..0 };
        let (mut here, mut rest, mut found) = (self, at, Some(start));
        while let Some((location, value, after)) = here.child(rest) {
            found = Place::of(location);
            (here, rest) = (value, after);
        }
        found
    }

    /// Of the first key of `path`: where it is shown, what is in it, and the rest of the path. Keys
    /// may have dots in them.
    fn child<'p>(&self, path: &'p str) -> Option<(Location, &Self, &'p str)> {
        match self {
            Self::Single => None,
            Self::List(items) => {
                let (index, rest) = path.split_once('.').unwrap_or((path, ""));
                let item = items.get(index.parse::<usize>().ok()?)?;
                Some((item.referenced, &item.value, rest))
            }
            Self::Keys(keys) => {
                let (_, entry, rest) = keys
                    .iter()
                    .filter_map(|(key, entry)| {
                        let rest = path.strip_prefix(key.as_str())?;
                        let rest = if rest.is_empty() { "" } else { rest.strip_prefix('.')? };
                        Some((key.len(), entry, rest))
                    })
                    .max_by_key(|(length, ..)| *length)?;
                let value = &entry.value;
                // What spreads over lines is shown by its key.
                let shown = match &value.value {
                    Self::Keys(_) => entry.key,
                    Self::Single | Self::List(_) => value.referenced,
                };
                Some((shown, &value.value, rest))
            }
        }
    }

    /// Where the key `name` stands in the map at `at`.
    pub(super) fn key(&self, at: &[String], name: &str) -> Option<Place> {
        Place::of(self.keys(at)?.get(name)?.key)
    }

    /// Lets the key be called `to` from now on.
    pub(super) fn rename(&mut self, at: &[String], from: &str, to: &str) {
        if let Some(keys) = self.keys_mut(at)
            && let Some((index, _, entry)) = keys.shift_remove_full(from)
        {
            keys.shift_insert(index, to.to_owned(), entry);
        }
    }

    /// Forgets an item of a list, so that those after it count as one less.
    pub(super) fn remove_item(&mut self, list: &[String], index: usize) {
        if let Some(Self::List(items)) = self.at_mut(list)
            && index < items.len()
        {
            items.remove(index);
        }
    }

    fn keys(&self, at: &[String]) -> Option<&IndexMap<String, Entry>> {
        let found = at.iter().try_fold(self, |here, key| match here {
            Self::Keys(keys) => Some(&keys.get(key)?.value.value),
            Self::List(items) => Some(&items.get(key.parse::<usize>().ok()?)?.value),
            Self::Single => None,
        })?;
        match found {
            Self::Keys(keys) => Some(keys),
            Self::List(_) | Self::Single => None,
        }
    }

    fn keys_mut(&mut self, at: &[String]) -> Option<&mut IndexMap<String, Entry>> {
        match self.at_mut(at)? {
            Self::Keys(keys) => Some(keys),
            Self::List(_) | Self::Single => None,
        }
    }

    fn at_mut(&mut self, at: &[String]) -> Option<&mut Self> {
        at.iter().try_fold(self, |here, key| match here {
            Self::Keys(keys) => Some(&mut keys.get_mut(key)?.value.value),
            Self::List(items) => Some(&mut items.get_mut(key.parse::<usize>().ok()?)?.value),
            Self::Single => None,
        })
    }
}

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
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            keys.insert(key.value, Entry { key: key.referenced, value: map.next_value()? });
        }
        Ok(Outline::Keys(keys))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Outline, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Outline::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Outline, E> {
        Ok(Outline::Single)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Outline, E> {
        Ok(Outline::Single)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Outline, E> {
        Ok(Outline::Single)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Outline, E> {
        Ok(Outline::Single)
    }

    fn visit_str<E>(self, _: &str) -> Result<Outline, E> {
        Ok(Outline::Single)
    }

    fn visit_unit<E>(self) -> Result<Outline, E> {
        Ok(Outline::Single)
    }
}
