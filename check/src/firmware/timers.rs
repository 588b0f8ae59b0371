//! The HPET's timers (IA-PC HPET specification 1.0a, 2.3).

use super::described::wide;
use super::regs::Ram;
use crate::draw::Draw;
use crate::trials::same;
use drivers::hpet::HpetTimers;
use drivers::message::MessageSource as _;
use irq::MsiMessage;

/// Bits of a timer's configuration: interrupt enable, FSB enable, FSB capable.
const ENABLE: u64 = 1 << 2;
const FSB: u64 = 1 << 14;
const CAN_FSB: u64 = 1 << 15;

pub(super) fn timers(draw: &mut Draw) -> Result<(), String> {
    let count = draw.within(1..=32) as u32;
    let ram = Ram::new(vec![0; 0x500]);
    // Revision, vendor and period do not matter, nor the flags beside the count.
    let capabilities = wide(draw, 62) & !0x1f00 | u64::from(count - 1) << 8;
    ram.set(0, 8, capabilities);
    let at = |timer: u32| 0x100 + 0x20 * timer;
    let mut model: Vec<(u64, u64)> = (0..32).map(|_| (wide(draw, 62), wide(draw, 62))).collect();
    for (timer, &(configuration, route)) in (0..).zip(&model) {
        ram.set(at(timer), 8, configuration);
        ram.set(at(timer) + 0x10, 8, route);
    }
    let timers = HpetTimers::new(ram.window());
    same("timers", &count, &timers.entries())?;
    for timer in 0..34 {
        let can = timer < count && model.get(timer as usize).is_some_and(|it| it.0 & CAN_FSB != 0);
        same(&format!("timer {timer} of {count} can send"), &can, &timers.can_send(timer))?;
    }
    for _ in 0..draw.within(1..=10) {
        let timer = draw.below(count.into()) as u32;
        let (configuration, route) = &mut model[timer as usize];
        match draw.below(3) {
            0 => {
                timers.mask(timer);
                *configuration &= !ENABLE;
            }
            1 => {
                timers.unmask(timer);
                *configuration |= ENABLE | FSB;
            }
            _ => {
                let (address, data) = (wide(draw, 32), wide(draw, 32) as u32);
                timers.write(timer, MsiMessage { address, data });
                *route = address << 32 | u64::from(data);
            }
        }
        for (timer, &expected) in (0..).zip(&model) {
            let found = (ram.get(at(timer), 8), ram.get(at(timer) + 0x10, 8));
            same(&format!("configuration and route of timer {timer}"), &expected, &found)?;
        }
    }
    Ok(())
}
