//! The SMTP provider against a scripted server: which failure is ambiguous and which is not.
