#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (fuzz::target("driver_virtio_block").run)(data));
