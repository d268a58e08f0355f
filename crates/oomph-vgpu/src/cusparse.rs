//! cuSPARSE: what its callers need an answer for.
