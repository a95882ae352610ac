//! The help: the commands by who needs them, and the names of a deployment in one place instead of in each command.

use std::{collections::BTreeSet, fmt::Write};

use clap::{Args, Command, CommandFactory};

use crate::{Cli, client::DeploymentArgs};

/// The commands, by who needs them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("On this machine", &["demo", "local", "bench"]),
    ("Authors of workflows and agents", &["new", "workflow", "agents", "cost", "scale"]),
    ("Callers", &["submit", "callback"]),
    (
        "Operators",
        &[
            "list",
            "show",
            "resubmit",
            "skip",
            "complete",
            "approve",
            "reject",
            "undo",
            "cancel",
            "resolve",
            "pause",
            "resume",
            "retry-all",
            "rerun",
            "rerun-all",
            "console",
        ],
    ),
    ("Deployment", &["deployment", "dlq", "tenants", "forget", "restore", "help"]),
];

/// The command that lists the options of a deployment. Every command that reads one takes them.
const DEPLOYMENT: &str = "deployment";

/// The command line, with its help.
pub(crate) fn command() -> Command {
    let names = DeploymentArgs::augment_args(Command::new(DEPLOYMENT));
    let names: BTreeSet<_> = names.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    let mut command = Cli::command();
    command.build();
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{}\nOptions:\n{{options}}",
        grouped(&command)
    );
    hide_names(command, &names).help_template(template)
}

/// Hides the names of a deployment in the help of all commands but one.
fn hide_names(command: Command, names: &BTreeSet<String>) -> Command {
    if command.get_name() == DEPLOYMENT {
        return command;
    }
    let has_names = command.get_arguments().any(|arg| names.contains(arg.get_id().as_str()));
    let hidden = command.mut_args(|arg| {
        let is_name = names.contains(arg.get_id().as_str());
        arg.hide(is_name)
    });
    let noted = match has_names {
        true => hidden.after_help("The names of the deployment: `steward help deployment`."),
        false => hidden,
    };
    noted.mut_subcommands(|subcommand| hide_names(subcommand, names))
}

/// The commands with what they do, in groups.
fn grouped(command: &Command) -> String {
    let mut text = String::new();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{group}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<10}  {about}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(words: &[&str]) -> String {
        let mut command = command();
        let mut of = &mut command;
        for word in words {
            of = of.find_subcommand_mut(word).unwrap();
        }
        of.render_long_help().to_string()
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let mut listed: Vec<_> =
            GROUPS.iter().flat_map(|(_, names)| names.iter()).copied().collect();
        let mut all: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
        assert!(help(&[]).contains("\nCallers:\n  submit      Submit tasks"), "{}", help(&[]));
    }

    #[test]
    fn the_names_of_a_deployment_are_in_one_help() {
        let of_show = help(&["show"]);
        assert!(!of_show.contains("--tasks-table"), "{of_show}");
        assert!(of_show.contains("--errors") && of_show.contains("steward help deployment"));
        assert!(help(&["dlq", "redrive"]).contains("steward help deployment"));
        assert!(help(&["deployment"]).contains("--tasks-table"));
        assert!(!help(&["demo"]).contains("steward help deployment"));
    }

    #[test]
    fn hidden_names_are_accepted() {
        let found =
            command().try_get_matches_from(["steward", "show", "--tasks-table", "t", "o-1"]);
        assert!(found.is_ok(), "{found:?}");
    }
}
