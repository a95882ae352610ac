//! The benchmark cases of the core: decisions, definitions, expressions and schemas.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    definition::{schema::PayloadSchema, workflow::Workflow},
    expression::{
        scope::{Scope, TaskValues},
        template::Template,
    },
    model::names::StepName,
};

use crate::{
    case::Case,
    fixtures::{self, DecisionFixture, fan_out, order, saga, schema, workflow},
};

pub(crate) fn cases() -> Vec<Case> {
    [decisions(), definitions(), expressions(), schemas()].into_iter().flatten().collect()
}

fn decisions() -> Vec<Case> {
    // Selects decisions on a task by the number of replies before them.
    let select = |definition: Value, items, names: &[(&'static str, usize)]| {
        let count = names.iter().map(|(_, replies)| replies + 1).max().unwrap_or_default();
        let decisions = fixtures::decisions(&workflow(&definition), items).take(count);
        let name = |n| names.iter().find(|(_, replies)| *replies == n).map(|(name, _)| *name);
        let selected =
            decisions.enumerate().filter_map(move |(n, decision)| Some((name(n)?, decision)));
        selected.collect::<Vec<_>>()
    };
    let five = [("first_wake", 0), ("middle_reply", 3), ("last_reply", 5)];
    let items = [("first_wake", 0), ("middle_reply", 50), ("last_item", 100)];
    let named = [
        ("5_steps", select(saga(5), 3, &five)),
        ("100_steps", select(saga(100), 3, &[("middle_reply", 50)])),
        ("for_each_of_100", select(fan_out(), 100, &items)),
    ];
    let cases = named.into_iter().flat_map(|(workflow, decisions)| {
        decisions.into_iter().map(move |(name, decision)| (format!("{workflow}_{name}"), decision))
    });
    let case = |(name, decision): (String, DecisionFixture)| {
        let decision = Rc::new(decision);
        Case::new(format!("transition/{name}"), move || decision.clone(), |it| it.decide())
    };
    cases.map(case).collect()
}

fn definitions() -> Vec<Case> {
    let read = |steps: usize| {
        let text: Rc<str> = saga(steps).to_string().into();
        Case::new(
            format!("definition/read_{steps}_steps"),
            move || text.clone(),
            |text| serde_json::from_str::<Workflow>(&text).unwrap(),
        )
    };
    let check = |steps: usize| {
        let workflow = workflow(&saga(steps));
        Case::new(
            format!("definition/check_{steps}_steps"),
            move || workflow.clone(),
            |workflow| assert!(workflow.problems().is_empty()),
        )
    };
    vec![read(5), read(20), check(5), check(20)]
}

/// The values that the expressions of the cases read.
struct ExpressionValues {
    input: Value,
    outputs: BTreeMap<StepName, Cow<'static, Value>>,
}

fn expressions() -> Vec<Case> {
    let charge = Cow::Owned(json!({ "id": "ch-77", "fee": 12, "currency": "EUR" }));
    let outputs = BTreeMap::from([("charge".parse().unwrap(), charge)]);
    let values = Rc::new(ExpressionValues { input: order(3), outputs });
    let large_template = json!({
        "order": "${ task.id }", "customer": "${ input.customer }",
        "net": "${ input.amount - steps.charge.output.fee }",
        "text": "order ${ task.id } of ${ input.customer.id }: ${ input.amount } ${ steps.charge.output.currency }",
        "large": "${ input.amount > 1000 && size(input.items) < 50 }",
        "skus": "${ input.items.map(item, item.sku) }",
    });
    let render = |name: &str, source: Value| {
        let template = Template::parse(source);
        let input = Rc::new((template, values.clone()));
        Case::new(
            format!("expression/{name}"),
            move || input.clone(),
            |input| {
                let (template, values) = &*input;
                let scope = Scope {
                    input: Some(&values.input),
                    outputs: Some(&values.outputs),
                    task: Some(TaskValues {
                        id: "order-4711",
                        workflow: "saga",
                        submitted_at: Timestamp::UNIX_EPOCH,
                        complete_by: Timestamp::UNIX_EPOCH,
                    }),
                    ..Scope::default()
                };
                template.render(scope).unwrap()
            },
        )
    };
    let source = large_template.clone();
    vec![
        render("path", json!("${ input.customer.id }")),
        render("arithmetic", json!("${ input.amount * 2 + 1 }")),
        render("template_of_several", large_template),
        Case::new("expression/parse_template_of_several", move || source.clone(), Template::parse),
    ]
}

fn schemas() -> Vec<Case> {
    let compiled = PayloadSchema::new(schema());
    compiled.validate("input", &order(20)).unwrap();
    let input = Rc::new((compiled, order(20)));
    vec![
        Case::new(
            "schema/validate",
            move || input.clone(),
            |input| {
                let (schema, input) = &*input;
                schema.validate("input", input).unwrap();
            },
        ),
        Case::new(
            "schema/compile",
            || PayloadSchema::new(schema()),
            |schema| assert_eq!(schema.problem(), None),
        ),
    ]
}
