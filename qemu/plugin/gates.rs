//! A QEMU plugin that counts the instructions of interrupts on any number of CPUs: from the gate to the write of EOI, and to
//! the return, sorted by how many handlers ran in between.
//!
//! `campanile boot judges` builds it alone as a shared library, against version 4 of QEMU's plugin interface, which tells of
//! no interrupts; so the plugin knows gates by their addresses. Source: QEMU 10.0's include/qemu/qemu-plugin.h. It serves
//! x86_64 with local APICs in xAPIC mode.
//!
//! Arguments: `gates=FIRST:END:STEP` (the addresses of the gates, hexadecimal), `handler=ADDRESS` (the first instruction of
//! the handler; may be given several times), `eoi=FIRST:END` (where the local APIC's registers are mapped; of several pages the
//! others have nothing at the place of EOI), `to=FILE`. At the end the plugin writes to it, for each number of handlers:
//! ```text
//! ran HANDLERS INTERRUPTS INSTRUCTIONS-TO-EOI INSTRUCTIONS
//! ```
//! The sums include the first instruction at the gate, the write of EOI, and IRETQ. Interrupts without a write of EOI, or
//! with several, are left out and counted in `odd INTERRUPTS`.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Mutex;

type Id = u64;

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    scoreboard: *mut c_void,
    offset: usize,
}

// SAFETY: QEMU's handle, valid on all of its threads.
unsafe impl Send for Entry {}

type Callback = extern "C" fn(c_uint, *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, callback: extern "C" fn(Id, *mut c_void));
    fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(Id, *mut c_void), data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(instruction: *const c_void) -> u64;
    fn qemu_plugin_insn_data(instruction: *const c_void, bytes: *mut c_void, length: usize) -> usize;
    fn qemu_plugin_scoreboard_new(bytes: usize) -> *mut c_void;
    fn qemu_plugin_u64_get(entry: Entry, cpu: c_uint) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        instruction: *mut c_void,
        operation: c_int,
        entry: Entry,
        value: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut c_void,
        callback: Callback,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, c_uint, u64, *mut c_void),
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
}

#[unsafe(no_mangle)]
#[used]
static qemu_plugin_version: c_int = 4;

const NO_REGISTERS: c_int = 0;
const ADD: c_int = 0;
const WRITES: c_int = 2;
/// The local APIC's EOI register, from the start of its page (SDM vol. 3, 11.4.1).
const EOI: u64 = 0xb0;
const PAGE: u64 = 0x1000;

/// An interrupt that a CPU has entered and not left.
#[derive(Clone, Copy)]
struct Open {
    /// The CPU's instructions before the gate.
    start: u64,
    handlers: u64,
    ends: u64,
    to_eoi: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    interrupts: u64,
    to_eoi: u64,
    all: u64,
}

struct State {
    file: String,
    gates: (u64, u64, u64),
    handlers: Vec<u64>,
    /// Addresses of the local APIC's registers.
    eoi: Range<u64>,
    /// Instructions by CPU.
    instructions: Entry,
    /// By CPU.
    open: BTreeMap<c_uint, Open>,
    sums: BTreeMap<u64, Sums>,
    odd: u64,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    f(STATE.lock().expect("no callback panics").as_mut().expect("installed"))
}

impl State {
    /// Instructions of a CPU so far, with the current one.
    fn now(&self, cpu: c_uint) -> u64 {
        // SAFETY: QEMU passes CPUs that exist.
        unsafe { qemu_plugin_u64_get(self.instructions, cpu) }
    }

    fn is_gate(&self, address: u64) -> bool {
        let (first, end, step) = self.gates;
        (first..end).contains(&address) && (address - first).is_multiple_of(step)
    }
}

/// QEMU translated a block.
extern "C" fn translated(_: Id, block: *mut c_void) {
    let instructions = with(|state| state.instructions);
    // SAFETY: the block and its instructions live during the callback.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, ADD, instructions, 1);
            let address = qemu_plugin_insn_vaddr(instruction);
            let mut bytes = [0_u8; 8];
            let length = qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len());
            let (is_gate, is_handler) = with(|state| (state.is_gate(address), state.handlers.contains(&address)));
            let callback: Option<Callback> = match &bytes[..length] {
                _ if is_gate => Some(entered),
                _ if is_handler => Some(handled),
                // IRETQ ends the interrupt. A kernel that switches threads in one leaves by SYSRETQ, or halts.
                [0x48, 0xcf] => Some(left),
                [0x48, 0x0f, 0x07] | [0xf4] => Some(lost),
                _ => None,
            };
            if let Some(callback) = callback {
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, NO_REGISTERS, std::ptr::null_mut());
            }
            qemu_plugin_register_vcpu_mem_cb(instruction, written, NO_REGISTERS, WRITES, std::ptr::null_mut());
        }
    }
}

