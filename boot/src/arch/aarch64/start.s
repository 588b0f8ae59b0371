// From the reset of each CPU to Rust, and from each exception there and back.
// Arm Architecture Reference Manual (DDI 0487), D1 and D13.

.section .text.boot, "ax"
.global _start
_start:
    mrs     x20, CurrentEL
    lsr     x20, x20, #2
    bl      to_el1
    adrp    x0, __bss_start
    add     x0, x0, :lo12:__bss_start
    adrp    x1, __bss_end
    add     x1, x1, :lo12:__bss_end
1:  cmp     x0, x1
    b.hs    2f
    stp     xzr, xzr, [x0], #16
    b       1b
2:  adrp    x0, BOOT_STACK
    add     x0, x0, :lo12:BOOT_STACK
    add     x0, x0, #0x10000
    mov     sp, x0
    bl      mmu_on
    mov     x0, x20
    b       boot_cpu_main

// Another CPU: x0 is the top of its stack, where its number lies.
.global _start_secondary
_start_secondary:
    mov     x19, x0
    bl      to_el1
    mov     sp, x19
    bl      mmu_on
    ldr     x0, [x19]
    b       secondary_cpu_main

// Leaves EL2, if the machine started there, for EL1 with interrupts masked (DDI 0487 D1.6).
to_el1:
    mrs     x0, CurrentEL
    cmp     x0, #(2 << 2)
    b.ne    1f
    mov     x0, #(1 << 31)              // HCR_EL2.RW: EL1 is AArch64
    msr     hcr_el2, x0
    mov     x0, #3                      // CNTHCTL_EL2: EL1 may use counter and timer
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr
    mov     x0, #0x33ff                 // CPTR_EL2: traps nothing
    msr     cptr_el2, x0
    mrs     x0, mpidr_el1
    msr     vmpidr_el2, x0
    mrs     x0, midr_el1
    msr     vpidr_el2, x0
    mrs     x0, id_aa64pfr0_el1
    tst     x0, #(0xf << 24)            // GIC system registers?
    b.eq    0f
    mrs     x0, S3_4_C12_C9_5           // ICC_SRE_EL2: SRE and Enable, so that EL1 may use them
    orr     x0, x0, #1
    orr     x0, x0, #8
    msr     S3_4_C12_C9_5, x0
    isb
0:  mov     x0, #0x3c5                  // EL1h, DAIF masked
    msr     spsr_el2, x0
    msr     elr_el2, x30
    eret
1:  ret

// One gigabyte a block, one to one: the first are devices, what follows up to 256 GiB is memory, and what is above
// (the high PCIe windows) is devices again. TABLE is filled by Rust's constant.
mmu_on:
    adrp    x0, TABLE
    add     x0, x0, :lo12:TABLE
    msr     ttbr0_el1, x0
    ldr     x0, =0xff00                 // MAIR: 0 device-nGnRnE, 1 normal write-back
    msr     mair_el1, x0
    ldr     x0, =0x200803519            // 39 bits, 4 KiB, inner shareable write-back, no TTBR1, 40-bit output
    msr     tcr_el1, x0
    adrp    x0, vectors
    add     x0, x0, :lo12:vectors
    msr     vbar_el1, x0
    isb
    tlbi    vmalle1
    dsb     nsh
    isb
    mrs     x0, sctlr_el1
    mov     x1, #0x1005                 // I, C, M
    orr     x0, x0, x1
    bic     x0, x0, #2                  // no alignment checks
    msr     sctlr_el1, x0
    isb
    ret

.text
// switch_stack(save: *mut usize, next: usize): leaves this stack for another (AAPCS64: x19 to x30 are the callee's).
.global switch_stack
switch_stack:
    stp     x19, x20, [sp, #-96]!
    stp     x21, x22, [sp, #16]
    stp     x23, x24, [sp, #32]
    stp     x25, x26, [sp, #48]
    stp     x27, x28, [sp, #64]
    stp     x29, x30, [sp, #80]
    mov     x9, sp
    str     x9, [x0]
    mov     sp, x1
    ldp     x21, x22, [sp, #16]
    ldp     x23, x24, [sp, #32]
    ldp     x25, x26, [sp, #48]
    ldp     x27, x28, [sp, #64]
    ldp     x29, x30, [sp, #80]
    ldp     x19, x20, [sp], #96
    ret

.macro exception kind
    .balign 128
    stp     x29, x30, [sp, #-192]!
    stp     x0, x1, [sp, #16]
    mov     x0, #\kind
    b       exception_entry
.endm

// Only what comes from EL1 on its own stack is expected; the kind is told to Rust.
.balign 2048
vectors:
    exception 16
    exception 17
    exception 18
    exception 19
    exception 0
    exception 1
    exception 2
    exception 3
    exception 20
    exception 21
    exception 22
    exception 23
    exception 24
    exception 25
    exception 26
    exception 27

exception_entry:
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    stp     x8, x9, [sp, #80]
    stp     x10, x11, [sp, #96]
    stp     x12, x13, [sp, #112]
    stp     x14, x15, [sp, #128]
    stp     x16, x17, [sp, #144]
    mrs     x1, elr_el1
    mrs     x2, spsr_el1
    stp     x18, x1, [sp, #160]
    str     x2, [sp, #176]
    bl      exception
    ldr     x2, [sp, #176]
    ldp     x18, x1, [sp, #160]
    msr     elr_el1, x1
    msr     spsr_el1, x2
    ldp     x16, x17, [sp, #144]
    ldp     x14, x15, [sp, #128]
    ldp     x12, x13, [sp, #112]
    ldp     x10, x11, [sp, #96]
    ldp     x8, x9, [sp, #80]
    ldp     x6, x7, [sp, #64]
    ldp     x4, x5, [sp, #48]
    ldp     x2, x3, [sp, #32]
    ldp     x0, x1, [sp, #16]
    ldp     x29, x30, [sp], #192
    eret

// The boot CPU's stack; it idles there later.
.bss
.balign 16
BOOT_STACK:
    .space  0x10000
