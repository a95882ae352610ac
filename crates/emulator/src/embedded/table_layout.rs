//! The layout of a dynoxide table in SQLite: the SQL statements that read and write its items by key, and its
//! indices. It covers only tables that [the fast path](super::dynamodb_fast_path) can serve.

use std::collections::BTreeMap;

use dynoxide::{
    storage::compute_hash_prefix,
    types::{
        AttributeDefinition, GlobalSecondaryIndex, KeySchemaElement, KeyType, ProjectionType,
        ScalarAttributeType,
    },
};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::dynamodb_fast_path::attribute::{PlainAttribute, PlainItem, size};

/// A length of a key, in bytes, that is within DynamoDB's limits for partition keys and sort keys.
const KEY_BYTES_MAX: usize = 1_024;

/// The values of partition key and sort key as they are stored in a row. Without a sort key, the second is empty.
pub(super) type RowKey = [String; 2];

/// The layout of a table.
pub(super) struct TableLayout {
    partition: String,
    sort: Option<String>,
    indices: Vec<IndexLayout>,
    get: String,
    put: String,
}

/// A sparse index that contains keys and some other attributes.
struct IndexLayout {
    /// The names and types of its partition key and sort key.
    keys: Vec<(String, ScalarAttributeType)>,
    /// The other attributes in the index.
    included: Vec<String>,
    delete: String,
    insert: String,
}

/// The row of an item in an index: the index's two keys, and the projected attributes as JSON.
#[derive(Clone, PartialEq)]
pub(super) struct IndexEntry {
    keys: RowKey,
    json: String,
}

impl TableLayout {
    /// Reads the layout from dynoxide's catalog; `None` if the fast path does not support the table.
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
        let indices = indices.iter().map(|index| IndexLayout::of(table, index, &types));
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

    /// The key of an item; `None` if dynoxide has to validate it.
    pub(super) fn key(&self, item: &PlainItem) -> Option<RowKey> {
        let text = |name: &String| {
            item.get(name).filter(|value| is_key_text(value))?.as_key()?.to_key_string()
        };
        let sort = match &self.sort {
            Some(sort) => text(sort)?,
            None => String::new(),
        };
        Some([text(&self.partition)?, sort])
    }

    /// Converts a request's key; `None` if it has other attributes too, or if dynoxide has to validate it.
    pub(super) fn primary_key(&self, key: &PlainItem) -> Option<RowKey> {
        (key.len() == self.key_names().count()).then(|| self.key(key))?
    }

    /// For each index, whether a write may change the row of its item. `changes` says which attributes it changes.
    pub(super) fn changed_indices(&self, changes: impl Fn(&String) -> bool) -> Vec<bool> {
        self.indices.iter().map(|index| index.names(self).any(&changes)).collect()
    }

    /// The item's row in each changed index; `None` if dynoxide would refuse the item.
    pub(super) fn entries(
        &self,
        item: &PlainItem,
        changed: &[bool],
    ) -> Option<Vec<Option<IndexEntry>>> {
        let entry = |(index, changed): (&IndexLayout, &bool)| match changed {
            true => index.entry(item, self),
            false => Some(None),
        };
        self.indices.iter().zip(changed).map(entry).collect()
    }

    /// Reads the item as JSON, if it exists.
    pub(super) fn get(
        &self,
        connection: &Connection,
        key: &RowKey,
    ) -> rusqlite::Result<Option<String>> {
        let mut statement = connection.prepare_cached(&self.get)?;
        statement.query_row(params_from_iter(key), |row| row.get(0)).optional()
    }

    /// Writes an item under its key.
    pub(super) fn store(
        &self,
        connection: &Connection,
        item: &PlainItem,
        key: &RowKey,
    ) -> rusqlite::Result<()> {
        let json = to_json(item)?;
        let size = i64::try_from(size(item)).unwrap_or(i64::MAX);
        let partition_key = item.get(&self.partition).and_then(PlainAttribute::as_key);
        let prefix = partition_key.as_ref().map(compute_hash_prefix).unwrap_or_default();
        let [partition, sort] = key;
        let mut statement = connection.prepare_cached(&self.put)?;
        statement.execute(params![partition, sort, json, size, prefix])?;
        Ok(())
    }

    /// Replaces the item's previous rows in the indices by its current rows.
    pub(super) fn reindex(
        &self,
        connection: &Connection,
        [partition, sort]: &RowKey,
        entries: &[Option<IndexEntry>],
        before: &[Option<IndexEntry>],
    ) -> rusqlite::Result<()> {
        for (n, (index, entry)) in self.indices.iter().zip(entries).enumerate() {
            let previous = before.get(n).and_then(Option::as_ref);
            if previous == entry.as_ref() {
                continue;
            }
            if previous.is_some() {
                connection.prepare_cached(&index.delete)?.execute([partition, sort])?;
            }
            if let Some(IndexEntry { keys: [hash, range], json }) = entry {
                let mut insert = connection.prepare_cached(&index.insert)?;
                insert.execute([hash, range, partition, sort, json])?;
            }
        }
        Ok(())
    }
}

impl IndexLayout {
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

    /// The names of the attributes in the index.
    fn names<'a>(&'a self, layout: &'a TableLayout) -> impl Iterator<Item = &'a String> {
        let keys = self.keys.iter().map(|(name, _)| name);
        keys.chain(layout.key_names()).chain(&self.included)
    }

    /// The item's row in this index: `Some(None)` if it has none, `None` if a key has the wrong type.
    fn entry(&self, item: &PlainItem, layout: &TableLayout) -> Option<Option<IndexEntry>> {
        let present = self.keys.iter().filter_map(|(name, kind)| Some((item.get(name)?, kind)));
        let keys = present.map(|(value, kind)| {
            let is_right = match kind {
                ScalarAttributeType::S => is_key_text(value),
                ScalarAttributeType::N => matches!(value, PlainAttribute::N(_)),
                ScalarAttributeType::B => false,
            };
            value.as_key().filter(|_| is_right)?.to_key_string()
        });
        let keys: Vec<_> = keys.collect::<Option<_>>()?;
        if keys.len() < self.keys.len() {
            return Some(None);
        }
        // Sorted, so that two rows can be compared.
        let kept: BTreeMap<_, _> =
            self.names(layout).filter_map(|name| Some((name, item.get(name)?))).collect();
        let mut keys = keys.into_iter();
        let keys = [keys.next()?, keys.next().unwrap_or_default()];
        Some(Some(IndexEntry { keys, json: serde_json::to_string(&kept).ok()? }))
    }
}

fn is_key_text(value: &PlainAttribute) -> bool {
    matches!(value, PlainAttribute::S(text) if (1..=KEY_BYTES_MAX).contains(&text.len()))
}

/// The names and types of partition key and sort key.
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

fn to_json(item: &PlainItem) -> rusqlite::Result<String> {
    serde_json::to_string(item)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// A name quoted for SQL.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
