//! The HPET's timers as message lines (IA-PC HPET specification, "Timer N FSB Interrupt Route Register").
//!
//! Timer interrupts are never posted: [`crate::message::MessageDomain::new`] refuses a parent that posts.

use crate::message::MessageSource;
use crate::register::Typed as _;
use hal::Regs;
use irq::MsiMessage;
use spec::hpet::{
    CAPABILITIES, Capabilities, FsbRoute, TIMER_CONFIGURATION, TIMER_FSB_ROUTE, TIMER_STRIDE, TIMERS,
    TimerConfiguration,
};
use spec::register::{ReadWrite, Register};

/// The messages of an HPET, one for each timer.
pub struct HpetTimers<R> {
    regs: R,
    timers: u32,
}

impl<R: Regs> HpetTimers<R> {
    /// The timers of the HPET behind `regs`.
    pub fn new(regs: R) -> Self {
        let timers = u32::from(Capabilities::from_bits(regs.read(CAPABILITIES)).timers_less_one()) + 1;
        Self { regs, timers }
    }

    /// True when `timer` can deliver by message.
    pub fn can_send(&self, timer: u32) -> bool {
        timer < self.timers && self.configuration(timer).can_fsb()
    }

    fn register(timer: u32, register: Register<u64, ReadWrite>) -> Register<u64, ReadWrite> {
        register.behind(TIMERS + timer * TIMER_STRIDE)
    }

    fn configuration(&self, timer: u32) -> TimerConfiguration {
        TimerConfiguration::from_bits(self.regs.read(Self::register(timer, TIMER_CONFIGURATION)))
    }

    fn configure(&self, timer: u32, configuration: TimerConfiguration) {
        self.regs.write(Self::register(timer, TIMER_CONFIGURATION), configuration.into_bits());
    }
}

impl<R: Regs> MessageSource for HpetTimers<R> {
    fn chip_name(&self) -> &'static str {
        "HPET-MSI"
    }

    fn entries(&self) -> u32 {
        self.timers
    }

    /// A match of a timer whose interrupt is disabled leaves nothing behind in edge mode, the only mode with messages.
    fn forgets_masked(&self) -> bool {
        true
    }

    /// A timer has no mask bit, so masking disables the timer's interrupt.
    fn mask(&self, timer: u32) {
        self.configure(timer, self.configuration(timer).with_interrupt_enable(false));
        self.configuration(timer);
    }

    fn unmask(&self, timer: u32) {
        self.configure(timer, self.configuration(timer).with_fsb_enable(true).with_interrupt_enable(true));
    }

    fn write(&self, timer: u32, message: MsiMessage) {
        let route = FsbRoute::new().with_data(message.data).with_address(message.address as u32);
        self.regs.write(Self::register(timer, TIMER_FSB_ROUTE), route.into_bits());
        // The read waits for the write.
        self.regs.read(Self::register(timer, TIMER_FSB_ROUTE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Script;

    #[test]
    fn a_timer_sends_by_its_route() {
        let (script, regs) = Script::new();
        script.answer(0x000, &[0x0098_9680_8086_2201]);
        script.answer(0x140, &[0x8030]);
        let timers = HpetTimers::new(regs);
        assert_eq!(timers.entries(), 3);
        assert!(timers.can_send(2) && !timers.can_send(1) && !timers.can_send(3));
        timers.write(2, MsiMessage { address: 0xfee0_0030, data: 1 });
        assert!(script.is_pushed());
        timers.unmask(2);
        timers.mask(2);
        assert_eq!(script.writes(), [(0x150, 64, 0xfee0_0030_0000_0001), (0x140, 64, 0xc034), (0x140, 64, 0x8030)]);
    }
}
