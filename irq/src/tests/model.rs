//! A model of MSI devices and LAPICs: just enough to lose or misdeliver an interrupt.

use super::*;
use hal::Hal;

#[derive(Default)]
struct Apic {
    /// Requested vectors.
    irr: std::collections::BTreeSet<u8>,
    /// Vectors in service, the latest last.
    isr: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Device {
    message: MsiMessage,
    masked: bool,
    /// Raised while masked.
    held: bool,
}

#[derive(Default)]
struct State {
    apics: Vec<Apic>,
    devices: Vec<Device>,
    /// The target that the core has set for each hardware number at the root.
    targets: Vec<Option<Target>>,
}

/// All hardware.
pub(super) struct Model {
    hal: HostHal,
    state: Mutex<State>,
}

impl Model {
    pub(super) fn new(hal: HostHal, cpus: u32, devices: u32) -> Arc<Self> {
        let state = State {
            apics: (0..cpus).map(|_| Apic::default()).collect(),
            devices: (0..devices).map(|_| Device::default()).collect(),
            targets: (0..devices).map(|_| None).collect(),
        };
        Arc::new(Self { hal, state: Mutex::new(state) })
    }

    fn send(state: &mut State, message: MsiMessage) {
        state.apics[message.address as usize].irr.insert(message.data as u8);
    }

    /// The device raises its interrupt.
    pub(super) fn raise(&self, device: u32) {
        let mut state = self.state.lock().unwrap();
        let device = &mut state.devices[device as usize];
        match *device {
            Device { masked: true, .. } => device.held = true,
            Device { message, .. } => Self::send(&mut state, message),
        }
    }

    /// `cpu` accepts its highest request and calls `handle`. False if there was no request.
    pub(super) fn take(&self, cpu: CpuId, handle: impl FnOnce(Vector)) -> bool {
        let vector = {
            let apic = &mut self.state.lock().unwrap().apics[cpu.index()];
            let Some(vector) = apic.irr.pop_last() else { return false };
            apic.isr.push(vector);
            vector
        };
        self.hal.interrupt(cpu, || handle(Vector(vector)));
        let apic = &self.state.lock().unwrap().apics[cpu.index()];
        assert!(apic.isr.is_empty(), "vector {vector:#x} of CPU {cpu} was not ended");
        true
    }

    /// The CPU is reset. Its LAPIC loses all requests.
    pub(super) fn reset(&self, cpu: CpuId) {
        self.state.lock().unwrap().apics[cpu.index()].irr.clear();
    }
}

/// Root level.
pub(super) struct ApicChip(Arc<Model>);

impl ApicChip {
    fn end(&self) {
        let cpu = self.0.hal.cpu();
        let ended = self.0.state.lock().unwrap().apics[cpu.index()].isr.pop();
        assert!(ended.is_some(), "an EOI with nothing in service on CPU {cpu}");
    }
}

impl ApicChip {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        IrqChip::of("APIC", self)
            .ack(|chip, _| chip.end())
            .eoi(|chip, _| chip.end())
            .set_affinity(Self::set_affinity)
            .retrigger(Self::retrigger)
            .compose_message(Self::compose_message)
            .is_pending(Self::is_pending)
            .build()
    }
    fn set_affinity(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        self.0.state.lock().unwrap().targets[level.hwirq().0 as usize] = Some(target);
        Ok(())
    }
    fn retrigger(&self, level: &Level<'_>) -> bool {
        let mut state = self.0.state.lock().unwrap();
        let target = state.targets[level.hwirq().0 as usize].unwrap();
        state.apics[target.cpu.index()].irr.insert(target.vector().unwrap().0)
    }
    fn compose_message(&self, level: &Level<'_>) -> Result<MsiMessage, IrqError> {
        let target = self.0.state.lock().unwrap().targets[level.hwirq().0 as usize].unwrap();
        Ok(MsiMessage { address: target.cpu.0.into(), data: target.vector().unwrap().0.into() })
    }
    fn is_pending(&self, _: &Level<'_>, target: Target) -> bool {
        target.cpu != self.0.hal.cpu()
            || self.0.state.lock().unwrap().apics[target.cpu.index()].irr.contains(&target.vector().unwrap().0)
    }
}

/// Device level.
pub(super) struct MsiChip {
    model: Arc<Model>,
    kind: Kind,
}

/// The operations of devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) maskable: bool,
    pub(super) moves_on_ack: bool,
}

impl MsiChip {
    fn chip(self: &Arc<Self>) -> Arc<IrqChip> {
        let behaviour = ChipBehaviour { moves_on_ack: self.kind.moves_on_ack, ..ChipBehaviour::default() };
        let chip = IrqChip::of("MSI", self).behaviour(behaviour).write_message(Self::write_message);
        when(self.kind.maskable, chip, |chip| chip.mask(Self::mask, Self::unmask)).build()
    }
    fn mask(&self, level: &Level<'_>) {
        self.model.state.lock().unwrap().devices[level.hwirq().0 as usize].masked = true;
    }
    fn unmask(&self, level: &Level<'_>) {
        let mut state = self.model.state.lock().unwrap();
        let device = &mut state.devices[level.hwirq().0 as usize];
        device.masked = false;
        if core::mem::take(&mut device.held) {
            let message = device.message;
            Model::send(&mut state, message);
        }
    }
    fn write_message(&self, level: &Level<'_>, message: MsiMessage) {
        self.model.state.lock().unwrap().devices[level.hwirq().0 as usize].message = message;
    }
}

/// The chip of either level; `outer` selects it.
pub(super) struct ModelDomain {
    chip: Arc<IrqChip>,
    outer: Option<Arc<ModelDomain>>,
}

impl ModelDomain {
    pub(super) fn new(model: &Arc<Model>, kind: Kind) -> Self {
        let root = Self { chip: Arc::new(ApicChip(model.clone())).chip(), outer: None };
        Self { chip: Arc::new(MsiChip { model: model.clone(), kind }).chip(), outer: Some(Arc::new(root)) }
    }
}

impl IrqDomain for ModelDomain {
    fn name(&self) -> &str {
        self.chip.name()
    }
    fn parent(&self) -> Option<Arc<dyn IrqDomain>> {
        self.outer.clone().map(|outer| outer as Arc<dyn IrqDomain>)
    }
    fn allocate(&self, request: &AllocRequest) -> Result<LevelData, IrqError> {
        Ok(LevelData { chip: self.chip.clone(), hwirq: HardwareIrq(request.index.into()) })
    }
    fn activate(&self, level: &Level<'_>, target: Target) -> Result<(), IrqError> {
        match level.parent() {
            None => self.chip.set_affinity(level, target),
            Some(parent) => {
                level.chip().write_message(level, parent.chip().compose_message(&parent)?);
                Ok(())
            }
        }
    }
    fn release(&self, _: HardwareIrq) {}
}
