//! How dynoxide lays a table out in SQLite: the statements that read and write its items by key, and its
//! indices. Only of tables that a [shortcut](super::shortcuts) can serve.

use std::collections::BTreeMap;

use dynoxide::{
    storage::compute_hash_prefix,
    types::{
        AttributeDefinition, GlobalSecondaryIndex, KeySchemaElement, KeyType, ProjectionType,
        ScalarAttributeType,
    },
};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::shortcuts::attribute::{Attribute, Item, size};

/// Bytes of a key that are surely within DynamoDB's limit, also for a sort key.
const KEY_BYTES_MAX: usize = 1_024;

/// The values of partition key and sort key, as the rows have them.
pub(super) type Key = [String; 2];

/// How a table's items are stored.
pub(super) struct Layout {
    partition: String,
    sort: Option<String>,
    indices: Vec<Index>,
    get: String,
    put: String,
}

/// A sparse index of keys, and of some attributes beside them.
struct Index {
    /// Its partition key's and sort key's names and types.
    keys: Vec<(String, ScalarAttributeType)>,
    /// What is kept there beside the keys.
    included: Vec<String>,
    delete: String,
    insert: String,
}

/// What an item has in an index: its two keys, and what is kept there.
#[derive(Clone, PartialEq)]
pub(super) struct Entry {
    keys: Key,
    json: String,
}

impl Layout {
    /// Reads what dynoxide recorded of the table.
    pub(super) fn read(connection: &Connection, table: &str) -> rusqlite::Result<Option<Self>> {
        let row = connection.query_row(
            "SELECT key_schema, attribute_definitions, gsi_definitions FROM _tables \
             WHERE table_name = ?1 AND table_status = 'ACTIVE' AND NOT stream_enabled \
             AND lsi_definitions IS NULL AND vector_index_definitions IS NULL",
            [table],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        );
        let row: Option<(String, String, Option<String>)> = row.optional()?;
        Ok(row.and_then(|(schema, types, indices)| {
            let indices = indices.as_deref().unwrap_or("[]");
            Self::of(table, &schema, &types, indices)
        }))
    }

    fn of(table: &str, schema: &str, types: &str, indices: &str) -> Option<Self> {
        let types: Vec<AttributeDefinition> = serde_json::from_str(types).ok()?;
        let keys = keys_of(&serde_json::from_str::<Vec<_>>(schema).ok()?, &types)?;
        if keys.iter().any(|(_, kind)| *kind != ScalarAttributeType::S) {
            return None;
        }
        let indices: Vec<GlobalSecondaryIndex> = serde_json::from_str(indices).ok()?;
        let indices = indices.iter().map(|index| Index::of(table, index, &types));
        let quoted = quote(table);
        let mut names = keys.into_iter().map(|(name, _)| name);
        Some(Self {
            partition: names.next()?,
            sort: names.next(),
            indices: indices.collect::<Option<_>>()?,
            get: format!("SELECT item_json FROM {quoted} WHERE pk = ?1 AND sk = ?2"),
            put: format!(
                "INSERT INTO {quoted} (pk, sk, item_json, item_size, hash_prefix) \
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (pk, sk) DO UPDATE \
                 SET item_json = excluded.item_json, item_size = excluded.item_size"
            ),
        })
    }

