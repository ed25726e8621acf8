//! The template bundle that ships inside the program, file by file.

/// Name relative to a new installation's directory, and bytes.
pub(super) const FILES: &[(&str, &[u8])] = &[];
