//! The values that a definition names: `vars.NAME`, an expression, and `env.NAME`, a constant of the deployment.
//!
//! An expression that reads one is compiled with the named expression in its place. So what a template reads, what it costs,
//! and where it may stand follow from what it means, and a named value is as deterministic as any other expression.

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use cel::{
    IdedExpr,
    common::ast::{Expr, LiteralValue},
};
use serde_json::Value;

use super::{
    parse::{self, ENV, VARS},
    walk::for_each_part,
};
use crate::{expression::scope::InvalidTemplate, hint, limits};

/// The named values of a definition.
#[derive(Debug, Clone, Default)]
pub struct NamedValues {
    values: BTreeMap<(&'static str, String), Arc<IdedExpr>>,
    /// The parts that they put into all expressions so far.
    parts: Cell<usize>,
}

impl NamedValues {
    /// Adds the constant `env.NAME`.
    pub fn add_constant(&mut self, name: &str, value: &Value) {
        self.add(ENV, name, parse::parse_literal(&value.to_string()));
    }

    /// Adds the expression `vars.NAME`, which may read the values that were added before.
    pub fn add_expression(&mut self, name: &str, source: &str) {
        let tree = parse::with_large_stack(|| {
            parse::parse_tree(source).and_then(|tree| self.expand(tree, source))
        });
        self.add(VARS, name, tree);
    }

    /// Adds a value, or null in place of one with an error, which is reported at its own place.
    fn add(&mut self, root: &'static str, name: &str, tree: Result<IdedExpr, InvalidTemplate>) {
        let null = || IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Null) };
        self.values.insert((root, name.to_owned()), Arc::new(tree.unwrap_or_else(|_| null())));
    }

    /// Puts the named values in their places in `tree`, which was parsed from `source`.
    ///
    /// # Errors
    /// There is no such value, or the expression becomes too large.
    pub(super) fn expand(
        &self,
        mut tree: IdedExpr,
        source: &str,
    ) -> Result<IdedExpr, InvalidTemplate> {
        let mut expansion = Expansion { of: self, source, parts: 0, error: None };
        expansion.visit(&mut tree, false);
        match expansion.error {
            Some(error) => Err(error),
            None => Ok(tree),
        }
    }

    /// A hint for a name that does not exist.
    fn hint(&self, root: &str, name: &str) -> String {
        let known = self.values.keys().filter(|(of, _)| *of == root).map(|(_, name)| name.as_str());
        hint::suggestion(name, known).unwrap_or_else(|| format!("declare it in `{root}`"))
    }
}

/// One walk through an expression.
struct Expansion<'e> {
    of: &'e NamedValues,
    source: &'e str,
    /// The parts of the named values so far.
    parts: usize,
    error: Option<InvalidTemplate>,
}

