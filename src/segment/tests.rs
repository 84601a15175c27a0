//! Segments against a plain sorted vector, and against everything that can happen to a file.

mod damage;
mod golden;
mod model;
mod replays;
mod shape;
