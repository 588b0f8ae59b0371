//! The NVMe drive: registers, queues, PRP lists.

use super::host::{Bus, Host, Window, on_machine};
use hal::{Hal as _, Regs as _};
use machine::Interrupts;
use machine::nvme::{Config, Latency, Nvme, Spread, StorageKind};
use machine::time::Ps;
use machine::{Machine, Regs};

/// Pages of the host's memory: admin queue, then I/O queues of [`ENTRIES`], then data and lists.
const ADMIN_SQ: u64 = 0;
const ADMIN_CQ: u64 = 0x1000;
const IO_SQ: u64 = 0x2000;
const IO_CQ: u64 = 0x3000;
const DATA_PAGES: u64 = 16;
const ENTRIES: u16 = 16;

fn config() -> Config {
    let mut config = Config {
        blocks: 0x1000,
        io_queues_max: 3,
        vectors: 4,
        queue_entries_max: 64,
        storage: StorageKind::Memory,
        ..Config::default()
    };
    let fixed = |us: u64| Latency { mean: Ps::from_ns(us * 1000), spread: Spread::Fixed, tail: None };
    config.timing.enable = Ps::from_ns(5_000);
    config.timing.reset = Ps::from_ns(5_000);
    config.timing.shutdown = Ps::from_ns(5_000);
    config.timing.admin = Ps::from_ns(500);
    (config.timing.read, config.timing.write, config.timing.flush) = (fixed(5), fixed(3), fixed(1));
    config
}

