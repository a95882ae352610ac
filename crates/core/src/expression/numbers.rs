//! Arithmetic that does not depend on how a number is spelled. JSON has one kind of number, and CEL has three, which it does not
//! mix: `amount * 1.2` would work for 12.5 and fail for 12, and `amount / 5` would drop the rest of 12 and not that of 12.0.
//!
//! | operands of `+`, `-`, `*`, `/` | result |
//! | --- | --- |
//! | two whole numbers | whole; a `/` that leaves a rest fails, and an overflow of 64 bits too |
//! | two numbers without a fraction, of `%` | whole, however they are spelled |
//! | a whole number and a decimal, or two decimals | decimal; a `/` by zero fails |
//! | other values, such as lists or texts | as in CEL |
//!
//! The operators of a parsed expression are replaced by calls of these functions. A position in a text or a list may be spelled as
//! a decimal, too: 12.0.

use std::cmp::Ordering;

use cel::{
    Env, ExecutionError, IdedExpr, Value,
    common::{
        ast::{CallExpr, Expr, LiteralValue, operators},
        functions::Function,
        types::{CelDouble, CelInt, CelUInt, DYN_TYPE},
        value::{CowVal, Val},
    },
};

use crate::expression::walk::for_each_part;

/// The operators, and the functions in their place. No expression can name these functions.
const FUNCTIONS: [(&str, &str, Function); 5] = [
    (operators::ADD, "@add", add),
    (operators::SUBSTRACT, "@subtract", subtract),
    (operators::MULTIPLY, "@multiply", multiply),
    (operators::DIVIDE, DIVIDE, divide),
    (operators::MODULO, "@modulo", modulo),
];

const DIVIDE: &str = "@divide";

/// A number without a fraction as a whole one, and other values as they are. No expression can name it.
const WHOLE: &str = "@whole";

/// What a macro iterates over: the items of a list, or the keys of a map in their order. No expression can name it.
pub(super) const ORDERED: &str = "@ordered";

/// Adds the arithmetic to the environment of expressions.
pub(super) fn declare(environment: &mut Env) {
    for (_, name, function) in FUNCTIONS {
        let added = environment.add_overload(name, name, vec![DYN_TYPE, DYN_TYPE], function);
        debug_assert!(added.is_ok(), "{added:?}");
    }
    let added = environment.add_overload(WHOLE, WHOLE, vec![DYN_TYPE], without_fraction);
    debug_assert!(added.is_ok(), "{added:?}");
}

/// The expression with this arithmetic in place of CEL's, and macros that go over the keys of a map in their order.
pub(super) fn with_arithmetic(expression: &IdedExpr, first_position: FirstPosition) -> IdedExpr {
    let mut expression = expression.clone();
    replace(&mut expression, first_position);
    expression
}

/// The number of arguments of a call before those that are positions in a text or a list.
type FirstPosition = fn(&CallExpr) -> usize;

fn replace(node: &mut IdedExpr, first_position: FirstPosition) {
    if let Expr::Call(call) = &mut node.expr {
        // The interpreter recognises how macros such as `map` collect their result, and does not copy it.
        let collects = call.args.first().is_some_and(|first| is_accumulator(&first.expr));
        let function = FUNCTIONS.iter().find(|(operator, ..)| call.func_name == *operator);
        if let Some((_, name, _)) = function.filter(|_| !collects && call.args.len() == 2) {
            call.func_name = (*name).to_owned();
        }
        let first = match &call.func_name[..] {
            operators::INDEX | operators::OPT_INDEX => 1,
            _ => first_position(call),
        };
        let positions = call.args.iter_mut().skip(first);
        positions.filter(|of| may_be_decimal(&of.expr)).for_each(|of| wrap(of, WHOLE));
    }
    if let Expr::Comprehension(comprehension) = &mut node.expr {
        wrap(&mut comprehension.iter_range, ORDERED);
    }
    for_each_part(&mut node.expr, &mut |part| replace(part, first_position));
}

/// Replaces an expression by a call of a function with it.
fn wrap(node: &mut IdedExpr, function: &str) {
    let id = node.id;
    let args = vec![std::mem::take(node)];
    let call = CallExpr { func_name: function.to_owned(), target: None, args };
    *node = IdedExpr { id, expr: Expr::Call(call) };
}

