//! The two statements of PartiQL that the shortcuts know, in the words in which the state store says
//! them: a new item, and an update of a task at a revision.

use serde::Deserialize;

use super::{
    Put,
    attribute::{Attribute, Item},
};

/// Bytes of a statement, by DynamoDB's limit.
const STATEMENT_BYTES_MAX: usize = 8_192;

/// How an update says which item it is for, and when.
const WHERE: &str = r#" WHERE "task_id"=? AND "revision"=? AND "submitted_at"=?"#;

/// A statement of a batch.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Statement {
    statement: String,
    parameters: Vec<Attribute>,
}

impl Statement {
    /// What it writes, if it is one of those that are known.
    pub(super) fn into_put(self) -> Option<Put> {
        if self.statement.len() > STATEMENT_BYTES_MAX {
            return None;
        }
        let mut values = self.parameters.into_iter();
        let put = match self.statement.strip_prefix("INSERT INTO \"") {
            Some(rest) => insert(rest, &mut values)?,
            None => update(self.statement.strip_prefix("UPDATE \"")?, &mut values)?,
        };
        values.next().is_none().then_some(put)
    }
}

/// `table" VALUE {'name': ?, 'name': ?}`
fn insert(text: &str, values: &mut impl Iterator<Item = Attribute>) -> Option<Put> {
    let (table, fields) = text.split_once("\" VALUE {")?;
    let mut item = Item::new();
    for field in fields.strip_suffix('}')?.split(", ") {
        let name = name(field.strip_prefix('\'')?.strip_suffix("': ?")?)?;
        if item.insert(name, values.next()?).is_some() {
            return None;
        }
    }
    Some(Put {
        table_name: table.to_owned(),
        item,
        condition_expression: Some("attribute_not_exists(task_id)".to_owned()),
        expression_attribute_values: None,
        return_values_on_condition_check_failure: None,
        removed: None,
    })
}

/// `table" SET "name"=? REMOVE "name" WHERE "task_id"=? AND "revision"=? AND "submitted_at"=?`
fn update(text: &str, values: &mut impl Iterator<Item = Attribute>) -> Option<Put> {
    let (table, clauses) = text.strip_suffix(WHERE)?.split_once('"')?;
    let (mut item, mut removed, mut rest) = (Item::new(), Vec::new(), clauses);
    while !rest.is_empty() {
        let before = item.len() + removed.len();
        if let Some(set) = rest.strip_prefix(" SET \"") {
            let (set, after) = set.split_once("\"=?")?;
            item.insert(name(set)?, values.next()?);
            rest = after;
        } else {
            let (gone, after) = rest.strip_prefix(" REMOVE \"")?.split_once('"')?;
            let gone = name(gone)?;
            if item.contains_key(&gone) || gone == "task_id" {
                return None;
            }
            if !removed.contains(&gone) {
                removed.push(gone);
            }
            rest = after;
        }
        // What is said twice is not plain.
        if item.len() + removed.len() == before || item.keys().any(|set| removed.contains(set)) {
            return None;
        }
    }
    // The key is not set.
    if item.is_empty() || item.insert("task_id".to_owned(), values.next()?).is_some() {
        return None;
    }
    let before =
        [(":before".to_owned(), values.next()?), (":submitted_at".to_owned(), values.next()?)];
    Some(Put {
        table_name: table.to_owned(),
        item,
        condition_expression: Some(
            "revision = :before AND submitted_at = :submitted_at".to_owned(),
        ),
        expression_attribute_values: Some(before.into()),
        return_values_on_condition_check_failure: None,
        removed: Some(removed),
    })
}

/// A name that means itself, in quotes of either kind.
fn name(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_plain && !text.is_empty()).then(|| text.to_owned())
}
