//! The functions of expressions, in one table. From a row come the check of a call in a definition, the declaration of an
//! own function, the kinds of the operands for the forecast, and the upper bounds of the cost estimate.
//!
//! CEL's functions and the extensions of the `cel` crate have their own names. Functions that depend on how a number is
//! spelled, or whose results have no useful limit, are replaced by own ones of the same name.
//!
//! | module | functions |
//! | --- | --- |
//! | `arguments` | reading of arguments, and refusals |
//! | `decimals` | exact arithmetic for money |
//! | `encodings` | JSON, Base64, hashes |
//! | `lists` | lists |
//! | `maps` | maps |
//! | `math` | rounding of numbers |
//! | `texts` | texts |
//! | `times` | times and durations |

mod arguments;
mod bounds;
mod decimals;
mod encodings;
mod lists;
mod maps;
mod math;
mod texts;
mod times;

#[cfg(test)]
mod tests;

use std::{collections::HashMap, iter, sync::LazyLock};

use cel::{
    Env, ExecutionError,
    common::{
        ast::{CallExpr, Expr, operators},
        functions::Function as Implementation,
        types::DYN_TYPE,
    },
    extensions,
};

pub(super) use self::bounds::Operands;
use self::{
    Form::{Either, Global, Member},
    Operand::{ListOf, Of, TimeInNext},
    arguments::REFUSED,
    bounds::{Bound, Extra},
};
use super::{
    numbers::ORDERED,
    value_kind::ValueKind::{self, Any, Decimal, Json, List, Number, Text, Time},
};
use crate::hint;

/// How a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `size(a)`, or with a namespace `decimal.add(a, b)`.
    Global,
    /// `a.trim()`. The first operand is the value before the dot.
    Member,
    /// Both.
    Either,
}

/// What an operand must be.
pub(super) enum Operand {
    /// A value of this kind.
    Of(ValueKind),
    /// A list of values of this kind.
    ListOf(ValueKind),
    /// A text with a time, in the format that is the operand after it.
    TimeInNext,
}

/// A function that expressions can call.
pub(super) struct Function {
    name: &'static str,
    form: Form,
    /// The least and the most operands. The value before the dot of a member function is one.
    count: (usize, usize),
    /// What each operand must be. The last one is also for those that follow.
    operands: &'static [Operand],
    /// The bound of the result. A call takes the steps to read its operands, and to write its result.
    pub(super) result: Bound,
    /// Further steps.
    pub(super) extra: Extra,
    /// The implementation, if it is an own one.
    own: Option<Implementation>,
}

const fn of_cel(
    name: &'static str,
    form: Form,
    count: (usize, usize),
    operands: &'static [Operand],
    result: Bound,
) -> Function {
    Function { name, form, count, operands, result, extra: bounds::nothing, own: None }
}

const fn own(
    name: &'static str,
    form: Form,
    count: (usize, usize),
    operands: &'static [Operand],
    result: Bound,
    implementation: Implementation,
) -> Function {
    Function { own: Some(implementation), ..of_cel(name, form, count, operands, result) }
}

impl Function {
    const fn with(self, extra: Extra) -> Self {
        Self { extra, ..self }
    }
}

const NUMBERS: &[Operand] = &[Of(Number)];
const DECIMALS: &[Operand] = &[Of(Decimal)];
const TEXTS: &[Operand] = &[Of(Text)];
const TEXT_THEN_NUMBERS: &[Operand] = &[Of(Text), Of(Number)];
const TEXTS_THEN_NUMBER: &[Operand] = &[Of(Text), Of(Text), Of(Number)];
const PAD: &[Operand] = &[Of(Text), Of(Number), Of(Text)];
const LISTS: &[Operand] = &[Of(List)];
const LIST_THEN_NUMBERS: &[Operand] = &[Of(List), Of(Number)];
const ANY: &[Operand] = &[Of(Any)];
const ANY_AND_LIST: &[Operand] = &[Of(Any), ListOf(Text)];
const TIMES: &[Operand] = &[Of(Time)];
const TIME_THEN_TEXTS: &[Operand] = &[Of(Time), Of(Text)];
const TIME_AND_DURATION: &[Operand] = &[Of(Time), Of(ValueKind::DurationOrTime)];

/// What the macro `sortBy` becomes. No expression can name it.
const SORT_BY: &str = "@sortByAssociatedKeys";

