//! What a server says of itself: fio's JSON, `/proc/interrupts`, `/proc/stat`, and archives of them.
//!
//! Every reader takes the output of any version and size, whole or damaged: it returns what makes sense, and the rest as
//! notes that name what is missing. No reader panics, and each has limits on what it reads.

pub mod archive;
mod between;
mod broken_lines;
mod command_line;
pub mod cpu_time;
pub mod disks;
pub mod encoding;
mod fio_banner;
mod fio_error;
mod fio_job;
pub mod fio_json;
mod fio_results;
mod fio_terse;
pub mod fio_text;
pub mod hosts;
mod interrupt_line;
mod interrupt_text;
pub mod interrupts;
mod json;
mod json_text;
pub mod kind;
pub mod links;
pub mod lscpu;
mod lsirq;
mod nested;
mod packed;
mod python;
mod sparse;
mod tarred;
mod text_options;
mod xz;
mod zip_parts;
mod zipped;
mod zstd;

/// Something that a reader could not use, for people: what, and where.
pub type Note = String;
