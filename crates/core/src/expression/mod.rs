//! Templates: JSON whose texts may contain `${ expression }`, with expressions in CEL (<https://cel.dev>).
//!
//! | module | contents |
//! | --- | --- |
//! | [`template`] | templates: parsing and rendering |
//! | [`scope`] | the values that expressions can read, and errors |
//! | [`uses`] | which values an expression reads, and of which kinds |
//! | `compiled` | parsing and evaluation of one expression |
//! | `inputs` | the part of the scope that one expression reads |
//! | `numbers` | arithmetic that does not depend on how a number is spelled |
//! | `decimals` | exact arithmetic for money |
//! | `cost` | an upper bound for the cost of an evaluation |
//! | `value_size` | the size of a value, as part of that cost |

mod compiled;
mod cost;
mod decimals;
mod inputs;
mod numbers;
pub mod scope;
pub mod template;
pub mod uses;
mod value_size;

#[cfg(test)]
mod tests;
