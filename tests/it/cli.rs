//! The program as a user meets it: output, errors, exit codes.
