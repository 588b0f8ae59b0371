#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (fuzz::target("sweep").run)(data));
