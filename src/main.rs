//! The process: parse arguments, run, exit with the documented code. Nothing else lives here.

use std::process::ExitCode;

fn main() -> ExitCode {
    counterfoil::cli::main()
}
