//! The VT-d unit against QEMU's, whose patch in `judges/` posts interrupts: the same random entries, descriptors and messages
//! must give the same descriptors, notifications and fault records.
//!
//! QEMU runs no guest; the test writes its memory and registers over QEMU's qtest protocol. Messages come from `edu`
//! devices, which send their MSI on a register write. `CAMPANILE_JUDGES` names the folder that `scripts/judges qemu` prints;
//! without it nothing is compared. `STEPS` is the number of messages, `SEED` the seed.
//!
//! What differs by design and is not generated: messages in compatibility format, which QEMU always lets pass; SVT 11, which
//! QEMU reports as a wrong requester; reserved delivery modes and destination bits of remapped entries, which QEMU ignores;
//! a second fault before software has taken the first, which QEMU may collapse. An `edu` device cannot send data of
//! more than 16 bits, so fault reason 20h is left out.

mod vtd_rig;

use hal::{Dma as _, Word as _};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use vtd_rig::{Options, Rig};

/// Registers of QEMU's unit.
const UNIT: u64 = 0xfed9_0000;
/// Where the devices' registers are put.
const BAR: u64 = 0xc000_0000;
/// The devices' requester ids: bus 0, devices 4 and 5, some of their functions.
const REQUESTERS: [u16; 5] = [0x20, 0x21, 0x22, 0x26, 0x28];
const ENTRIES: u64 = 8;
const DESCRIPTORS: u64 = 4;
/// Steps that are taken before their results are compared.
const BATCH: u64 = 500;
/// Messages after which both start anew: the model's threads keep their stacks as long as it lives.
const CHUNK: u64 = 5_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A step: software writes an entry or a descriptor, or a device sends.
#[derive(Clone, Debug)]
enum Step {
    Entry { index: u64, low: u64, high: u64 },
    Descriptor { index: u64, words: [u64; 8] },
    Message { requester: u16, address: u64, data: u16 },
}

/// Draws a step. `memory` is the address of the first descriptor.
fn step(random: &mut Random, memory: u64, extended: bool) -> Step {
    match random.below(10) {
        0..2 => entry(random, memory, extended),
        2..4 => descriptor(random, extended),
        _ => {
            let requester = REQUESTERS[random.below(REQUESTERS.len() as u64) as usize];
            // Seldom beyond the table of 256 entries.
            let index = if random.one_in(50) { 250 + random.below(10) } else { random.below(ENTRIES) };
            let sub_handle = if random.one_in(3) { random.below(index + 1) } else { 0 };
            // Handle bits 14:0 in 19:5, format in 4, sub-handle valid in 3, handle bit 15 in 2.
            let valid = if sub_handle > 0 { 1 << 3 } else { 0 };
            let high = u64::from(random.one_in(200)) << 2;
            let address = 0xfee0_0010 | (index - sub_handle) << 5 | valid | high;
            Step::Message { requester, address, data: if valid > 0 { sub_handle as u16 } else { random.next() as u16 } }
        }
    }
}

fn entry(random: &mut Random, memory: u64, extended: bool) -> Step {
    let index = random.below(ENTRIES);
    let vector = 0x30 + random.below(0xc0);
    let common = u64::from(!random.one_in(20)) | u64::from(random.one_in(8)) << 1 | random.below(16) << 8;
    let source = u64::from(REQUESTERS[random.below(5) as usize]);
    let (qualifier, validation) = (random.below(4), random.below(3));
    // A range of buses: SID is its first and last bus.
    let source = if validation == 2 { random.below(2) << 8 | random.below(2) } else { source };
    let validation = if random.one_in(3) { 0 } else { validation };
    let high = source | qualifier << 16 | validation << 18;
    let (mut low, mut high) = if random.one_in(4) {
        let destination = random.below(4);
        let destination = if extended { destination } else { destination << 8 };
        (common | vector << 16 | destination << 32, high)
    } else {
        // Seldom where no memory is: the table's highest addresses.
        let outside = random.one_in(30);
        let line = random.below(DESCRIPTORS) * 64;
        let at = if outside { 0x0000_7fff_ffff_0000 + line } else { memory + line };
        let urgent = u64::from(random.one_in(4)) << 14;
        let posted = common | 1 << 15 | urgent | random.below(256) << 16 | (at & 0xffff_ffc0) << 32;
        (posted, high | at & 0xffff_ffff_0000_0000)
    };
    if random.one_in(25) {
        // Reserved in both formats: 12, 24 to 31, and 84 to 95. In the posted one 2 to 7 and 13 too, and 32 to 37.
        let bits = [12, 24, 31, 64 + 20, 64 + 31, 2, 7, 13, 32, 37];
        let is_posted = low >> 15 & 1 == 1;
        match bits[random.below(if is_posted { 10 } else { 5 }) as usize] {
            bit @ 64.. => high |= 1 << (bit - 64),
            bit => low |= 1 << bit,
        }
    }
    Step::Entry { index, low, high }
}

