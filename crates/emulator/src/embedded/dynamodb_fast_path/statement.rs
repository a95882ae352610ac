//! The two PartiQL statements that the fast path supports, exactly as the state store writes them: the insert of a
//! new item, and the update of a task at a revision.

use serde::Deserialize;

use super::{
    attribute::{PlainAttribute, PlainItem},
    put::PlainPut,
};

/// The longest statement, in bytes: DynamoDB's limit.
const STATEMENT_BYTES_MAX: usize = 8_192;

/// The end of an update, which selects the item and its revision.
const WHERE: &str = r#" WHERE "task_id"=? AND "revision"=? AND "submitted_at"=?"#;

/// A statement of a batch.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct PartiqlStatement {
    statement: String,
    parameters: Vec<PlainAttribute>,
}

impl PartiqlStatement {
    /// The write that the statement makes; `None` if the fast path does not support it.
    pub(super) fn into_put(self) -> Option<PlainPut> {
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
fn insert(text: &str, values: &mut impl Iterator<Item = PlainAttribute>) -> Option<PlainPut> {
    let (table, fields) = text.split_once("\" VALUE {")?;
    let mut item = PlainItem::new();
    for field in fields.strip_suffix('}')?.split(", ") {
        let name = name(field.strip_prefix('\'')?.strip_suffix("': ?")?)?;
        if item.insert(name, values.next()?).is_some() {
            return None;
        }
    }
    Some(PlainPut {
        table_name: table.to_owned(),
        item,
        condition_expression: Some("attribute_not_exists(task_id)".to_owned()),
        expression_attribute_values: None,
        return_values_on_condition_check_failure: None,
        removed: None,
    })
}

/// `table" SET "name"=? REMOVE "name" WHERE "task_id"=? AND "revision"=? AND "submitted_at"=?`
fn update(text: &str, values: &mut impl Iterator<Item = PlainAttribute>) -> Option<PlainPut> {
    let (table, clauses) = text.strip_suffix(WHERE)?.split_once('"')?;
    let (mut item, mut removed, mut rest) = (PlainItem::new(), Vec::new(), clauses);
    while !rest.is_empty() {
        if let Some(set) = rest.strip_prefix(" SET \"") {
            let (set, after) = set.split_once("\"=?")?;
            let set = name(set)?;
            // A repeated clause, or one that contradicts another, is not supported.
            if removed.contains(&set) || item.insert(set, values.next()?).is_some() {
                return None;
            }
            rest = after;
        } else {
            let (name_to_remove, after) = rest.strip_prefix(" REMOVE \"")?.split_once('"')?;
            let name_to_remove = name(name_to_remove)?;
            let is_known = item.contains_key(&name_to_remove) || removed.contains(&name_to_remove);
            if is_known || name_to_remove == "task_id" {
                return None;
            }
            removed.push(name_to_remove);
            rest = after;
        }
    }
    // The key must not be set.
    if item.is_empty() || item.insert("task_id".to_owned(), values.next()?).is_some() {
        return None;
    }
    let before =
        [(":before".to_owned(), values.next()?), (":submitted_at".to_owned(), values.next()?)];
    Some(PlainPut {
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

/// A name without characters that need escaping, from between quotes of either kind.
fn name(text: &str) -> Option<String> {
    let is_supported = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    (is_supported && !text.is_empty()).then(|| text.to_owned())
}
