//! What a core shows of its lines when all is at rest: nothing runs, waits or is held, and each view says the same.

use crate::verdict::violate;
use hal::Hal as _;
use irq::{IrqCore, LineView};
use machine::SimHal;

/// After its time a throttled line comes back by the timer of its CPU, within this time.
pub(crate) const THROTTLE_LATE_NS: u64 = 500_000;

/// Every CPU is online, no event is under way, and no manager works.
pub(crate) fn check(core: &IrqCore<SimHal>) {
    let views = core.views();
    views.iter().for_each(check_line);
    check_table(core, &views);
}

fn check_line(line: &LineView) {
    let throttled = line.throttled_until_ns.is_some();
    if line.in_progress || line.threads_working > 0 || !line.retired.is_empty() {
        violate("rest", format!("a line is at work:\n{line}"));
    }
    if !line.handlers.is_empty() && line.disabled_depth > 0 {
        violate("rest", format!("a line is disabled, and nobody has disabled it:\n{line}"));
    }
    let astray = line.effective.filter(|target| !line.affinity.contains(target.cpu));
    if let Some(target) = astray.filter(|_| !line.move_wanted && !line.handlers.is_empty()) {
        violate("affinity", format!("a line stays on CPU {}, which it may not use:\n{line}", target.cpu));
    }
    let late_ns = line.throttled_until_ns.map_or(0, |until_ns| SimHal.now_ns().saturating_sub(until_ns));
    if throttled && late_ns > THROTTLE_LATE_NS {
        violate("rest", format!("a line is still throttled, {late_ns} ns after its time:\n{line}"));
    }
}

/// `/proc/interrupts` shows the count of each line.
fn check_table(core: &IrqCore<SimHal>, views: &[LineView]) {
    let table = core.interrupts().to_string();
    let cpus = table.lines().next().map_or(0, |head| head.split_whitespace().count());
    for row in table.lines().skip(1) {
        let Some((label, counts)) = row.split_once(':') else { continue };
        let Ok(irq) = label.trim().parse::<u32>() else { continue };
        let shown: u64 = counts.split_whitespace().take(cpus).filter_map(|count| count.parse::<u64>().ok()).sum();
        // A line that was freed keeps its row until its storage has another one.
        let Some(line) = views.iter().find(|line| line.irq.0 == irq) else { continue };
        if line.count != shown {
            violate("rest", format!("the table shows {shown} interrupts of a line that counts {}:\n{row}", line.count));
        }
    }
}
