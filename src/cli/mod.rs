//! The command line: what is typed becomes one library call, what comes back is printed. No SQL, no decisions.

use std::process::ExitCode;

/// Parses the arguments and runs the command.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
