//! Logs to standard error. No customer's id, address or content, and no secret, is ever logged: a receipt is
//! named by the first 12 hex digits of its key.
