//! Driver against model, clause by clause; the tests are under `tests/`.