/// Accesses registers of every region, puts commands on both queues, rings doorbells with any value, and builds lists
/// that point anywhere.
pub(crate) fn nvme(data: &[u8]) {
    let build = |machine: &mut Machine| {
        let bus = machine.add_model(|_| Box::new(Bus::default()));
        let drive = machine.add_model(|_| Box::new(Nvme::new(bus, config()).expect("valid")));
        let bases: [&'static [u32]; 3] = [&[0, 0x1000], &[0, 0x800], &[0, 0x40]];
        (0..3).map(|region| Window::new(machine.regs(drive, region as u8), bases[region])).collect()
    };
    on_machine(data, Interrupts::X2Apic, build, |host| {
        let mut drive = Drive { regs: host.windows[0].regs, tails: [0; 2] };
        if !host.input.one_in(8) {
            drive.bring_up(host);
        }
        while host.goes_on() {
            match host.input.u8() % 4 {
                0 => host.step(),
                1 => drive.doorbell(host),
                _ => drive.command(host),
            }
        }
        drive.recovers(host);
    });
}

/// The address of a page for data and lists.
fn page(host: &mut Host<'_>) -> u64 {
    let number = 4 + u64::from(host.input.u8()) % DATA_PAGES;
    host.address(number * 4096)
}

struct Drive {
    regs: Regs,
    /// Tails of the admin queue and of I/O queue 1.
    tails: [u16; 2],
}

impl Drive {
    /// Sets up as software does: MSI-X, the admin queue, one I/O queue pair with a vector.
    fn bring_up(&mut self, host: &Host<'_>) {
        for vector in 0..4 {
            host.windows[1].regs.write32(vector * 16, 0xfee0_0000);
            host.windows[1].regs.write32(vector * 16 + 8, 0x40 + vector);
            host.windows[1].regs.write32(vector * 16 + 12, 0);
        }
        host.windows[2].regs.write32(0x40, 0x8000_0000);
        self.enable(host);
        let entries = u64::from(ENTRIES - 1) << 16;
        self.push(host, 0, [0x05, 0, 0, host.address(IO_CQ), 0, 1 | entries | (3 | 1 << 16) << 32, 0, 0]);
        self.push(host, 0, [0x01, 0, 0, host.address(IO_SQ), 0, 1 | entries | (1 | 1 << 16) << 32, 0, 0]);
        machine::SimHal.delay_ns(5_000);
    }

    /// AQA, ASQ, ACQ, CC.EN with entries of 64 and 16 bytes.
    fn enable(&mut self, host: &Host<'_>) {
        self.tails = [0; 2];
        let last = u32::from(ENTRIES) - 1;
        self.regs.write32(0x24, last << 16 | last);
        self.regs.write64(0x28, host.address(ADMIN_SQ));
        self.regs.write64(0x30, host.address(ADMIN_CQ));
        self.regs.write32(0x14, 0x0046_0001);
        machine::SimHal.delay_ns(6_000);
    }

    fn push(&mut self, host: &Host<'_>, queue: usize, command: [u64; 8]) {
        let start = [ADMIN_SQ, IO_SQ][queue] as usize / 8;
        host.put(start + usize::from(self.tails[queue]) * 8, &command);
        self.tails[queue] = (self.tails[queue] + 1) % ENTRIES;
        self.regs.write32(0x1000 + 8 * queue as u32, self.tails[queue].into());
    }

    /// A command that is often nearly right. A list may be torn, point to itself, or point outside memory.
    fn command(&mut self, host: &mut Host<'_>) {
        let queue = usize::from(host.input.u8() & 1);
        let opcode = u64::from(host.input.u8() % 32);
        let cid = u64::from(host.input.u8()) << 16;
        let nsid = if host.input.one_in(8) { u64::from(host.input.u32()) } else { 1 };
        let prp = [self.pointer(host), self.pointer(host)];
        let dwords = [host.input.u16(), host.input.u16(), host.input.u16(), host.input.u16()].map(u64::from);
        // For some commands dword 10 is a queue and its size, for others dword 12 is a length.
        let ten = if host.input.flag() { dwords[0] & 0x3 | (dwords[0] >> 8) << 16 } else { dwords[0] };
        let words = [
            opcode | cid | nsid << 32,
            0,
            0,
            prp[0],
            prp[1],
            ten | dwords[1] << 32,
            dwords[2] & 0xff | dwords[3] << 32,
            0,
        ];
        self.push(host, queue, words);
    }

    fn pointer(&self, host: &mut Host<'_>) -> u64 {
        if host.input.one_in(4) {
            return host.value();
        }
        let at = page(host);
        match host.input.u8() % 4 {
            0 => at | 0xff8,
            1 => at | u64::from(host.input.u16()) & 0xffc,
            2 => {
                // A list whose entries are pages; the last entry points to another list, perhaps to this one.
                let next = page(host);
                let word = ((at - host.address(0)) / 8) as usize;
                host.put(word, &[next; 511]);
                let last = if host.input.flag() { at } else { host.value() };
                host.put(word + 511, &[last]);
                at
            }
            _ => at,
        }
    }

    fn doorbell(&self, host: &mut Host<'_>) {
        let value =
            if host.input.one_in(4) { host.input.u32() } else { u32::from(host.input.u8() % (ENTRIES as u8 + 2)) };
        self.regs.write32(0x1000 + 4 * u32::from(host.input.u8() % 10), value);
    }

    /// After any input, a reset makes it a working drive again. CC first enables, so that there is a falling edge.
    fn recovers(&mut self, host: &Host<'_>) {
        machine::SimHal.delay_ns(50_000);
        self.regs.write32(0x14, 1);
        machine::SimHal.delay_ns(20_000);
        self.regs.write32(0x14, 0);
        machine::SimHal.delay_ns(20_000);
        assert_eq!(self.regs.read32(0x1c), 0, "CSTS after a reset");
        self.enable(host);
        assert_eq!(self.regs.read32(0x1c), 1, "CSTS.RDY");
        // Set Features, number of queues: its entry comes, phase 1 in the new pass, status 0.
        host.put(ADMIN_CQ as usize / 8, &[0; 2]);
        self.push(host, 0, [0x09 | 0x77 << 16, 0, 0, 0, 0, 0x07, 0, 0]);
        machine::SimHal.delay_ns(20_000);
        let entry = hal::Word::get(&hal::Dma::words(&host.memory)[ADMIN_CQ as usize / 8 + 1]);
        assert_eq!(entry >> 32, 0x0001_0077, "the entry of the first command after a reset");
    }
}