    /// The names of the key's attributes.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.partition).chain(&self.sort)
    }

    /// The key of an item, if it is an ordinary one.
    pub(super) fn key(&self, item: &Item) -> Option<Key> {
        let text = |name: &String| {
            item.get(name).filter(|value| is_key_text(value))?.as_key()?.to_key_string()
        };
        let sort = match &self.sort {
            Some(sort) => text(sort)?,
            None => String::new(),
        };
        Some([text(&self.partition)?, sort])
    }

    /// A key that is nothing else.
    pub(super) fn whole_key(&self, key: &Item) -> Option<Key> {
        (key.len() == self.key_names().count()).then(|| self.key(key))?
    }

    /// What an item has in each index; nothing if dynoxide would refuse it.
    pub(super) fn entries(&self, item: &Item) -> Option<Vec<Option<Entry>>> {
        self.indices.iter().map(|index| index.entry(item, self)).collect()
    }

    /// The item as JSON, if there is one.
    pub(super) fn get(
        &self,
        connection: &Connection,
        key: &Key,
    ) -> rusqlite::Result<Option<String>> {
        let mut statement = connection.prepare_cached(&self.get)?;
        statement.query_row(params_from_iter(key), |row| row.get(0)).optional()
    }

    /// Writes an item under its key.
    pub(super) fn store(
        &self,
        connection: &Connection,
        item: &Item,
        key: &Key,
    ) -> rusqlite::Result<()> {
        let json = to_json(item)?;
        let size = i64::try_from(size(item)).unwrap_or(i64::MAX);
        let partition_key = item.get(&self.partition).and_then(Attribute::as_key);
        let prefix = partition_key.as_ref().map(compute_hash_prefix).unwrap_or_default();
        let [partition, sort] = key;
        let mut statement = connection.prepare_cached(&self.put)?;
        statement.execute(params![partition, sort, json, size, prefix])?;
        Ok(())
    }

    /// Replaces what the item had in the indices before by what it has now.
    pub(super) fn reindex(
        &self,
        connection: &Connection,
        [partition, sort]: &Key,
        entries: &[Option<Entry>],
        before: &[Option<Entry>],
    ) -> rusqlite::Result<()> {
        for (at, (index, entry)) in self.indices.iter().zip(entries).enumerate() {
            let was = before.get(at).and_then(Option::as_ref);
            if was == entry.as_ref() {
                continue;
            }
            if was.is_some() {
                connection.prepare_cached(&index.delete)?.execute([partition, sort])?;
            }
            if let Some(Entry { keys: [hash, range], json }) = entry {
                let mut insert = connection.prepare_cached(&index.insert)?;
                insert.execute([hash, range, partition, sort, json])?;
            }
        }
        Ok(())
    }
}

impl Index {
    fn of(
        table: &str,
        index: &GlobalSecondaryIndex,
        types: &[AttributeDefinition],
    ) -> Option<Self> {
        let included = match index.projection.projection_type.as_ref()? {
            ProjectionType::KEYS_ONLY => Vec::new(),
            ProjectionType::INCLUDE => index.projection.non_key_attributes.clone()?,
            ProjectionType::ALL => return None,
        };
        let quoted = quote(&format!("{table}::gsi::{}", index.index_name));
        Some(Self {
            keys: keys_of(&index.key_schema, types)?,
            included,
            delete: format!("DELETE FROM {quoted} WHERE table_pk = ?1 AND table_sk = ?2"),
            insert: format!(
                "INSERT INTO {quoted} (gsi_pk, gsi_sk, table_pk, table_sk, item_json) \
                 VALUES (?1, ?2, ?3, ?4, ?5)"
            ),
        })
    }

    /// What an item has here, if anything. Nothing at all if a key is of another type.
    fn entry(&self, item: &Item, layout: &Layout) -> Option<Option<Entry>> {
        let present = self.keys.iter().filter_map(|(name, kind)| Some((item.get(name)?, kind)));
        let keys = present.map(|(value, kind)| {
            let is_right = match kind {
                ScalarAttributeType::S => is_key_text(value),
                ScalarAttributeType::N => matches!(value, Attribute::N(_)),
                ScalarAttributeType::B => false,
            };
            value.as_key().filter(|_| is_right)?.to_key_string()
        });
        let keys: Vec<_> = keys.collect::<Option<_>>()?;
        if keys.len() < self.keys.len() {
            return Some(None);
        }
        let keys_of_index = self.keys.iter().map(|(name, _)| name);
        let names = keys_of_index.chain(layout.key_names()).chain(&self.included);
        // In one order, so that two can be compared.
        let kept: BTreeMap<_, _> = names.filter_map(|name| Some((name, item.get(name)?))).collect();
        let mut keys = keys.into_iter();
        let keys = [keys.next()?, keys.next().unwrap_or_default()];
        Some(Some(Entry { keys, json: serde_json::to_string(&kept).ok()? }))
    }
}

fn is_key_text(value: &Attribute) -> bool {
    matches!(value, Attribute::S(text) if (1..=KEY_BYTES_MAX).contains(&text.len()))
}

/// Partition key and sort key, with their types.
fn keys_of(
    schema: &[KeySchemaElement],
    types: &[AttributeDefinition],
) -> Option<Vec<(String, ScalarAttributeType)>> {
    let of = |wanted: KeyType| schema.iter().filter(move |element| element.key_type == wanted);
    let keys = of(KeyType::HASH).chain(of(KeyType::RANGE)).map(|element| {
        let name = &element.attribute_name;
        let defined = types.iter().find(|defined| defined.attribute_name == *name)?;
        Some((name.clone(), defined.attribute_type.clone()))
    });
    keys.collect()
}

fn to_json(item: &Item) -> rusqlite::Result<String> {
    serde_json::to_string(item)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// A name as SQL has it.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
