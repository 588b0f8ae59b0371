//! What the chips of drives' interrupts say of how these came, and what the simulated deliveries lack of it.
//!
//! The names are those that Linux prints (`arch/*`, `drivers/irqchip`, `drivers/pci/controller`, `drivers/xen/events`).

use import::interrupts::{Difference, Interrupts, Line};

/// How a chip delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct How {
    /// The name of a variant, as long as no notification says that messages were posted.
    pub delivery: &'static str,
    /// Why no simulated delivery describes it.
    pub lacks: Option<&'static str>,
}

/// Chips whose names begin so, and what their interrupts are.
const OTHERS: [(&[&str], &str); 9] = [
    (&["ITS-v5-"], "a GICv5 delivers by its routing service and not by redistributors"),
    (&["xen-"], "Xen takes each message and tells the system of it by an event channel"),
    (&["Hyper-V", "HV-"], "Hyper-V takes each message and passes it on"),
    (&["XIVE", "XICS", "PNV-", "pSeries-"], "PowerPC's controllers (XIVE, XICS) have sources and queues of their own"),
    (&["RISC-V", "IMSIC", "APLIC", "SiFive"], "RISC-V's controllers (IMSIC, APLIC, PLIC) are not modelled"),
    (&["PCH", "AVEC", "EIOINTC"], "LoongArch's controllers are not modelled"),
    (&["zPCI"], OF_S390),
    (&["GICv2m", "MBI", "MSI", "GIC"], "a GIC without an ITS makes a message a shared interrupt"),
    (&["IO-APIC", "IR-IO-APIC", "XT-PIC"], "they came by a wire, and not as messages"),
];

const OF_S390: &str = "s390 sets bits in memory, and one interrupt announces many of them";

/// How the interrupts of a line came. `is_s390`: that architecture's chip has the name of another's.
fn of(line: &Line, is_s390: bool) -> How {
    let text = line.text.as_str();
    let begins = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    // `vIR-` is the unit of a guest.
    let delivery = if begins(&["IR-", "vIR-", "ITS"]) { "remapped" } else { "plain" };
    let other = OTHERS.iter().find(|(starts, _)| begins(starts)).map(|(_, why)| *why);
    // Of the others, x86 alone puts the trigger behind a hyphen.
    let is_spelled = text.split_whitespace().any(|word| matches!(word, "Edge" | "Level"));
    let is_known = delivery == "remapped" || begins(&["VMD-"]) || begins(&["PCI-MSI"]) && !is_spelled;
    let lacks = match () {
        () if is_s390 => Some(OF_S390),
        () if is_known || other.is_some() => other,
        () => Some("the chip is none of x86 or of a GIC with an ITS"),
    };
    How { delivery, lacks }
}

/// How most of these interrupts came. What no simulated delivery describes, and those that came otherwise, are notes.
pub(super) fn delivery(queues: &[&Difference], after: &Interrupts, notes: &mut Vec<String>) -> &'static str {
    let is_s390 = ["EXT", "I/O", "AIO"].iter().any(|id| after.line(id).is_some());
    let count = |delivery: &str| -> u64 {
        let came = queues.iter().filter(|queue| of(&queue.line, is_s390).delivery == delivery);
        came.map(|queue| queue.total()).fold(0, u64::saturating_add)
    };
    let [plain, remapped] = ["plain", "remapped"].map(count);
    let (delivery, other, few) =
        if remapped >= plain { ("remapped", "plain", plain) } else { ("plain", "remapped", remapped) };
    if few > 0 {
        notes.push(format!(
            "interrupts: {few} of {} came {other}; all are taken as {delivery}",
            plain.saturating_add(remapped)
        ));
    }
    let lacking = queues.iter().find_map(|queue| Some((queue, of(&queue.line, is_s390).lacks?)));
    if let Some((queue, why)) = lacking {
        let chip = queue.line.chip_name();
        notes.push(format!(
            "interrupts: counted as {delivery}, since {why} ({chip}): the simulated deliveries (plain, remapped, posted) do not have it"
        ));
    } else if let Some(line) = ["HVS", "HYP"].iter().find_map(|id| after.line(id)).filter(|line| line.total() > 0) {
        notes.push(format!(
            "interrupts: the server is a virtual machine (line {}): what its host does with an interrupt is not modelled",
            line.id
        ));
    }
    delivery
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(lines: &str) -> (&'static str, String) {
        let [before, after] = [1, 5]
            .map(|count| Interrupts::parse(format!("CPU0\n{}\n", lines.replace('#', &count.to_string())).as_bytes()));
        let differences = before.until(&after);
        let queues: Vec<&Difference> = differences.iter().filter(|one| one.line.nvme_queue().is_some()).collect();
        let mut notes = Vec::new();
        let delivery = delivery(&queues, &after, &mut notes);
        (delivery, notes.join("\n"))
    }

    #[test]
    fn what_no_delivery_describes_is_said() {
        for (text, expected, why) in [
            ("PCI-MSI 1-edge nvme0q1", "plain", ""),
            ("PCI-MSI-edge nvme0q1", "plain", ""),
            ("PCI-MSIX-0000:01:00.0 1-edge nvme0q1", "plain", ""),
            ("IR-PCI-MSIX-0000:01:00.0 1-edge nvme0q1", "remapped", ""),
            ("ITS-MSI 524289 Edge nvme0q1", "remapped", ""),
            ("ITS-PCI-MSIX-0000:01:00.0 1 Edge nvme0q1", "remapped", ""),
            ("ITS-v5-PCI-MSIX-0000:01:00.0 1 Edge nvme0q1", "remapped", "routing service"),
            ("xen-pirq    -msi-x     nvme0q1", "plain", "(xen-pirq -msi-x)"),
            ("Hyper-V PCIe MSI 1073741824-edge      nvme0q1", "plain", "(Hyper-V PCIe MSI)"),
            ("HV-PCI-MSIX-0002:00:00.0   1-edge      nvme0q1", "plain", "Hyper-V takes"),
            ("XIVE-IRQ 1048578 Edge      nvme0q1", "plain", "(XIVE-IRQ)"),
            ("pSeries-PCI-MSI 1048578 Edge      nvme0q1", "plain", "PowerPC"),
            ("RISC-V INTC  13 Edge  nvme0q1", "plain", "(RISC-V INTC)"),
            ("PCI-MSIX-0000:01:00.0   1 Edge      nvme0q1", "plain", "none of x86"),
            ("PCH PCI MSI 17 nvme0q1", "plain", "(PCH PCI MSI)"),
            ("GICv2m-PCI-MSIX-0000:01:00.0 1 Edge nvme0q1", "plain", "without an ITS"),
            ("IO-APIC  16-fasteoi   nvme0q1", "plain", "by a wire"),
            ("IR-IO-APIC  16-fasteoi   nvme0q1", "remapped", "by a wire"),
            ("PCI-MSI 1-edge nvme0q1\nHVS: # Hyper-V stimer0 interrupts", "plain", "virtual machine (line HVS)"),
            ("PCI-MSI 1-edge nvme0q1\nEXT: 9\nI/O: 9", "plain", "s390"),
            ("IR-PCI-MSI 1-edge nvme0q1\n 8: # PCI-MSI 1-edge nvme1q1", "remapped", "4 of 8 came plain"),
        ] {
            let (delivery, notes) = notes(&format!(" 7: # {text}"));
            assert_eq!(delivery, expected, "{text}");
            assert!(notes.contains(why) && notes.is_empty() == why.is_empty(), "{text}: {notes}");
        }
    }
}
