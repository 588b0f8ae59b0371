#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (fuzz::target("import_fio_json").run)(data));
