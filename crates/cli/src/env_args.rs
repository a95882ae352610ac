//! `--env`: the constants of definitions that differ between deployments.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use clap::Args;
use steward_core::{definition::workflow::Workflow, model::names::ValueName};

/// Values of constants in the `env` of definitions.
#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// The value of a constant in `env`, in each of the definitions that has it; repeatable.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse)]
    values: Vec<(ValueName, String)>,
}

fn parse(text: &str) -> Result<(ValueName, String)> {
    let (name, value) = text.split_once('=').context("must be NAME=VALUE")?;
    Ok((name.parse()?, value.to_owned()))
}

impl EnvArgs {
    /// The definitions with the values.
    ///
    /// # Errors
    /// A value has the wrong type, or no definition has the constant.
    pub(crate) fn apply(&self, workflows: Vec<Workflow>) -> Result<Vec<Workflow>> {
        self.check(&workflows)?;
        workflows.into_iter().map(|workflow| self.of_file(workflow)).collect()
    }

    /// Checks that one of the definitions has each constant.
    ///
    /// # Errors
    /// None has it.
    pub(crate) fn check<'w>(
        &self,
        workflows: impl IntoIterator<Item = &'w Workflow>,
    ) -> Result<()> {
        let known: BTreeSet<_> =
            workflows.into_iter().flat_map(|workflow| workflow.env.keys()).collect();
        let unknown = self.values.iter().find(|(name, _)| !known.contains(name));
        match unknown {
            Some((name, _)) => bail!("no definition has `{name}` in its `env`"),
            None => Ok(()),
        }
    }

    /// A definition with those of the values whose constants it has.
    ///
    /// # Errors
    /// A value has the wrong type.
    pub(crate) fn of_file(&self, workflow: Workflow) -> Result<Workflow> {
        let own = self.values.iter().filter(|(name, _)| workflow.env.contains_key(name));
        let changed = workflow.with_env(own.map(|(name, value)| (name, value.as_str())));
        changed.map_err(|reason| anyhow::anyhow!("workflow `{}`: {reason}", workflow.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_given_to_the_definitions_that_have_them() {
        let text =
            "name: a\nversion: 1\nenv: { table: null, limit: 3 }\nsteps:\n  s: { wait: 1s }\n";
        let workflow = steward_definition_file::parse("a.yaml".as_ref(), text).unwrap();
        let applied = |given: &[&str]| {
            let values = given.iter().map(|given| parse(given).unwrap()).collect();
            EnvArgs { values }.apply(vec![workflow.clone()]).map_err(|error| error.to_string())
        };
        let changed = applied(&["table=orders=1", "limit=4"]).unwrap();
        assert_eq!(changed[0].env["table"], "orders=1");
        assert_eq!(changed[0].env["limit"], 4);
        assert_eq!(changed[0].unset_env().count(), 0);
        assert_eq!(workflow.unset_env().count(), 1);
        let wrong = applied(&["limit=many"]).unwrap_err();
        assert_eq!(wrong, "workflow `a`: env.limit must be like 3, not `many`");
        assert_eq!(applied(&["tabel=x"]).unwrap_err(), "no definition has `tabel` in its `env`");
    }
}
