//! Whole runs with real processes: crashes, races, repeats.
