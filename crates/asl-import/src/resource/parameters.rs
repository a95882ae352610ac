//! Reads the parameters of a state: one of them, and those that no request has.

use serde_json::Value;

use crate::symbol::Symbol;

/// The parameter with this key, if the parameters are an object that has it.
pub(super) fn field(input: &Symbol, key: &str) -> Option<Symbol> {
    let Symbol::Object { fields, .. } = input else { return None };
    fields.get(key).cloned()
}

/// A text that is known at the import; of a substitution of the deployment, the text with it.
pub(super) fn text_of(symbol: Option<Symbol>) -> Option<String> {
    match symbol? {
        Symbol::Scalar(Value::String(text)) | Symbol::Deployed(text) => Some(text),
        Symbol::Unknown(_)
        | Symbol::Scalar(_)
        | Symbol::Cel(_)
        | Symbol::Maybe { .. }
        | Symbol::Object { .. }
        | Symbol::List(_)
        | Symbol::Merged { .. }
        | Symbol::Either { .. } => None,
    }
}

/// Reports the parameters that the step does not send.
pub(super) fn other_parameters(input: &Symbol, sent: &[&str], decisions: &mut Vec<String>) {
    match input {
        Symbol::Object { fields, .. } => {
            for key in fields.keys().filter(|key| !sent.contains(&key.as_str())) {
                decisions
                    .push(format!("the parameter `{key}` is left out: the agent does not send it"));
            }
        }
        Symbol::Scalar(_)
        | Symbol::Cel(_)
        | Symbol::List(_)
        | Symbol::Merged { .. }
        | Symbol::Either { .. }
        | Symbol::Deployed(_)
        | Symbol::Maybe { .. }
        | Symbol::Unknown(_) => {
            decisions.push("the parameters are not known before the task runs".to_owned());
        }
    }
}
