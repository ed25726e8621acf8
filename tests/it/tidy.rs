//! Keeps the architecture true.
