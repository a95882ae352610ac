//! `infra/domain.yaml` has a route for each operation that the published descriptions of the two functions contain.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{all, parse_yaml, properties};

const SUBMISSIONS: &str = include_str!("../../docs/contract/openapi.json");
const CALLBACKS: &str = include_str!("../../docs/contract/callbacks-openapi.json");

/// The operations of a description, such as `POST /tasks`.
fn operations(description: &str) -> BTreeSet<String> {
    let description: Value = serde_json::from_str(description).unwrap();
    let mut operations = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        operations.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    operations
}

#[test]
fn the_domain_routes_what_the_functions_serve() {
    let domain = parse_yaml(include_str!("../../infra/domain.yaml"));
    let routes = |authorization: &str| {
        all(&domain, "AWS::ApiGatewayV2::Route")
            .filter(|(_, route)| route["AuthorizationType"] == authorization)
            .map(|(_, route)| route["RouteKey"].as_str().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(routes("AWS_IAM"), operations(SUBMISSIONS));
    // One route serves all answers to a callback, and the description is that of submissions.
    let mut public = operations(CALLBACKS);
    assert!(public.remove("GET /openapi.json"));
    public.retain(|operation| !operation.starts_with("POST /callbacks/"));
    public.insert("POST /callbacks/{token+}".to_owned());
    assert_eq!(routes("NONE"), public);
}

#[test]
fn the_domain_invokes_the_public_function_only_for_its_routes() {
    let domain = parse_yaml(include_str!("../../infra/domain.yaml"));
    let sources = ["CallbacksPermission", "CallbackPagesPermission", "WebhooksPermission"]
        .map(|name| properties(&domain, name)["SourceArn"].as_str().unwrap().to_owned());
    assert!(sources[0].ends_with("${Api}/*/POST/callbacks/*"), "{}", sources[0]);
    assert!(sources[1].ends_with("${Api}/*/GET/callbacks/*"), "{}", sources[1]);
    assert!(sources[2].ends_with("${Api}/*/POST/webhooks/*"), "{}", sources[2]);
}