impl Expansion<'_> {
    /// `hides` says whether a variable of a macro around the node has the name of a value that expressions read.
    fn visit(&mut self, node: &mut IdedExpr, hides: bool) {
        if self.error.is_some() {
            return;
        }
        let mut hides = hides;
        if let Expr::Comprehension(comprehension) = &node.expr {
            let variables = [Some(&comprehension.iter_var), comprehension.iter_var2.as_ref()];
            hides |= variables.into_iter().flatten().any(|name| parse::is_root(name));
        }
        if let Some(found) = self.named(&node.expr, hides) {
            node.expr = found.expr.clone();
            // What is in it was expanded when it was added, and only counts.
            return self.count(node);
        }
        for_each_part(&mut node.expr, &mut |part| self.visit(part, hides));
    }

    /// The named value, if `expr` is `vars.NAME` or `env.NAME`.
    fn named(&mut self, expr: &Expr, hides: bool) -> Option<Arc<IdedExpr>> {
        let Expr::Select(select) = expr else { return None };
        let Expr::Ident(root) = &select.operand.expr else { return None };
        let root = [VARS, ENV].into_iter().find(|known| known == root && !select.test)?;
        let name = &select.field;
        let found = self.of.values.get(&(root, name.clone())).cloned();
        if found.is_none() {
            self.error = Some(InvalidTemplate::UnknownValue {
                expression: self.source.to_owned(),
                name: format!("{root}.{name}"),
                hint: self.of.hint(root, name),
            });
        } else if hides {
            self.error = Some(InvalidTemplate::Syntax {
                expression: self.source.to_owned(),
                reason:
                    "the variable of a macro hides what a named value may read; call it differently"
                        .to_owned(),
            });
        }
        found
    }

    fn count(&mut self, node: &mut IdedExpr) {
        self.parts += 1;
        self.of.parts.update(|parts| parts + 1);
        let all = self.of.parts.get();
        if self.parts > limits::EXPRESSION_PARTS_MAX || all > limits::DEFINITION_PARTS_MAX {
            self.error = Some(InvalidTemplate::TooManyParts(self.source.to_owned()));
            return;
        }
        for_each_part(&mut node.expr, &mut |part| self.count(part));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expression::{scope::Scope, template::Template};

    fn named() -> NamedValues {
        let mut named = NamedValues::default();
        named.add_constant("table", &json!("it's \"new\"\n"));
        named.add_constant("limit", &json!(-2.5));
        named.add_expression("net", "input.price * input.count");
        named.add_expression("gross", "vars.net * 1.2");
        named.add_expression("first", "input.lines[0]");
        named
    }

    fn rendered(text: &str) -> Result<Value, String> {
        let input = json!({ "price": 10, "count": 2, "lines": [{ "sku": "a" }] });
        let template = Template::parse_with(json!(text), &named());
        let scope = Scope { input: Some(&input), ..Scope::default() };
        template.render(scope).map_err(|error| error.to_string())
    }

    #[test]
    fn a_named_value_stands_for_its_expression() {
        assert_eq!(rendered("${ vars.gross }"), Ok(json!(24.0)));
        assert_eq!(rendered("${ vars.net + 1 }"), Ok(json!(21)));
        assert_eq!(rendered("${ vars.first.sku }"), Ok(json!("a")));
        assert_eq!(rendered("${ has(vars.first.sku) }"), Ok(json!(true)));
        assert_eq!(rendered("${ env.table }"), Ok(json!("it's \"new\"\n")));
        assert_eq!(rendered("at ${ env.limit }"), Ok(json!("at -2.5")));
        assert_eq!(rendered("${ [1, 2].map(n, n * vars.net) }"), Ok(json!([20, 40])));
    }

    #[test]
    fn a_template_reads_what_its_named_values_read() {
        let template = Template::parse_with(json!("${ vars.gross }"), &named());
        assert!(template.required_values().input());
        assert!(!template.required_values().names.contains(VARS));
    }

    #[test]
    fn unknown_hidden_and_huge_values_are_errors() {
        let error = rendered("${ vars.grsos }").unwrap_err();
        assert!(error.contains("there is no `vars.grsos`"), "{error}");
        let error = rendered("${ [1].map(input, vars.net) }").unwrap_err();
        assert!(error.contains("hides"), "{error}");
        let mut named = NamedValues::default();
        named.add_expression("v0", "input.a + input.b");
        for n in 1..20 {
            let twice = format!("vars.v{} + vars.v{}", n - 1, n - 1);
            named.add_expression(&format!("v{n}"), &twice);
        }
        // The first of them that is too large counts as null.
        let problems = |text: &str| Template::parse_with(json!(text), &named).problems().to_vec();
        assert!(problems("${ vars.v19 }").is_empty());
        let largest = problems("${ vars.v6 + vars.v6 + vars.v6 }");
        assert!(matches!(largest[..], [(_, InvalidTemplate::TooManyParts(_))]), "{largest:?}");
        let many = json!(vec!["${ vars.v6 }"; 1_000]);
        let many = Template::parse_with(many, &named).problems().to_vec();
        assert!(matches!(many[..], [(_, InvalidTemplate::TooManyParts(_)), ..]), "{}", many.len());
    }

    #[test]
    fn constants_may_be_longer_than_expressions() {
        let long = json!("ü".repeat(3_000));
        let mut named = NamedValues::default();
        named.add_constant("long", &long);
        let template = Template::parse_with(json!("${ env.long }"), &named);
        assert_eq!(template.render(Scope::default()), Ok(long));
    }
}
