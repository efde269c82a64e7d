// See guarded.rs. No instruction here uses the stack.
// Arguments: x0, x1, x2, x3. Result: w0, 1 if all was done.

.macro RNIC_BEGIN name
    .balign 16
    .globl \name
    .hidden \name
    .type \name, @function
\name:
    .cfi_startproc
.endm
.macro RNIC_END name
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    .balign 16
    .globl rnic_guarded_begin
    .hidden rnic_guarded_begin
rnic_guarded_begin:

// (to, from, len)
RNIC_BEGIN rnic_guarded_copy
    cmp x2, #64
    b.lo 11f
10: ldp q0, q1, [x1]
    ldp q2, q3, [x1, #32]
    stp q0, q1, [x0]
    stp q2, q3, [x0, #32]
    add x1, x1, #64
    add x0, x0, #64
    sub x2, x2, #64
    cmp x2, #64
    b.hs 10b
11: cmp x2, #8
    b.lo 12f
    ldr x3, [x1], #8
    str x3, [x0], #8
    sub x2, x2, #8
    b 11b
12: cbz x2, 13f
    ldrb w3, [x1], #1
    strb w3, [x0], #1
    sub x2, x2, #1
    b 12b
13: mov w0, #1
    ret
RNIC_END rnic_guarded_copy

// (to, value)
RNIC_BEGIN rnic_guarded_store_1
    stlrb w1, [x0]
    mov w0, #1
    ret
RNIC_END rnic_guarded_store_1

RNIC_BEGIN rnic_guarded_store_4
    stlr w1, [x0]
    mov w0, #1
    ret
RNIC_END rnic_guarded_store_4

RNIC_BEGIN rnic_guarded_store_8
    stlr x1, [x0]
    mov w0, #1
    ret
RNIC_END rnic_guarded_store_8

// (at, add, before)
RNIC_BEGIN rnic_guarded_add
20: ldaxr x3, [x0]
    add x4, x3, x1
    stlxr w5, x4, [x0]
    cbnz w5, 20b
    str x3, [x2]
    mov w0, #1
    ret
RNIC_END rnic_guarded_add

// (at, compare, swap, before)
RNIC_BEGIN rnic_guarded_swap
30: ldaxr x4, [x0]
    cmp x4, x1
    b.ne 31f
    stlxr w5, x2, [x0]
    cbnz w5, 30b
31: str x4, [x3]
    mov w0, #1
    ret
RNIC_END rnic_guarded_swap

    .globl rnic_guarded_end
    .hidden rnic_guarded_end
rnic_guarded_end:

RNIC_BEGIN rnic_guarded_gone
    mov w0, #0
    ret
RNIC_END rnic_guarded_gone

    .purgem RNIC_BEGIN
    .purgem RNIC_END
