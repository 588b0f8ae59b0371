//! Numbers below zero on the command line: they are values, and no options.

use super::Cli;
use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// Reads a command line.
pub(super) fn parsed(line: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&with_negative_numbers(Cli::command()).try_get_matches_from(line)?)
}

/// Options with a value take one below zero too: their readers say what would be valid.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
    let command = command.mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg });
    command.mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_below_zero_is_refused_by_its_option() {
        for (line, expected) in [
            ("run x --seeds -1", "'--seeds <N>': valid: a whole number from 1 to 1000"),
            ("sweep x --jobs -3", "'--jobs <N>'"),
            ("check --minutes -1", "'--minutes <M>'"),
        ] {
            let line: Vec<OsString> = format!("campanile {line}").split(' ').map(OsString::from).collect();
            let error = parsed(&line).unwrap_err().to_string();
            assert!(error.contains("invalid value '-") && error.contains(expected), "{error}");
        }
        let line = ["campanile", "advise", "x", "--cpu-budget", "-1"].map(OsString::from);
        assert!(parsed(&line).is_ok(), "its reader says what is valid");
    }
}
