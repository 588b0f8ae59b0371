//! A QEMU plugin that counts instructions between two marks of the guest. It counts the instructions of each interrupt
//! from its gate to the return, those up to its end-of-interrupt write, and those outside interrupts.
//!
//! `campanile boot path` builds it alone as a shared library, against version 7 of QEMU's plugin interface. The
//! interface has few functions; they are declared here. Source: QEMU 11.1's include/plugins/qemu-plugin.h. The plugin
//! supports one CPU of x86_64 only.
//!
//! A mark is [`MARK`], which does nothing. The argument `to=FILE` names the output file. For each pair of marks the
//! plugin writes to it:
//! ```text
//! path GATE INTERRUPTS
//! eoi GATE WRITES INSTRUCTIONS
//! at GATE ADDRESS TIMES
//! end
//! ```
//! Addresses are hexadecimal. `eoi` counts the instructions from GATE to the write of the local APIC's EOI register,
//! including that write. `at` counts how often the instruction at ADDRESS ran in interrupts that entered at GATE. GATE
//! is 0 for instructions outside interrupts.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::sync::Mutex;

type Id = u64;

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    scoreboard: *mut c_void,
    offset: usize,
}

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: extern "C" fn(*mut c_void, *mut c_void),
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_discon_cb(
        id: Id,
        kinds: c_uint,
        callback: extern "C" fn(c_uint, c_uint, u64, u64, *mut c_void),
        data: *mut c_void,
    );
    fn qemu_plugin_register_atexit_cb(id: Id, callback: extern "C" fn(*mut c_void), data: *mut c_void);
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(instruction: *const c_void) -> u64;
    fn qemu_plugin_insn_data(instruction: *const c_void, bytes: *mut c_void, length: usize) -> usize;
    fn qemu_plugin_scoreboard_new(bytes: usize) -> *mut c_void;
    fn qemu_plugin_u64_set(entry: Entry, cpu: c_uint, value: u64);
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cond_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        condition: c_int,
        entry: Entry,
        value: u64,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, c_uint, u64, *mut c_void),
        flags: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_get_hwaddr(access: c_uint, address: u64) -> *mut c_void;
    fn qemu_plugin_hwaddr_phys_addr(address: *const c_void) -> u64;
}

#[unsafe(no_mangle)]
#[used]
static qemu_plugin_version: c_int = 7;

/// NOPL 43414d50h(%rax).
const MARK: [u8; 7] = [0x0f, 0x1f, 0x80, 0x50, 0x4d, 0x41, 0x43];

const NO_REGISTERS: c_int = 0;
const NOT_EQUAL: c_int = 3;
const WRITES: c_int = 2;
/// The local APIC's EOI register (SDM vol. 3, 11.4.1).
const EOI: u64 = 0xfee0_00b0;
const INTERRUPT: c_uint = 1;
const EXCEPTION: c_uint = 2;

/// The nested interrupts or exceptions that an instruction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Nothing,
    /// IRETQ ends the innermost interrupt or exception.
    Innermost,
    /// SYSRETQ and HLT end all. A kernel that switches threads in an interrupt leaves without IRETQ.
    All,
}

/// An instruction as it was translated.
struct Instruction {
    address: u64,
    ends: Ends,
}

struct State {
    file: String,
    text: String,
    /// True between the two marks of a pair. The word in the CPU's scoreboard entry says the same.
    begun: bool,
    inside: Entry,
    /// The gates that the CPU has entered and not left, innermost last, each with its instructions so far. None stands
    /// for an exception, which is not an interrupt.
    gates: Vec<Option<(u64, u64)>>,
    interrupts: HashMap<u64, u64>,
    /// By gate: writes of EOI, and the instructions up to them.
    ends: HashMap<u64, (u64, u64)>,
    times: HashMap<(u64, u64), u64>,
}

// SAFETY: the pointers are QEMU's handles, valid on all of its threads.
unsafe impl Send for State {}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    f(STATE.lock().expect("no callback panics").as_mut().expect("installed"))
}

impl State {
    fn set_inside(&self) {
        // SAFETY: CPU 0 exists, so its entry of the scoreboard does.
        unsafe { qemu_plugin_u64_set(self.inside, 0, u64::from(self.begun)) };
    }
}

