//! The core: decisions, definitions, expressions, schemas.

use std::{borrow::Cow, collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use steward_core::{
    definition::{schema::InputSchema, workflow::Workflow},
    expression::{scope::Scope, template::Template},
    model::names::StepName,
};

use crate::{
    case::Case,
    fixtures::{self, Decision, fan_out, order, saga, schema, workflow},
};

pub(crate) fn cases() -> Vec<Case> {
    [decisions(), definitions(), expressions(), schemas()].into_iter().flatten().collect()
}

fn decisions() -> Vec<Case> {
    let of = |definition: Value, items, cases: &[(&'static str, usize)]| {
        let last = cases.iter().map(|(_, answers)| answers + 1).max().unwrap_or_default();
        let decisions = fixtures::decisions(&workflow(&definition), items).take(last);
        let place = |n| cases.iter().find(|(_, answers)| *answers == n).map(|(name, _)| *name);
        let cases =
            decisions.enumerate().filter_map(move |(n, decision)| Some((place(n)?, decision)));
        cases.collect::<Vec<_>>()
    };
    let five = [("first_wake", 0), ("middle_reply", 3), ("last_reply", 5)];
    let items = [("first_wake", 0), ("middle_reply", 50), ("last_item", 100)];
    let named = [
        ("5_steps", of(saga(5), 3, &five)),
        ("100_steps", of(saga(100), 3, &[("middle_reply", 50)])),
        ("for_each_of_100", of(fan_out(), 100, &items)),
    ];
    let cases = named.into_iter().flat_map(|(name, decisions)| {
        decisions.into_iter().map(move |(what, decision)| (format!("{name}_{what}"), decision))
    });
    let case = |(name, decision): (String, Decision)| {
        let decision = Rc::new(decision);
        Case::new(format!("transition/{name}"), move || decision.clone(), |it| it.take())
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

/// The values that the expressions below read.
struct Values {
    input: Value,
    outputs: BTreeMap<StepName, Cow<'static, Value>>,
}

fn expressions() -> Vec<Case> {
    let charge = Cow::Owned(json!({ "id": "ch-77", "fee": 12, "currency": "EUR" }));
    let outputs = BTreeMap::from([("charge".parse().unwrap(), charge)]);
    let values = Rc::new(Values { input: order(3), outputs });
    let several = json!({
        "order": "${ task.id }", "customer": "${ input.customer }",
        "net": "${ input.amount - steps.charge.output.fee }",
        "text": "order ${ task.id } of ${ input.customer.id }: ${ input.amount } ${ steps.charge.output.currency }",
        "large": "${ input.amount > 1000 && size(input.items) < 50 }",
        "skus": "${ input.items.map(item, item.sku) }",
    });
    let render = |name: &str, source: Value| {
        let template = Template::parse(source);
        let it = Rc::new((template, values.clone()));
        Case::new(
            format!("expression/{name}"),
            move || it.clone(),
            |it| {
                let (template, values) = &*it;
                let scope = Scope {
                    input: Some(&values.input),
                    outputs: Some(&values.outputs),
                    task: Some(("order-4711", "saga")),
                    ..Scope::default()
                };
                template.render(scope).unwrap()
            },
        )
    };
    let source = several.clone();
    vec![
        render("path", json!("${ input.customer.id }")),
        render("arithmetic", json!("${ input.amount * 2 + 1 }")),
        render("template_of_several", several),
        Case::new("expression/parse_template_of_several", move || source.clone(), Template::parse),
    ]
}

fn schemas() -> Vec<Case> {
    let compiled = InputSchema::new(schema());
    compiled.validate(&order(20)).unwrap();
    let it = Rc::new((compiled, order(20)));
    vec![
        Case::new(
            "schema/validate",
            move || it.clone(),
            |it| {
                let (schema, input) = &*it;
                schema.validate(input).unwrap();
            },
        ),
        Case::new(
            "schema/compile",
            || InputSchema::new(schema()),
            |schema| assert_eq!(schema.problem(), None),
        ),
    ]
}
