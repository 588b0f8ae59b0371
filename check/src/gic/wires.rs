//! Drivers for the hardware between bells and the GIC: the bells' messages, and the block of pins.

use super::bells::{ADDRESS, BellPort, DATA, DISABLE, ENABLE, MASK, PINS, SET, STATUS};
use drivers::message::MessageSource;
use hal::Regs as _;
use irq::{
    AllocRequest, ChipBehaviour, Flow, HardwareIrq, IrqChip, IrqDomain, IrqError, IrqReturn, Level, LevelData,
    MsiMessage, Target, Trigger,
};
use machine::Regs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bells that write messages, as entries of one function.
#[derive(Clone)]
pub(super) struct BellMessages(pub(super) Arc<[BellPort]>);

impl MessageSource for BellMessages {
    fn chip_name(&self) -> &'static str {
        "BELL-MSI"
    }
    fn entries(&self) -> u32 {
        self.0.len() as u32
    }
    fn has_wide_address(&self) -> bool {
        true
    }
    fn mask(&self, entry: u32) {
        let bell = &self.0[entry as usize];
        bell.regs.write32(bell.at(MASK), 1);
        bell.regs.read32(bell.at(MASK));
    }
    fn unmask(&self, entry: u32) {
        let bell = &self.0[entry as usize];
        bell.regs.write32(bell.at(MASK), 0);
    }
    /// Masked meanwhile: a message sent between the two writes would be neither the old nor the new one.
    fn write(&self, entry: u32, message: MsiMessage) {
        let bell = &self.0[entry as usize];
        let masked = bell.regs.read32(bell.at(MASK));
        self.mask(entry);
        bell.regs.write64(bell.at(ADDRESS), message.address);
        bell.regs.write32(bell.at(DATA), message.data);
        bell.regs.write32(bell.at(MASK), masked);
    }
}

/// A device without a mask of its own: its controller masks the interrupt.
pub(super) struct MasklessDomain {
    parent: Arc<dyn IrqDomain>,
    bells: Arc<Maskless>,
    chip: Arc<IrqChip>,
}

struct Maskless(BellMessages);

impl MasklessDomain {
    /// The lines of bells whose messages `parent` takes.
    pub(super) fn new(bells: BellMessages, parent: Arc<dyn IrqDomain>) -> Self {
        let bells = Arc::new(Maskless(bells));
        let chip = IrqChip::of("BELL-MSG", &bells)
            .behaviour(ChipBehaviour { oneshot_safe: true, ..ChipBehaviour::default() })
            .write_message(Maskless::write_message);
        Self { parent, bells, chip: chip.build() }
    }
}

impl Maskless {
    fn write_message(&self, level: &Level<'_>, message: MsiMessage) {
        let entry = level.hwirq().0 as u32;
        self.0.write(entry, message);
        self.0.unmask(entry);
    }
}

impl IrqDomain for MasklessDomain {
    fn name(&self) -> &str {
        "BELLS"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        Some(self.parent.clone())
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, level: &Level<'_>, _: Target) -> Result<(), IrqError> {
        self.chip.write_message(level, level.parent_message()?);
        Ok(())
    }
    fn release(&self, hwirq: HardwareIrq) {
        self.bells.0.mask(hwirq.0 as u32);
    }
}

/// The block of pins as a controller.
pub(super) struct Block {
    regs: Regs,
    /// By pin: 1 + its line.
    lines: [AtomicU32; PINS as usize],
}

impl Block {
    /// All pins disabled.
    pub(super) fn new(regs: Regs) -> Self {
        Self { regs, lines: Default::default() }
    }

    /// Asks which pins want service, and delivers them.
    pub(super) fn demultiplex(&self, core: &irq::IrqCore<machine::SimHal>) -> IrqReturn {
        let wants = self.regs.read32(STATUS);
        for pin in (0..PINS).filter(|pin| wants & 1 << pin != 0) {
            if let Some(line) = self.lines[pin as usize].load(Relaxed).checked_sub(1) {
                core.handle_irq(irq::Irq(line));
            }
        }
        // The read waits for the writes: the wire is let go of before the end of the interrupt.
        self.regs.read32(STATUS);
        if wants == 0 { IrqReturn::None } else { IrqReturn::Handled }
    }

    /// A write that has arrived.
    fn write(&self, register: u32, level: &Level<'_>) {
        self.regs.write32(register, 1 << level.hwirq().0);
        self.regs.read32(STATUS);
    }
}

impl Block {
    fn ack(&self, level: &Level<'_>) {
        self.write(STATUS, level);
    }
    fn mask(&self, level: &Level<'_>) {
        self.write(DISABLE, level);
    }
    fn unmask(&self, level: &Level<'_>) {
        self.write(ENABLE, level);
    }
    fn retrigger(&self, level: &Level<'_>) -> bool {
        self.write(SET, level);
        true
    }
    fn set_type(&self, _: &Level<'_>, trigger: Trigger) -> Result<Option<Flow>, IrqError> {
        Ok(Some(if trigger.is_level() { Flow::Level } else { Flow::Edge }))
    }
}

/// The domain of its pins.
pub(super) struct BlockDomain {
    block: Arc<Block>,
    chip: Arc<IrqChip>,
}

impl BlockDomain {
    pub(super) fn new(block: &Arc<Block>) -> Self {
        let chip = IrqChip::of("GPIO", block)
            .ack(Block::ack)
            .mask(Block::mask, Block::unmask)
            .retrigger(Block::retrigger)
            .set_type(Block::set_type);
        Self { block: block.clone(), chip: chip.build() }
    }
}

impl IrqDomain for BlockDomain {
    fn name(&self) -> &str {
        "GPIO"
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        None
    }
    fn needs_identity(&self) -> bool {
        false
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, level: &Level<'_>, _: Target) -> Result<(), IrqError> {
        self.block.lines[level.hwirq().0 as usize].store(level.irq().0 + 1, Relaxed);
        Ok(())
    }
    fn release(&self, _: HardwareIrq) {}
}
