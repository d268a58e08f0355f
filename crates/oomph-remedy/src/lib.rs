//! The catalogue of remedies: when each applies, what it changes and how it is written for each framework.
#![forbid(unsafe_code)]
