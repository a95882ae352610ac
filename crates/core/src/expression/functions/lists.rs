//! Lists. CEL's `sort` depends on how a number is spelled: `[12, 12.5].sort()` would fail, while `[12.0, 12.5].sort()`
//! works.

use std::cmp::Ordering;

use cel::common::{
    types::{CelInt, CelList, CelMap},
    value::{CowVal, Val},
};

use super::{
    arguments::{Evaluated, arguments, list, refuse, whole},
    maps,
};
use crate::{expression::numbers::Number, limits};

const NO_ORDER: &str =
    "`sort` and `sortBy` compare texts, or numbers, or true and false, but not a mixture";
const TOO_MANY: &str = "`lists.range` makes 0 to 10000 numbers";

/// The items of a list, or the keys of a map in their order.
pub(super) fn ordered<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    let keys = of.downcast_ref::<CelMap<'v>>().map(maps::keys_of);
    Ok(keys.unwrap_or(of))
}

pub(super) fn sort<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    let items = list(&of)?.inner();
    sorted(items.iter().map(|item| (item.as_ref(), item.as_ref())).collect())
}

/// `list.sortBy(x, key)`, with the list of all keys.
pub(super) fn sort_by<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of, keys] = arguments(values)?;
    let (keys, items) = (list(&keys)?.inner().iter(), list(&of)?.inner().iter());
    sorted(keys.zip(items).map(|(key, item)| (key.as_ref(), item.as_ref())).collect())
}

/// The values in the order of their keys. Those with equal keys keep their order.
fn sorted<'b, 'v>(mut keyed: Vec<(&(dyn Val + 'v), &(dyn Val + 'v))>) -> Evaluated<'b, 'v> {
    // A comparison that is no total order may panic, so each key is compared with the first one before.
    let first = keyed.first().map(|(key, _)| *key);
    let is_comparable = |key| first.is_some_and(|first| compare(first, key).is_some());
    if !keyed.iter().all(|(key, _)| is_comparable(*key)) {
        return Err(refuse(NO_ORDER));
    }
    keyed.sort_by(|(a, _), (b, _)| compare(*a, *b).unwrap_or(Ordering::Equal));
    let values = keyed.into_iter().map(|(_, value)| value.clone_as_boxed());
    Ok(CowVal::owned(CelList::from(values.collect::<Vec<_>>())))
}

fn compare(a: &dyn Val, b: &dyn Val) -> Option<Ordering> {
    match (Number::of(a), Number::of(b)) {
        (Some(a), Some(b)) => a.compare(b),
        (None, None) if a.get_type().kind() == b.get_type().kind() => {
            a.as_comparer()?.compare(b).ok()
        }
        _ => None,
    }
}

pub(super) fn range<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [end] = arguments(values)?;
    let end = whole(&end)?;
    if u64::try_from(end).map_or(true, |end| end > limits::RANGE_ITEMS_MAX) {
        return Err(refuse(TOO_MANY));
    }
    let numbers = (0..end).map(|number| Box::new(CelInt::from(number)) as Box<dyn Val + 'v>);
    Ok(CowVal::owned(CelList::from(numbers.collect::<Vec<_>>())))
}
