//! Rendered messages: golden bytes, escaping, parsing by an independent reader.