/// QEMU translated a block: registers a callback for each instruction, active between marks.
extern "C" fn translated(block: *mut c_void, _: *mut c_void) {
    let inside = with(|state| state.inside);
    // SAFETY: the block and its instructions live during the callback. The leaked data live for ever, since the block
    // may.
    unsafe {
        for index in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, index);
            let mut bytes = [0_u8; 8];
            let length = qemu_plugin_insn_data(instruction, bytes.as_mut_ptr().cast(), bytes.len());
            let ends = match &bytes[..length] {
                [0x48, 0xcf] => Ends::Innermost,
                [0x48, 0x0f, 0x07] | [0xf4] => Ends::All,
                _ => Ends::Nothing,
            };
            if bytes[..length] == MARK {
                let none = std::ptr::null_mut();
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS, none);
            }
            let known = Box::leak(Box::new(Instruction { address: qemu_plugin_insn_vaddr(instruction), ends }));
            let data = (&raw mut *known).cast();
            qemu_plugin_register_vcpu_insn_exec_cond_cb(instruction, run, NO_REGISTERS, NOT_EQUAL, inside, 0, data);
            qemu_plugin_register_vcpu_mem_cb(instruction, written, NO_REGISTERS, WRITES, std::ptr::null_mut());
        }
    }
}

/// An instruction runs between marks.
extern "C" fn run(_: c_uint, data: *mut c_void) {
    // SAFETY: leaked by `translated`.
    let instruction = unsafe { &*data.cast::<Instruction>() };
    with(|state| {
        let gate = match state.gates.last_mut() {
            Some(Some((gate, instructions))) => {
                *instructions += 1;
                *gate
            }
            _ => 0,
        };
        *state.times.entry((gate, instruction.address)).or_default() += 1;
        match instruction.ends {
            Ends::Nothing => {}
            Ends::Innermost => _ = state.gates.pop(),
            Ends::All => state.gates.clear(),
        }
    });
}

/// An instruction has written to memory.
extern "C" fn written(_: c_uint, access: c_uint, address: u64, _: *mut c_void) {
    // The physical address counts, wherever the page is mapped.
    if address & 0xfff != EOI & 0xfff {
        return;
    }
    // SAFETY: this runs inside the callback of this access.
    let physical = unsafe {
        let address = qemu_plugin_get_hwaddr(access, address);
        (!address.is_null()).then(|| qemu_plugin_hwaddr_phys_addr(address))
    };
    with(|state| {
        if let (Some(EOI), Some(&Some((gate, instructions)))) = (physical, state.gates.last()) {
            let (writes, sum) = state.ends.entry(gate).or_default();
            *writes += 1;
            *sum += instructions;
        }
    });
}

/// The CPU enters a gate.
extern "C" fn discontinued(_: c_uint, kind: c_uint, _: u64, to: u64, _: *mut c_void) {
    with(|state| {
        if !state.begun {
            return;
        }
        if kind == INTERRUPT {
            *state.interrupts.entry(to).or_default() += 1;
            state.gates.push(Some((to, 0)));
        } else {
            state.gates.push(None);
        }
    });
}

/// The guest executes a mark.
extern "C" fn marked(_: c_uint, _: *mut c_void) {
    with(|state| {
        state.begun = !state.begun;
        state.set_inside();
        if state.begun {
            return;
        }
        for (gate, interrupts) in state.interrupts.drain() {
            _ = writeln!(state.text, "path {gate:x} {interrupts}");
        }
        for (gate, (writes, instructions)) in state.ends.drain() {
            _ = writeln!(state.text, "eoi {gate:x} {writes} {instructions}");
        }
        for ((gate, address), times) in state.times.drain() {
            _ = writeln!(state.text, "at {gate:x} {address:x} {times}");
        }
        state.text += "end\n";
        state.gates.clear();
    });
}

extern "C" fn ended(_: *mut c_void) {
    with(|state| {
        if let Err(error) = std::fs::write(&state.file, &state.text) {
            eprintln!("{}: {error}", state.file);
        }
    });
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
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes `count` strings.
    let mut texts = (0..count as usize).map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy());
    let Some(file) = texts.find_map(|text| text.strip_prefix("to=").map(str::to_owned)) else {
        eprintln!("to=FILE is missing");
        return 1;
    };
    // SAFETY: the callbacks have the types that the interface declares.
    unsafe {
        let inside = Entry { scoreboard: qemu_plugin_scoreboard_new(8), offset: 0 };
        let state = State {
            file,
            text: String::new(),
            begun: false,
            inside,
            gates: Vec::new(),
            interrupts: HashMap::new(),
            ends: HashMap::new(),
            times: HashMap::new(),
        };
        *STATE.lock().expect("nothing ran yet") = Some(state);
        let none = std::ptr::null_mut();
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated, none);
        qemu_plugin_register_vcpu_discon_cb(id, INTERRUPT | EXCEPTION, discontinued, none);
        qemu_plugin_register_atexit_cb(id, ended, none);
    }
    0
}
