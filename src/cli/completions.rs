//! `completions`: a script for a shell, made from the same definitions as the help.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::arguments::Arguments;
use super::{Exit, Failure, Session};

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil completions bash > /etc/bash_completion.d/counterfoil
  counterfoil completions zsh > /usr/local/share/zsh/site-functions/_counterfoil
  counterfoil completions fish > ~/.config/fish/completions/counterfoil.fish")]
pub(super) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(super) fn completions(session: &Session, arguments: &CompletionsArguments) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "counterfoil", &mut script);
    session.output.bytes(&script)?;
    Ok(Exit::Settled)
}
