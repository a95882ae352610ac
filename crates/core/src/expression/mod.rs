//! Templates: JSON whose texts may contain `${ expression }`, with expressions in CEL (<https://cel.dev>).
//!
//! | module | contents |
//! | --- | --- |
//! | [`template`] | templates: parsing and rendering |
//! | [`scope`] | the values that expressions can read, and errors |
//! | [`uses`] | which values an expression reads, and of which kinds |
//! | `parse` | the syntax of one expression, with its limits |
//! | `compiled` | one expression: what it reads, and its evaluation |
//! | [`named_values`] | the values that a definition names |
//! | `inputs` | the part of the scope that one expression reads |
//! | `numbers` | arithmetic that does not depend on how a number is spelled |
//! | `functions` | the functions, in one table |
//! | `json` | conversion between JSON and the values of the interpreter |
//! | `cost` | an upper bound for the cost of an evaluation |
//! | `size_bound` | an upper bound for the result of a part of an expression |
//! | `value_kind` | the kinds of values that operators and functions take |
//! | `value_size` | the size of a value, as part of that cost |
//! | `walk` | the parts of an expression |

mod compiled;
mod cost;
mod functions;
mod inputs;
mod json;
pub mod named_values;
mod numbers;
mod parse;
pub mod scope;
mod size_bound;
pub mod template;
pub mod uses;
mod value_kind;
mod value_size;
mod walk;

#[cfg(test)]
mod tests;
