//! A table of rows and files that must be refused, each with its line, field and reason.
