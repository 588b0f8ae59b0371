//! System services that the first process of a Linux guest needs from its kernel.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::os::raw::{c_char, c_int, c_ulong, c_void};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn mount(
        source: *const c_char,
        at: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn reboot(command: c_int) -> c_int;
    fn sync();
}

const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
const POWER_OFF: c_int = 0x4321_fedc;
const RESTART: c_int = 0x0123_4567;

/// A result, or one line that describes the error.
pub(crate) type Outcome<T> = Result<T, String>;

/// Adds to an error the name of the failed operation.
pub(crate) fn text<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

pub(crate) fn check(what: &str, right: bool) -> Outcome<()> {
    if right { Ok(()) } else { Err(what.into()) }
}

/// Waits for a drive's block device and opens it past the page cache.
pub(crate) fn open_disk(path: &str) -> Outcome<File> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !Path::new(path).exists() {
        check(&format!("{path} has not come in 20 s"), Instant::now() < deadline)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    text(path, OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path))
}

/// Mounts a file system of the kernel's own.
pub(crate) fn mount_at(kind: &CStr, at: &CStr) {
    _ = fs::create_dir(at.to_str().expect("ASCII"));
    // SAFETY: strings that end with a zero; these file systems take no data.
    unsafe { mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
}

/// Runs the test, prints its verdict, and powers the machine off, or restarts it if the kernel's command line says
/// `end=restart`.
pub(crate) fn run(test: impl Fn() -> Outcome<()>) {
    for (kind, at) in [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys")] {
        mount_at(kind, at);
    }
    match test() {
        Ok(()) => println!("guest: passed"),
        Err(why) => println!("guest: FAILED: {why}"),
    }
    let restarts = std::env::var("end").is_ok_and(|end| end == "restart");
    // SAFETY: no open file matters any more; the first process may power the machine off.
    unsafe {
        sync();
        reboot(if restarts { RESTART } else { POWER_OFF });
    }
}
