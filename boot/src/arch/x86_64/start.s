// From PVH's 32-bit entry, and from the start-up message of each other CPU, to 64-bit Rust; and from each exception there
// and back. Intel SDM vol. 3 ("SDM"); the PVH boot protocol (Xen's public headers, arch-x86/hvm/start_info.h).

// XEN_ELFNOTE_PHYS32_ENTRY: where a loader enters.
.section .note.pvh, "a", @note
.balign 4
    .long 4, 4, 18
    .asciz "Xen"
    .long _start

.section .text.boot, "ax"
.code32
.global _start
_start:
    // EBX: start_info. The tables fill themselves: one gigabyte a page, one to one (SDM 4.5).
    mov     edi, offset PDPT
    mov     eax, 0x83                   // present, writable, a page
    xor     edx, edx
    mov     ecx, 512
1:  mov     [edi], eax
    mov     [edi + 4], edx
    add     edi, 8
    add     eax, 0x40000000
    adc     edx, 0
    dec     ecx
    jnz     1b
    mov     eax, offset PDPT
    or      eax, 3
    mov     [PML4], eax
    mov     esi, offset BOOT_STACK + 0x10000
    mov     edi, offset boot_long
    jmp     long_mode
.code64
boot_long:
    mov     edi, ebx
    call    boot_cpu_main

// Paging and long mode on (SDM 9.8.5). ESI: the stack from then on; EDI: where to go in 64-bit mode.
.code32
long_mode:
    mov     esp, esi
    mov     eax, cr4
    or      eax, 0x620                  // PAE, OSFXSR, OSXMMEXCPT
    mov     cr4, eax
    mov     eax, offset PML4
    mov     cr3, eax
    mov     ecx, 0xc0000080             // EFER: LME
    rdmsr
    or      eax, 0x100
    wrmsr
    mov     eax, cr0
    or      eax, 0x80010003             // PG, WP, MP, PE
    and     eax, 0x9ffffffb             // caches on, no emulation
    mov     cr0, eax
    lgdt    [GDT_POINTER]
    push    8
    mov     eax, offset in_long_mode
    push    eax
    retf
.code64
in_long_mode:
    mov     eax, 16
    mov     ss, eax
    mov     ds, eax
    mov     es, eax
    mov     esp, esi
    mov     edi, edi
    jmp     rdi

// Another CPU, in real mode, copied to 8000h. The word behind the code is the top of its stack.
.balign 16
.global trampoline_start
trampoline_start:
.code16
    cli
    xor     ax, ax
    mov     ds, ax
    // LGDT of the pointer below, with a 32-bit base.
    .byte   0x66, 0x0f, 0x01, 0x16
    .word   0x8000 + trampoline_pointer - trampoline_start
    mov     eax, cr0
    or      eax, 1
    mov     cr0, eax
    // A far jump to trampoline_32 in the 32-bit code segment.
    .byte   0x66, 0xea
    .long   0x8000 + trampoline_32 - trampoline_start
    .word   0x18
.balign 8
trampoline_pointer:
    .word   GDT_END - GDT - 1
    .long   GDT
.code32
trampoline_32:
    mov     eax, 16
    mov     ds, eax
    mov     ss, eax
    // MOV ESI from the address of the word behind.
    .byte   0x8b, 0x35
    .long   0x8000 + trampoline_stack - trampoline_start
    mov     edi, offset secondary_long
    mov     eax, offset long_mode
    jmp     eax
.balign 8
.global trampoline_stack
trampoline_stack:
    .quad   0
.global trampoline_end
trampoline_end:

.code64
secondary_long:
    call    secondary_cpu_main

.balign 16
GDT:
    .quad   0
    .quad   0x00af9b000000ffff          // 64-bit code
    .quad   0x00cf93000000ffff          // data
    .quad   0x00cf9b000000ffff          // 32-bit code
GDT_END:
GDT_POINTER:
    .word   GDT_END - GDT - 1
    .long   GDT

.text
.code64
// switch_stack(save: *mut usize, next: usize): leaves this stack for another (System V ABI: these are the callee's).
.global switch_stack
switch_stack:
    push    rbp
    push    rbx
    push    r12
    push    r13
    push    r14
    push    r15
    mov     [rdi], rsp
    mov     rsp, rsi
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     rbx
    pop     rbp
    ret

// A gate has pushed an error code (or 0 in its place) and its vector.
.global exception_entry
exception_entry:
    push    rax
    push    rcx
    push    rdx
    push    rsi
    push    rdi
    push    r8
    push    r9
    push    r10
    push    r11
    cld
    // The CPU aligns the stack to 16 bytes before its 5 words (SDM 6.14.2), and with these there are 16.
    lea     rdi, [rsp + 72]
    call    exception
    pop     r11
    pop     r10
    pop     r9
    pop     r8
    pop     rdi
    pop     rsi
    pop     rdx
    pop     rcx
    pop     rax
    add     rsp, 16
    iretq

.bss
.balign 4096
PML4:
    .space  4096
PDPT:
    .space  4096
BOOT_STACK:
    .space  0x10000