fn descriptor(random: &mut Random, extended: bool) -> Step {
    let mut words = [0; 8];
    if random.one_in(2) {
        words[random.below(4) as usize] = random.next();
    }
    let (on, sn) = (u64::from(random.one_in(3)), u64::from(random.one_in(3)) << 1);
    let destination = random.below(4) << if extended { 32 } else { 40 };
    words[4] = on | sn | (0x30 + random.below(0xc0)) << 16 | destination;
    if random.one_in(15) {
        match random.below(6) {
            0 => words[4] |= 1 << (2 + random.below(14)),
            1 => words[4] |= 1 << (24 + random.below(8)),
            2 if !extended => words[4] |= 1 << (32 + random.below(8)),
            3 if !extended => words[4] |= 1 << (48 + random.below(16)),
            _ => words[5 + random.below(3) as usize] |= 1 << random.below(64),
        }
    }
    Step::Descriptor { index: random.below(DESCRIPTORS), words }
}

/// What a message led to: all descriptors, and the fault record as (reason, requester, index).
#[derive(Clone, PartialEq, Eq, Debug)]
struct Result {
    descriptors: Vec<u8>,
    fault: Option<(u64, u64, u64)>,
}

/// QEMU without a guest.
struct Qemu {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// Commands whose answers have not been read.
    waiting: u64,
    trace: PathBuf,
    _folder: Folder,
}

/// A folder that is removed with its contents.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Qemu {
    fn start(judges: &Path, name: &str) -> Self {
        let folder = Folder(std::env::temp_dir().join(format!("campanile-vtd-{}-{name}", std::process::id())));
        std::fs::create_dir_all(&folder.0).expect("a temporary folder");
        let trace = folder.0.join("trace");
        let mut qemu = Command::new(judges.join("qemu-system-x86_64"));
        qemu.args(["-accel", "qtest", "-qtest", "stdio", "-qtest-log", "none", "-display", "none", "-nodefaults"]);
        // The model's memory begins at 4 GiB. QEMU's is not touched beyond what the test writes.
        qemu.args(["-M", "q35,kernel-irqchip=off", "-m", "6G", "-smp", "4"]);
        qemu.args(["-device", "intel-iommu,intremap=on,eim=on,posted-interrupts=on"]);
        for requester in REQUESTERS {
            let (slot, function) = (requester >> 3, requester & 7);
            qemu.args(["-device", &format!("edu,addr={slot:x}.{function},multifunction=on")]);
        }
        qemu.args(["-trace", "vtd_ir_notify", "-trace", "vtd_ir_remap", "-D"]).arg(&trace);
        let mut child =
            qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("QEMU runs");
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, to, from: BufReader::new(from), waiting: 0, trace, _folder: folder }
    }

    fn send(&mut self, command: &str) {
        writeln!(self.to, "{command}").expect("QEMU listens");
        self.waiting += 1;
    }

    /// The answer of the next command, without its OK.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).expect("QEMU answers") > 0, "QEMU has ended");
        self.waiting -= 1;
        line.trim().strip_prefix("OK").unwrap_or_else(|| panic!("QEMU says {line}")).trim().to_owned()
    }

    fn skip(&mut self) {
        while self.waiting > 0 {
            self.answer();
        }
    }

    fn write_config(&mut self, requester: u16, register: u64, value: u64) {
        self.send(&format!("outl 0xcf8 {:#x}", 0x8000_0000 | u64::from(requester) << 8 | register));
        self.send(&format!("outl 0xcfc {value:#x}"));
    }

    fn read_config(&mut self, requester: u16, register: u64) -> u64 {
        self.skip();
        self.send(&format!("outl 0xcf8 {:#x}", 0x8000_0000 | u64::from(requester) << 8 | register));
        self.send("inl 0xcfc");
        self.answer();
        u64::from_str_radix(self.answer().trim_start_matches("0x"), 16).expect("a number")
    }

    /// Turns remapping on, with the table at `table`, and gives the devices addresses.
    fn enable(&mut self, table: u64, extended: bool) -> u64 {
        let mode = if extended { 0x807 } else { 7 };
        self.send(&format!("writeq {:#x} {:#x}", UNIT + 0xb8, table | mode));
        // SIRTP, bit 24; IRE, bit 25.
        self.send(&format!("writel {:#x} {:#x}", UNIT + 0x18, 0x0100_0000));
        self.send(&format!("writel {:#x} {:#x}", UNIT + 0x18, 0x0200_0000));
        let capability = self.read_config(REQUESTERS[0], 0x34) & 0xff;
        assert_eq!(self.read_config(REQUESTERS[0], capability) & 0xff, 5, "a capability other than MSI");
        for (index, requester) in REQUESTERS.into_iter().enumerate() {
            self.write_config(requester, 0x10, BAR + ((index as u64) << 20));
            // Memory and bus master.
            self.write_config(requester, 4, 6);
            // MSI enable, bit 16; upper address.
            let control = self.read_config(requester, capability) | 1 << 16;
            self.write_config(requester, capability, control);
            self.write_config(requester, capability + 8, 0);
        }
        self.skip();
        capability
    }

    /// The interrupts that QEMU has delivered.
    fn ended(mut self) -> Vec<(u32, u8)> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let trace = std::fs::read_to_string(&self.trace).expect("QEMU's trace");
        // A local APIC takes no vector below 16, such as that of a descriptor that was never written.
        trace.lines().filter_map(delivered).filter(|(_, vector)| *vector >= 16).collect()
    }
}

