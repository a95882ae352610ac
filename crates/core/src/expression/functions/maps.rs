//! Maps. The maps of the interpreter have a random order, so keys and values are in the order of the keys.

use std::collections::{HashMap, HashSet};

use cel::common::{
    types::{CelList, CelMap, CelMapKey},
    value::{CowVal, Val},
};

use super::arguments::{Evaluated, arguments, list, map, unexpected};

/// The entries of a map in the order of their keys.
pub(super) fn entries<'a, 'v>(map: &'a CelMap<'v>) -> Vec<(&'a CelMapKey<'v>, &'a (dyn Val + 'v))> {
    let mut entries: Vec<_> =
        map.inner().iter().map(|(key, value)| (key, value.as_ref())).collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}

pub(super) fn keys_of<'b, 'v>(map: &CelMap<'v>) -> CowVal<'b, 'v> {
    let keys = entries(map).into_iter().map(|(key, _)| key.inner().clone_as_boxed());
    CowVal::owned(CelList::from(keys.collect::<Vec<_>>()))
}

pub(super) fn keys<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    Ok(keys_of(map(&of)?))
}

pub(super) fn values<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    let values = entries(map(&of)?).into_iter().map(|(_, value)| value.clone_as_boxed());
    Ok(CowVal::owned(CelList::from(values.collect::<Vec<_>>())))
}

pub(super) fn merge<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [base, over] = arguments(values)?;
    let mut merged = map(&base)?.inner().clone();
    merged.extend(map(&over)?.inner().clone());
    Ok(CowVal::owned(CelMap::from(merged)))
}

pub(super) fn pick<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    select(values, |map, keys| {
        let keys: HashSet<_> = keys.into_iter().collect();
        let picked = map.iter().filter(|(key, _)| keys.contains(*key));
        picked.map(|(key, value)| (key.clone(), value.clone())).collect()
    })
}

pub(super) fn omit<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    select(values, |map, keys| {
        let mut rest = map.clone();
        for key in keys {
            rest.remove(&key);
        }
        rest
    })
}

type Entries<'v> = HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>;

/// The entries that `select` takes of a map by a list of keys.
fn select<'b, 'v>(
    values: Vec<CowVal<'b, 'v>>,
    select: impl Fn(&Entries<'v>, Vec<CelMapKey<'v>>) -> Entries<'v>,
) -> Evaluated<'b, 'v> {
    let [of, keys] = arguments(values)?;
    let keys = list(&keys)?.inner().iter().map(|key| {
        CelMapKey::try_from(CowVal::Owned(key.clone()))
            .map_err(|_| unexpected(key.as_ref(), "string"))
    });
    Ok(CowVal::owned(CelMap::from(select(map(&of)?.inner(), keys.collect::<Result<_, _>>()?))))
}