fn may_be_decimal(expression: &Expr) -> bool {
    !matches!(expression, Expr::Literal(value) if !matches!(value, LiteralValue::Double(_)))
}

/// Whether this is the variable in which a macro collects its result. No expression can name it.
fn is_accumulator(expression: &Expr) -> bool {
    matches!(expression, Expr::Ident(name) if name.starts_with('@'))
}

/// A number of either spelling.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Whole(i128),
    Decimal(f64),
}

impl Number {
    pub(super) fn of(value: &dyn Val) -> Option<Self> {
        let int = || value.downcast_ref::<CelInt>().map(|int| i128::from(*int.inner()));
        let uint = || value.downcast_ref::<CelUInt>().map(|uint| i128::from(*uint.inner()));
        let double = || value.downcast_ref::<CelDouble>().map(|double| *double.inner());
        let whole = int().or_else(uint).map(Self::Whole);
        whole.or_else(|| double().map(Self::Decimal))
    }

    #[expect(clippy::cast_precision_loss, reason = "the nearest decimal, as JSON readers do")]
    pub(super) fn decimal(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Decimal(decimal) => decimal,
        }
    }

    /// The number as a whole one of 64 bits, if it is one.
    #[expect(clippy::cast_possible_truncation, reason = "no fraction, and few enough digits")]
    pub(super) fn whole(self) -> Option<i64> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self {
            Self::Whole(whole) => whole.try_into().ok(),
            Self::Decimal(decimal) => {
                let is_whole = decimal.fract() == 0.0 && decimal.abs() <= EXACT;
                is_whole.then_some(decimal as i64)
            }
        }
    }

    /// The exact order of two numbers, which is total, as sorting requires. NaN has none.
    pub(super) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => Some(left.cmp(&right)),
            (Self::Decimal(left), Self::Decimal(right)) => left.partial_cmp(&right),
            (Self::Whole(left), Self::Decimal(right)) => {
                let floor = right.floor();
                let fraction = floor.partial_cmp(&right)?;
                Some(left.cmp(&(floor as i128)).then(fraction))
            }
            (Self::Decimal(_), Self::Whole(_)) => other.compare(self).map(Ordering::reverse),
        }
    }
}

/// The two operands as numbers, if they are: whole ones, or decimals.
enum Operands {
    Whole(i128, i128),
    Decimal(f64, f64),
    Other,
}

impl Operands {
    fn of(left: &CowVal<'_, '_>, right: &CowVal<'_, '_>) -> Self {
        match (Number::of(left.as_ref()), Number::of(right.as_ref())) {
            (Some(Number::Whole(left)), Some(Number::Whole(right))) => Self::Whole(left, right),
            (Some(left), Some(right)) => Self::Decimal(left.decimal(), right.decimal()),
            (_, None) | (None, _) => Self::Other,
        }
    }
}

type Evaluated<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The two arguments. The parser gives an operator two.
fn pair<'b, 'v>(
    arguments: Vec<CowVal<'b, 'v>>,
) -> Result<(CowVal<'b, 'v>, CowVal<'b, 'v>), ExecutionError> {
    let actual = arguments.len();
    let [left, right] = <[_; 2]>::try_from(arguments)
        .map_err(|_| ExecutionError::InvalidArgumentCount { expected: 2, actual })?;
    Ok((left, right))
}