/// The interrupt that a line of the trace tells of: (APIC id, vector).
fn delivered(line: &str) -> Option<(u32, u8)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let event = words.iter().position(|word| word.ends_with("vtd_ir_notify") || word.ends_with("vtd_ir_remap"))?;
    let after = |name| {
        let at = event + words[event..].iter().position(|word| *word == name)?;
        words.get(at + 1)
    };
    let destination = u32::from_str_radix(after("dest")?.trim_start_matches("0x"), 16).ok()?;
    Some((destination, after("vector")?.parse().ok()?))
}

/// Sends a batch to QEMU and reads the results of its messages.
fn judge(qemu: &mut Qemu, rig: &Rig, capability: u64, steps: &[Step]) -> Vec<Result> {
    let (table, memory) = (rig.table.device_address().0, rig.address(0));
    let mut results = Vec::new();
    for step in steps {
        match step {
            Step::Entry { index, low, high } => {
                qemu.send(&format!("writeq {:#x} {low:#x}", table + index * 16));
                qemu.send(&format!("writeq {:#x} {high:#x}", table + index * 16 + 8));
            }
            Step::Descriptor { index, words } => {
                let bytes: String =
                    words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect();
                qemu.send(&format!("write {:#x} 64 0x{bytes}", memory + index * 64));
            }
            Step::Message { requester, address, data } => {
                let device = REQUESTERS.iter().position(|known| known == requester).expect("a device") as u64;
                qemu.write_config(*requester, capability + 4, *address);
                qemu.write_config(*requester, capability + 12, u64::from(*data));
                qemu.send(&format!("writel {:#x} 1", BAR + (device << 20) + 0x60));
                qemu.skip();
                qemu.send(&format!("read {memory:#x} {}", 64 * DESCRIPTORS));
                // The one fault record, at CAP.FRO 0x22; writing F clears it.
                qemu.send(&format!("readq {:#x}", UNIT + 0x220));
                qemu.send(&format!("readq {:#x}", UNIT + 0x228));
                qemu.send(&format!("writel {:#x} 0x80000000", UNIT + 0x22c));
                results.push(result(qemu));
            }
        }
    }
    qemu.skip();
    results
}

fn result(qemu: &mut Qemu) -> Result {
    let bytes = qemu.answer();
    let digits = bytes.trim_start_matches("0x").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("a byte");
    let descriptors = digits.chunks_exact(2).map(byte).collect();
    let number = |text: String| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    let (low, high) = (number(qemu.answer()), number(qemu.answer()));
    let fault = (high >> 63 == 1).then_some((high >> 32 & 0xff, high & 0xffff, low >> 48));
    Result { descriptors, fault }
}