extern "C" fn entered(cpu: c_uint, _: *mut c_void) {
    with(|state| {
        let start = state.now(cpu) - 1;
        state.open.insert(cpu, Open { start, handlers: 0, ends: 0, to_eoi: 0 });
    });
}

extern "C" fn handled(cpu: c_uint, _: *mut c_void) {
    with(|state| {
        if let Some(open) = state.open.get_mut(&cpu) {
            open.handlers += 1;
        }
    });
}

extern "C" fn left(cpu: c_uint, _: *mut c_void) {
    with(|state| {
        let now = state.now(cpu);
        match state.open.remove(&cpu) {
            Some(Open { start, handlers, ends: 1, to_eoi }) => {
                let sums = state.sums.entry(handlers).or_default();
                sums.interrupts += 1;
                sums.to_eoi += to_eoi;
                sums.all += now - start;
            }
            Some(_) => state.odd += 1,
            None => {}
        }
    });
}

extern "C" fn lost(cpu: c_uint, _: *mut c_void) {
    with(|state| {
        if state.open.remove(&cpu).is_some() {
            state.odd += 1;
        }
    });
}

/// An instruction has written to memory.
extern "C" fn written(cpu: c_uint, _access: c_uint, address: u64, _: *mut c_void) {
    // QEMU's own question for the physical address (`qemu_plugin_get_hwaddr`) sometimes ends QEMU with an assertion.
    if address % PAGE != EOI {
        return;
    }
    with(|state| {
        let now = state.now(cpu);
        if let Some(open) = state.open.get_mut(&cpu).filter(|_| state.eoi.contains(&address)) {
            open.ends += 1;
            open.to_eoi = now - open.start;
        }
    });
}

extern "C" fn ended(_: Id, _: *mut c_void) {
    with(|state| {
        let mut text = String::new();
        for (handlers, Sums { interrupts, to_eoi, all }) in &state.sums {
            _ = writeln!(text, "ran {handlers} {interrupts} {to_eoi} {all}");
        }
        _ = writeln!(text, "odd {}", state.odd);
        if let Err(error) = std::fs::write(&state.file, &text) {
            eprintln!("{}: {error}", state.file);
        }
    });
}

/// The state that the plugin's arguments describe.
fn described(texts: &[String]) -> Option<State> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let values = |name: &'static str| texts.iter().filter_map(move |text| text.strip_prefix(name));
    let list = |name| values(name).next()?.split(':').map(hex).collect::<Option<Vec<u64>>>();
    let (&[first, end, step], &[eoi, eoi_end]) = (&list("gates=")?[..], &list("eoi=")?[..]) else { return None };
    (step > 0).then_some(())?;
    Some(State {
        file: values("to=").next()?.to_owned(),
        gates: (first, end, step),
        handlers: values("handler=").map(hex).collect::<Option<_>>()?,
        eoi: eoi..eoi_end,
        // SAFETY: QEMU calls this when it loads the plugin.
        instructions: Entry { scoreboard: unsafe { qemu_plugin_scoreboard_new(8) }, offset: 0 },
        open: BTreeMap::new(),
        sums: BTreeMap::new(),
        odd: 0,
    })
}

/// QEMU calls this when it loads the plugin.
///
/// # Safety
/// The arguments must be QEMU's.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _: *const c_void,
    count: c_int,
    given: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes `count` strings.
    let text = |index: usize| unsafe { CStr::from_ptr(*given.add(index)) }.to_string_lossy().into_owned();
    let texts: Vec<String> = (0..count as usize).map(text).collect();
    let Some(state) = described(&texts) else {
        eprintln!("wanted: gates=FIRST:END:STEP, handler=ADDRESS, eoi=FIRST:END, to=FILE; given: {texts:?}");
        return 1;
    };
    *STATE.lock().expect("nothing ran yet") = Some(state);
    // SAFETY: the callbacks have the types that the interface declares.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, ended, std::ptr::null_mut());
    }
    0
}