/// An error that names the types of the operands.
fn error(
    of: fn(&'static str, Value, Value) -> ExecutionError,
    operator: &'static str,
    left: &CowVal<'_, '_>,
    right: &CowVal<'_, '_>,
) -> ExecutionError {
    match (left.as_ref().try_into(), right.as_ref().try_into()) {
        (Ok(left), Ok(right)) => of(operator, left, right),
        (Err(error), _) | (_, Err(error)) => error,
    }
}

/// A whole number of 64 bits, with or without sign.
fn whole<'b, 'v>(
    number: Option<i128>,
    operator: &'static str,
    left: &CowVal<'_, '_>,
    right: &CowVal<'_, '_>,
) -> Evaluated<'b, 'v> {
    let int = number.and_then(|number| i64::try_from(number).ok());
    let uint = number.and_then(|number| u64::try_from(number).ok());
    match (int, uint) {
        (Some(int), _) => Ok(CowVal::owned(CelInt::from(int))),
        (None, Some(uint)) => Ok(CowVal::owned(CelUInt::from(uint))),
        (None, None) => Err(error(ExecutionError::Overflow, operator, left, right)),
    }
}

fn decimal<'b, 'v>(number: f64) -> Evaluated<'b, 'v> {
    Ok(CowVal::owned(CelDouble::from(number)))
}

fn add<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(arguments)?;
    match Operands::of(&left, &right) {
        Operands::Whole(l, r) => whole(l.checked_add(r), "add", &left, &right),
        Operands::Decimal(l, r) => decimal(l + r),
        Operands::Other => match left.as_adder() {
            Some(adder) => Ok(CowVal::Owned(adder.add(right.as_ref())?.into_owned())),
            None => Err(error(ExecutionError::UnsupportedBinaryOperator, "add", &left, &right)),
        },
    }
}

fn subtract<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(arguments)?;
    match Operands::of(&left, &right) {
        Operands::Whole(l, r) => whole(l.checked_sub(r), "sub", &left, &right),
        Operands::Decimal(l, r) => decimal(l - r),
        Operands::Other => match left.as_subtractor() {
            Some(subtractor) => Ok(CowVal::Owned(subtractor.sub(right.as_ref())?.into_owned())),
            None => Err(error(ExecutionError::UnsupportedBinaryOperator, "sub", &left, &right)),
        },
    }
}

fn multiply<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(arguments)?;
    match Operands::of(&left, &right) {
        Operands::Whole(l, r) => whole(l.checked_mul(r), "mul", &left, &right),
        Operands::Decimal(l, r) => decimal(l * r),
        Operands::Other => {
            Err(error(ExecutionError::UnsupportedBinaryOperator, "mul", &left, &right))
        }
    }
}

fn divide<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(arguments)?;
    match Operands::of(&left, &right) {
        Operands::Whole(_, 0) | Operands::Decimal(_, 0.0) => {
            Err(ExecutionError::DivisionByZero(left.as_ref().try_into()?))
        }
        Operands::Whole(l, r) if l.checked_rem(r) != Some(0) => {
            Err(ExecutionError::function_error(DIVIDE, LEAVES_A_REST))
        }
        Operands::Whole(l, r) => whole(l.checked_div(r), "div", &left, &right),
        Operands::Decimal(l, r) => decimal(l / r),
        Operands::Other => {
            Err(error(ExecutionError::UnsupportedBinaryOperator, "div", &left, &right))
        }
    }
}

fn without_fraction<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let actual = arguments.len();
    let [value] = <[_; 1]>::try_from(arguments)
        .map_err(|_| ExecutionError::InvalidArgumentCount { expected: 1, actual })?;
    match Number::of(value.as_ref()) {
        Some(number @ Number::Decimal(_)) => Ok(match number.whole() {
            Some(whole) => CowVal::owned(CelInt::from(whole)),
            None => value,
        }),
        Some(Number::Whole(_)) | None => Ok(value),
    }
}

fn modulo<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(arguments)?;
    // Also of numbers that are spelled as decimals, such as 12.0.
    let whole_of = |number: &CowVal<'_, '_>| match Number::of(number.as_ref())? {
        Number::Whole(whole) => Some(whole),
        decimal @ Number::Decimal(_) => decimal.whole().map(i128::from),
    };
    match (whole_of(&left), whole_of(&right)) {
        (Some(_), Some(0)) => Err(ExecutionError::RemainderByZero(left.as_ref().try_into()?)),
        (Some(l), Some(r)) => whole(l.checked_rem(r), "rem", &left, &right),
        (None, _) | (_, None) => {
            Err(error(ExecutionError::UnsupportedBinaryOperator, "rem", &left, &right))
        }
    }
}

const LEAVES_A_REST: &str = "a division of whole numbers leaves a rest: write `double(a) / b` for a decimal, or `(a - a % b) / b` \
    for the whole part";

/// The reason in an error of this arithmetic, if it is one. It contains no value.
pub(super) fn reason(error: &ExecutionError) -> Option<&'static str> {
    let ExecutionError::FunctionError { function, .. } = error else { return None };
    (function == DIVIDE).then_some(LEAVES_A_REST)
}