/// The same batch on the model.
fn model(rig: &mut Rig, steps: &[Step]) -> Vec<Result> {
    let mut results = Vec::new();
    for step in steps {
        match step {
            Step::Entry { index, low, high } => {
                rig.entry(*index as usize, *low, *high);
                rig.invalidate(&[(0x4, 0)]);
            }
            Step::Descriptor { index, words } => {
                for (at, word) in words.iter().enumerate() {
                    rig.memory.words()[*index as usize * 8 + at].set(*word);
                }
            }
            Step::Message { requester, address, data } => {
                let refused = rig.counter("refused");
                rig.message(*requester, *address, u32::from(*data));
                let fault = if rig.counter("refused") > refused { take_record(rig) } else { None };
                let words = rig.memory.words()[..8 * DESCRIPTORS as usize].iter();
                results.push(Result { descriptors: words.flat_map(|word| word.get().to_le_bytes()).collect(), fault });
            }
        }
    }
    results
}

/// The model's one fault record, if its F is set, which is then cleared.
fn take_record(rig: &mut Rig) -> Option<(u64, u64, u64)> {
    let at = (rig.read64(0x08) >> 24 & 0x3ff) as u32 * 16;
    let (low, high) = (rig.read64(at), rig.read64(at + 8));
    rig.write32(at + 12, 0x8000_0000);
    (high >> 63 == 1).then_some((high >> 32 & 0xff, high & 0xffff, low >> 48))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Compares `messages` messages. Returns how many there were, and how many were posted, notified, and refused with a
/// record.
fn compare(judges: &Path, seed: u64, messages: u64, extended: bool) -> [u64; 4] {
    let mut rig = Rig::new(Options { fault_records: 1, ..Options::default() });
    rig.enable(if extended { 0x800 } else { 0 });
    let mut qemu = Qemu::start(judges, if extended { "extended" } else { "xapic" });
    let capability = qemu.enable(rig.table.device_address().0, extended);
    let mut random = Random(seed);
    let (mut done, mut faults, mut log) = (0, 0, Vec::new());
    while done < messages {
        let steps: Vec<Step> = (0..BATCH).map(|_| step(&mut random, rig.address(0), extended)).collect();
        let theirs = judge(&mut qemu, &rig, capability, &steps);
        let ours = model(&mut rig, &steps);
        if let Some(at) = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs) {
            let of_message = |number: usize| {
                let sent = steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::Message { .. }));
                sent.map(|(at, _)| at).nth(number).expect("it was sent")
            };
            let before: Vec<String> = steps[..=of_message(at)].iter().map(|step| format!("{step:x?}")).collect();
            panic!(
                "SEED={seed}, message {}:\nmodel {:x?}\nQEMU  {:x?}\nafter\n{}",
                done + at as u64,
                ours[at],
                theirs[at],
                before.join("\n")
            );
        }
        faults += ours.iter().filter(|result| result.fault.is_some()).count() as u64;
        done += ours.len() as u64;
        log.append(&mut rig.interrupts());
    }
    let theirs = qemu.ended();
    let first = log.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    let around = first
        .map(|at| [&log, &theirs].map(|all| all[at.saturating_sub(3)..].iter().take(8).copied().collect::<Vec<_>>()));
    assert_eq!(around, None, "SEED={seed}: interrupts of the model and of QEMU around number {first:?}");
    assert_eq!(log.len(), theirs.len(), "SEED={seed}: interrupts");
    [done, rig.counter("posted"), rig.counter("notifications"), faults]
}

#[test]
fn qemu_and_the_model_agree() {
    let Some(judges) = std::env::var_os("CAMPANILE_JUDGES").map(PathBuf::from) else {
        println!("skipped: CAMPANILE_JUDGES does not name the folder of the judges' QEMU");
        return;
    };
    let (mut left, mut seed, mut totals) = (number("STEPS", 2_000), number("SEED", 1), [0; 4]);
    while left > 0 {
        // A seed has both modes.
        for extended in [true, false] {
            let messages = left.min(CHUNK);
            let sums = compare(&judges, seed, messages, extended);
            totals = std::array::from_fn(|index| totals[index] + sums[index]);
            left -= messages;
        }
        seed += 1;
    }
    let [messages, posted, notified, faults] = totals;
    println!("{messages} messages: {posted} posted, {notified} notified, {faults} fault records; no difference");
    assert!(posted * 4 > messages && notified * 20 > messages && faults * 50 > messages, "too little was tried");
}
