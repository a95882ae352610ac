//! Templates: JSON in which a text may hold `${ expression }`, an expression of CEL (<https://cel.dev>).

mod bound;
pub mod compiled;
mod documents;
pub mod scope;
pub mod template;
pub mod uses;

#[cfg(test)]
mod tests;