const FUNCTIONS: &[Function] = &[
    // CEL.
    of_cel("size", Either, (1, 1), ANY, bounds::count),
    of_cel("contains", Member, (2, 2), TEXTS, bounds::scalar),
    of_cel("startsWith", Member, (2, 2), TEXTS, bounds::scalar),
    of_cel("endsWith", Member, (2, 2), TEXTS, bounds::scalar),
    of_cel("matches", Either, (2, 2), TEXTS, bounds::scalar).with(bounds::pattern),
    of_cel("int", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("uint", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("double", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("bool", Global, (1, 1), ANY, bounds::scalar),
    of_cel("string", Global, (1, 1), ANY, bounds::total),
    of_cel("bytes", Global, (1, 1), ANY, bounds::total),
    of_cel("dyn", Global, (1, 1), ANY, bounds::total),
    of_cel("type", Global, (1, 1), ANY, bounds::total),
    of_cel("optional.none", Global, (0, 0), ANY, bounds::total),
    of_cel("optional.of", Global, (1, 1), ANY, bounds::total),
    of_cel("optional.ofNonZeroValue", Global, (1, 1), ANY, bounds::total),
    of_cel("value", Member, (1, 1), ANY, bounds::total),
    of_cel("hasValue", Member, (1, 1), ANY, bounds::total),
    of_cel("or", Member, (2, 2), ANY, bounds::total),
    of_cel("orValue", Member, (2, 2), ANY, bounds::total),
    // Texts.
    of_cel("charAt", Member, (2, 2), TEXT_THEN_NUMBERS, bounds::like_first),
    of_cel("indexOf", Member, (2, 3), TEXTS_THEN_NUMBER, bounds::scalar).with(bounds::search),
    of_cel("lastIndexOf", Member, (2, 3), TEXTS_THEN_NUMBER, bounds::scalar).with(bounds::search),
    of_cel("join", Member, (1, 2), &[ListOf(Text), Of(Text)], bounds::joined),
    of_cel("lowerAscii", Member, (1, 1), TEXTS, bounds::like_first),
    of_cel("upperAscii", Member, (1, 1), TEXTS, bounds::like_first),
    of_cel("trim", Member, (1, 1), TEXTS, bounds::like_first),
    of_cel("split", Member, (2, 3), TEXTS_THEN_NUMBER, bounds::split),
    of_cel("substring", Member, (2, 3), TEXT_THEN_NUMBERS, bounds::like_first),
    of_cel("format", Member, (2, 2), &[Of(Text), Of(List)], bounds::formatted).with(bounds::format),
    of_cel("strings.quote", Global, (1, 1), TEXTS, bounds::encoded),
    of_cel("reverse", Member, (1, 1), ANY, bounds::like_first),
    own(
        "replace",
        Member,
        (3, 4),
        &[Of(Text), Of(Text), Of(Text), Of(Number)],
        bounds::replaced,
        texts::replace,
    ),
    own("padStart", Member, (2, 3), PAD, bounds::padded, texts::pad_start),
    own("padEnd", Member, (2, 3), PAD, bounds::padded, texts::pad_end),
    // Lists.
    of_cel("slice", Member, (3, 3), LIST_THEN_NUMBERS, bounds::like_first),
    of_cel("flatten", Member, (1, 2), LIST_THEN_NUMBERS, bounds::flattened),
    of_cel("distinct", Member, (1, 1), LISTS, bounds::like_first).with(bounds::each_pair),
    own("sort", Member, (1, 1), LISTS, bounds::like_first, lists::sort).with(bounds::sort),
    own(SORT_BY, Member, (2, 2), LISTS, bounds::like_first, lists::sort_by).with(bounds::sort),
    own("lists.range", Global, (1, 1), NUMBERS, bounds::range, lists::range),
    own(ORDERED, Global, (1, 1), LISTS, bounds::like_first, lists::ordered),
    // Maps.
    own("maps.keys", Global, (1, 1), ANY, bounds::listed, maps::keys),
    own("maps.values", Global, (1, 1), ANY, bounds::listed, maps::values),
    own("maps.merge", Global, (2, 2), ANY, bounds::merged, maps::merge),
    own("maps.pick", Global, (2, 2), ANY_AND_LIST, bounds::like_first, maps::pick),
    own("maps.omit", Global, (2, 2), ANY_AND_LIST, bounds::like_first, maps::omit),
    // Numbers.
    own("math.ceil", Global, (1, 1), NUMBERS, bounds::scalar, math::ceil),
    own("math.floor", Global, (1, 1), NUMBERS, bounds::scalar, math::floor),
    own("math.round", Global, (1, 1), NUMBERS, bounds::scalar, math::round),
    own("math.trunc", Global, (1, 1), NUMBERS, bounds::scalar, math::trunc),
    of_cel("math.isInf", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.isNaN", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.isFinite", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.abs", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.sign", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.sqrt", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.bitAnd", Global, (2, 2), NUMBERS, bounds::scalar),
    of_cel("math.bitOr", Global, (2, 2), NUMBERS, bounds::scalar),
    of_cel("math.bitXor", Global, (2, 2), NUMBERS, bounds::scalar),
    of_cel("math.bitNot", Global, (1, 1), NUMBERS, bounds::scalar),
    of_cel("math.bitShiftLeft", Global, (2, 2), NUMBERS, bounds::scalar),
    of_cel("math.bitShiftRight", Global, (2, 2), NUMBERS, bounds::scalar),
    // What the macros `math.greatest` and `math.least` become.
    of_cel("math.@max", Global, (1, 2), NUMBERS, bounds::scalar),
    of_cel("math.@min", Global, (1, 2), NUMBERS, bounds::scalar),
    // Decimals.
    own("decimal.add", Global, (2, 2), DECIMALS, bounds::short, decimals::add)
        .with(bounds::decimals),
    own("decimal.subtract", Global, (2, 2), DECIMALS, bounds::short, decimals::subtract)
        .with(bounds::decimals),
    own("decimal.multiply", Global, (2, 2), DECIMALS, bounds::short, decimals::multiply)
        .with(bounds::decimals),
    own("decimal.sum", Global, (1, 1), &[ListOf(Decimal)], bounds::short, decimals::sum)
        .with(bounds::decimals),
    own("decimal.compare", Global, (2, 2), DECIMALS, bounds::scalar, decimals::compare)
        .with(bounds::decimals),
    own(
        "decimal.round",
        Global,
        (3, 3),
        &[Of(Decimal), Of(Number), Of(Any)],
        bounds::short,
        decimals::round,
    )
    .with(bounds::decimals),
    // Encodings.
    own("json.encode", Global, (1, 1), ANY, bounds::encoded, encodings::json_encode),
    own("json.decode", Global, (1, 1), &[Of(Json)], bounds::decoded, encodings::json_decode),
    own("base64.encode", Global, (1, 1), TEXTS, bounds::encoded, encodings::base64_encode),
    of_cel("base64.decode", Global, (1, 1), TEXTS, bounds::total),
    own("hash.sha256", Global, (1, 1), TEXTS, bounds::short, encodings::sha256)
        .with(bounds::time_or_hash),
    own("hash.uuid", Global, (1, 1), TEXTS, bounds::short, encodings::uuid)
        .with(bounds::time_or_hash),
    // Times.
    own("time.parse", Global, (3, 3), &[TimeInNext, Of(Text)], bounds::short, times::parse)
        .with(bounds::time_or_hash),
    own("time.format", Global, (3, 3), TIME_THEN_TEXTS, bounds::time_text, times::format)
        .with(bounds::time_or_hash),
    own("time.add", Global, (2, 2), TIME_AND_DURATION, bounds::short, times::add)
        .with(bounds::time_or_hash),
    own("time.compare", Global, (2, 2), TIMES, bounds::scalar, times::compare)
        .with(bounds::time_or_hash),
];

/// The operators. Any other call is one of a function.
const OPERATORS: [&str; 21] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::OPT_INDEX,
    operators::OPT_SELECT,
    operators::NOT_STRICTLY_FALSE,
    operators::IN,
];

/// The macros, and an example of each. The parser replaces a valid call of one.
const MACROS: [(&str, &str); 11] = [
    ("all", "list.all(x, x > 1)"),
    ("exists", "list.exists(x, x > 1)"),
    ("exists_one", "list.exists_one(x, x > 1)"),
    ("existsOne", "list.existsOne(x, x > 1)"),
    ("filter", "list.filter(x, x > 1)"),
    ("map", "list.map(x, x + 1)"),
    ("sortBy", "list.sortBy(x, x.id)"),
    ("has", "has(input.id)"),
    ("math.greatest", "math.greatest(1, 2)"),
    ("math.least", "math.least(1, 2)"),
    ("optMap", "a.?b.optMap(x, x + 1)"),
];

static BY_NAME: LazyLock<HashMap<&str, &Function>> =
    LazyLock::new(|| FUNCTIONS.iter().map(|function| (function.name, function)).collect());

/// Adds all functions to the environment of expressions. The interpreter takes the first declaration that fits, so own
/// functions come before those of the extensions.
pub(super) fn declare(environment: &mut Env) {
    for function in FUNCTIONS {
        let Some(own) = function.own else { continue };
        for count in function.count.0..=function.count.1 {
            let (name, id) = (function.name, format!("{}/{count}", function.name));
            let types: Vec<_> = iter::repeat_with(|| DYN_TYPE).take(count).collect();
            let added = match function.form {
                Global | Either => environment.add_overload(name, &id, types, own),
                Member => {
                    let arguments = types.into_iter().skip(1).collect();
                    environment.add_member_overload(name, &id, DYN_TYPE, arguments, own)
                }
            };
            debug_assert!(added.is_ok(), "{added:?}");
        }
    }
    let extensions =
        [extensions::strings, extensions::lists, extensions::math, extensions::encoders];
    for extension in extensions {
        let added = environment.add_extension(extension);
        debug_assert!(added.is_ok(), "{added:?}");
    }
}

/// The number of arguments in parentheses before those that are positions in a text or a list.
pub(super) fn first_position(call: &CallExpr) -> usize {
    let function = called(call).filter(|function| function.form == Member);
    let mut operands = function.map_or(&[][..], |function| function.operands).iter();
    let position = operands.position(|operand| matches!(operand, Of(Number)));
    position.map_or(usize::MAX, |position| position.saturating_sub(1))
}

/// The function that a call names. An operator is none.
pub(super) fn called(call: &CallExpr) -> Option<&'static Function> {
    let by_name = |name: &str| BY_NAME.get(name).copied();
    qualified_name(call).and_then(|name| by_name(&name)).or_else(|| by_name(&call.func_name))
}

/// The name before the dot, if it is one.
fn target_name(call: &CallExpr) -> Option<&str> {
    let Expr::Ident(name) = &call.target.as_ref()?.expr else { return None };
    Some(name)
}

/// `decimal.add` of `decimal.add(a, b)`, and `text.trim` of `text.trim()`.
fn qualified_name(call: &CallExpr) -> Option<String> {
    target_name(call).map(|target| format!("{target}.{}", call.func_name))
}

/// Whether the name before the dot is a part of the function's name. The interpreter prefers this to a variable.
pub(super) fn is_namespaced(call: &CallExpr) -> bool {
    qualified_name(call).is_some_and(|name| BY_NAME.contains_key(name.as_str()))
}

/// A call that no values can make valid.
pub(super) enum InvalidCall {
    /// There is no function of this name.
    Unknown(String),
    /// Why this call of a function is not valid.
    Form(String),
}

/// Checks the name of a function, and how it is called. `is_value` tells whether a name is that of a value.
pub(super) fn check(call: &CallExpr, is_value: impl Fn(&str) -> bool) -> Result<(), InvalidCall> {
    // What a macro becomes has names that no expression can have.
    if OPERATORS.contains(&call.func_name.as_str()) || call.func_name.contains('@') {
        return Ok(());
    }
    let is_member = call.target.is_some() && !is_namespaced(call);
    let is_of_value =
        is_member && (called(call).is_some() || target_name(call).is_some_and(is_value));
    let name = qualified_name(call).filter(|_| !is_of_value);
    let name = name.unwrap_or_else(|| call.func_name.clone());
    if let Some((_, example)) = MACROS.iter().find(|(known, _)| *known == name) {
        return Err(InvalidCall::Form(format!("`{name}` is called as in `{example}`")));
    }
    let Some(function) = BY_NAME.get(name.as_str()) else { return Err(InvalidCall::Unknown(name)) };
    match function.form {
        Global if is_member => {
            return Err(InvalidCall::Form(format!("`{name}` is called as in `{name}(a)`")));
        }
        Member if !is_member => {
            return Err(InvalidCall::Form(format!("`{name}` is called as in `a.{name}(…)`")));
        }
        Global | Member | Either => {}
    }
    let before_dot = usize::from(is_member);
    let (least, most) = (function.count.0 - before_dot, function.count.1 - before_dot);
    if (least..=most).contains(&call.args.len()) {
        return Ok(());
    }
    let expected = match (least, most) {
        (1, 1) => "1 argument".to_owned(),
        (least, most) if least == most => format!("{least} arguments"),
        (least, most) => format!("{least} or {most} arguments"),
    };
    Err(InvalidCall::Form(format!("`{name}` takes {expected}")))
}

/// A hint for the name of an unknown function: a similar one, or those of the same namespace.
pub(super) fn hint(name: &str) -> Option<String> {
    let names = BY_NAME.keys().copied().chain(MACROS.iter().map(|(name, _)| *name));
    let names = names.filter(|name| !name.contains('@'));
    if let Some(meant) = hint::closest_match(name, names.clone()) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let namespace = name.split_once('.')?.0;
    let within = |known: &&str| known.split_once('.').is_some_and(|(of, _)| of == namespace);
    let mut siblings: Vec<_> = names.filter(within).collect();
    siblings.sort_unstable();
    hint::suggestion(name, siblings)
}

impl Function {
    /// What each of the operands of a call must be.
    pub(super) fn operands(&self) -> impl Iterator<Item = &'static Operand> {
        let last = self.operands.last();
        self.operands.iter().chain(iter::repeat_with(move || last).flatten())
    }
}

/// The reason in an error of a function, if it is one. It contains no value.
pub(super) fn reason(error: &ExecutionError) -> Option<String> {
    let ExecutionError::FunctionError { function, message } = error else { return None };
    // The messages of CEL's own functions contain values.
    let of_cel = || {
        BY_NAME
            .get(function.as_str())
            .map(|of| format!("`{}` does not accept these arguments", of.name))
    };
    if function == REFUSED { Some(message.clone()) } else { of_cel() }
}
