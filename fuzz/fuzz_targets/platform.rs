#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (fuzz::target("platform").run)(data));
