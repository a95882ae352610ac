//! Upper bounds for the results of functions, and for the steps that a call takes besides reading its operands and writing
//! its result. A result whose size depends on the value of a number has a limit of its own, which its function enforces.

use super::super::{
    size_bound::SizeBound,
    value_size::{STEP_BYTES, text_size},
};
use crate::limits;

/// The bound of a result.
pub(in super::super) type Bound = fn(&Operands<'_, '_>) -> SizeBound<'static>;

/// Steps of a call.
pub(in super::super) type Extra = fn(&Operands<'_, '_>) -> u64;

/// Characters of a number as text: `1e308` without an exponent, and a hundred decimal places.
const NUMBER_STEPS: u64 = 450 / STEP_BYTES;

/// Steps to compile a pattern of the maximum size, and to start the search.
const MATCH_STEPS: u64 = 4_000;

/// Steps to read a decimal of the most characters, and to calculate with it.
const DECIMAL_STEPS: u64 = 20;

/// Steps to write a decimal of the most digits.
const FORMAT_STEPS: u64 = 150;

/// Steps to read a time and to find a time zone, or to write a hash.
const TIME_OR_HASH_STEPS: u64 = 100;

/// The bounds of the operands of a call.
pub(in super::super) struct Operands<'a, 'v>(pub(in super::super) &'a [SizeBound<'v>]);

impl<'v> Operands<'_, 'v> {
    fn get(&self, index: usize) -> SizeBound<'v> {
        self.0.get(index).cloned().unwrap_or_default()
    }

    fn size(&self, index: usize) -> u64 {
        self.get(index).size()
    }

    /// The most bytes of a text.
    fn bytes(&self, index: usize) -> u64 {
        self.size(index).saturating_mul(STEP_BYTES)
    }

    pub(in super::super) fn total(&self) -> u64 {
        self.0.iter().map(SizeBound::size).fold(0, u64::saturating_add)
    }

    fn items(&self) -> u64 {
        self.0.iter().map(SizeBound::items).fold(0, u64::saturating_add)
    }
}

pub(super) fn scalar(_: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::Scalar
}

/// The number of characters, items or entries.
pub(super) fn count(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::Whole(of.get(0).count())
}

/// A part of the first operand, or its items in another order.
pub(super) fn like_first(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let first = of.get(0);
    SizeBound::Computed { size: first.size(), items: first.items(), item: first.item_size() }
}

/// The keys or values of a map.
pub(super) fn listed(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let map = of.get(0);
    let item = map.iteration_variable().size();
    SizeBound::Computed { size: map.size(), items: map.items(), item }
}

/// All operands together.
pub(super) fn total(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.total().saturating_add(NUMBER_STEPS))
}

/// A text of at most 128 bytes.
pub(super) fn short(_: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(text_size(128))
}

pub(super) fn joined(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let separators = of.get(0).items().saturating_mul(of.size(1));
    SizeBound::of_size(of.size(0).saturating_add(separators))
}

/// Each byte may be an item.
pub(super) fn split(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let items = of.bytes(0).saturating_add(1);
    SizeBound::Computed { size: items.saturating_add(of.size(0)), items, item: of.size(0) }
}

/// Each value may become a long number, and each byte two hexadecimal digits.
pub(super) fn formatted(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.size(0).saturating_add(of.size(1).saturating_mul(NUMBER_STEPS + 2)))
}

pub(super) fn replaced(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let inserted = of.bytes(0).saturating_add(1).saturating_mul(of.size(2));
    let most = text_size(limits::RENDERED_BYTES_MAX);
    SizeBound::of_size(of.size(0).saturating_add(inserted).min(most))
}

pub(super) fn padded(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.size(0).saturating_add(text_size(limits::PADDED_CHARS_MAX * 4)))
}

pub(super) fn flattened(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.size(0))
}

pub(super) fn range(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let items = of.get(0).number().min(limits::RANGE_ITEMS_MAX);
    SizeBound::Computed { size: items.saturating_add(1), items, item: 1 }
}

pub(super) fn merged(of: &Operands<'_, '_>) -> SizeBound<'static> {
    let item = of.get(0).item_size().max(of.get(1).item_size());
    SizeBound::Computed { size: of.total(), items: of.items(), item }
}

/// A control character has six characters as JSON.
pub(super) fn encoded(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.total().saturating_mul(7))
}

/// A value of JSON takes more memory than its text.
pub(super) fn decoded(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.bytes(0).min(limits::JSON_TEXT_BYTES_MAX as u64))
}

/// A directive such as `%255d` has up to 64 times its length.
pub(super) fn time_text(of: &Operands<'_, '_>) -> SizeBound<'static> {
    SizeBound::of_size(of.size(1).saturating_mul(64))
}

pub(super) fn nothing(_: &Operands<'_, '_>) -> u64 {
    0
}

pub(super) fn pattern(_: &Operands<'_, '_>) -> u64 {
    MATCH_STEPS
}

/// CEL compares the searched text at each character.
pub(super) fn search(of: &Operands<'_, '_>) -> u64 {
    of.bytes(0).saturating_mul(of.size(1))
}

/// `%.100f` writes all digits of `1e308`.
pub(super) fn format(of: &Operands<'_, '_>) -> u64 {
    FORMAT_STEPS.saturating_mul(of.get(1).items())
}

pub(super) fn sort(of: &Operands<'_, '_>) -> u64 {
    let items = of.get(0).items();
    let key = of.0.last().map_or(1, SizeBound::item_size);
    items.saturating_mul(u64::from(items.max(1).ilog2()) + 1).saturating_mul(key)
}

/// CEL compares each item with each one before it. A comparison takes a quarter of a step.
pub(super) fn each_pair(of: &Operands<'_, '_>) -> u64 {
    of.get(0).items().saturating_mul(of.size(0)) / 8
}

pub(super) fn decimals(of: &Operands<'_, '_>) -> u64 {
    DECIMAL_STEPS.saturating_mul(of.items().saturating_add(2))
}

pub(super) fn time_or_hash(_: &Operands<'_, '_>) -> u64 {
    TIME_OR_HASH_STEPS
}
