# See guarded.rs. No instruction here uses the stack but `ret`.
# Arguments: rdi, rsi, rdx, rcx. Result: eax, 1 if all was done.

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

# (to, from, len)
RNIC_BEGIN rnic_guarded_copy
    cmp rdx, 16
    jb 10f
    cmp rdx, 32
    ja 20f
    movups xmm0, [rsi]
    movups xmm1, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + rdx - 16], xmm1
    mov eax, 1
    ret
20: cmp rdx, 64
    ja 30f
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + rdx - 32]
    movups xmm3, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + rdx - 32], xmm2
    movups [rdi + rdx - 16], xmm3
    mov eax, 1
    ret
    # Blocks of 64 bytes, the last of which overlaps the one before.
30: lea r8, [rsi + rdx - 64]
    lea r9, [rdi + rdx - 64]
    .balign 16
31: movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + 32]
    movups xmm3, [rsi + 48]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + 32], xmm2
    movups [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    cmp rsi, r8
    jb 31b
    movups xmm0, [r8]
    movups xmm1, [r8 + 16]
    movups xmm2, [r8 + 32]
    movups xmm3, [r8 + 48]
    movups [r9], xmm0
    movups [r9 + 16], xmm1
    movups [r9 + 32], xmm2
    movups [r9 + 48], xmm3
    mov eax, 1
    ret
    # Fewer than 16 bytes.
10: cmp edx, 8
    jb 11f
    mov rax, [rsi]
    mov rcx, [rsi + rdx - 8]
    mov [rdi], rax
    mov [rdi + rdx - 8], rcx
    mov eax, 1
    ret
11: cmp edx, 4
    jb 12f
    mov eax, [rsi]
    mov ecx, [rsi + rdx - 4]
    mov [rdi], eax
    mov [rdi + rdx - 4], ecx
    mov eax, 1
    ret
12: test edx, edx
    jz 14f
13: movzx eax, byte ptr [rsi + rdx - 1]
    mov [rdi + rdx - 1], al
    dec edx
    jnz 13b
14: mov eax, 1
    ret
RNIC_END rnic_guarded_copy

# (to, from, len), 128 bytes at least
RNIC_BEGIN rnic_guarded_copy_avx
    lea r8, [rsi + rdx - 128]
    lea r9, [rdi + rdx - 128]
    cmp rsi, r8
    je 41f
    .balign 16
40: vmovups ymm0, [rsi]
    vmovups ymm1, [rsi + 32]
    vmovups ymm2, [rsi + 64]
    vmovups ymm3, [rsi + 96]
    vmovups [rdi], ymm0
    vmovups [rdi + 32], ymm1
    vmovups [rdi + 64], ymm2
    vmovups [rdi + 96], ymm3
    sub rsi, -128
    sub rdi, -128
    cmp rsi, r8
    jb 40b
41: vmovups ymm0, [r8]
    vmovups ymm1, [r8 + 32]
    vmovups ymm2, [r8 + 64]
    vmovups ymm3, [r8 + 96]
    vmovups [r9], ymm0
    vmovups [r9 + 32], ymm1
    vmovups [r9 + 64], ymm2
    vmovups [r9 + 96], ymm3
    vzeroupper
    mov eax, 1
    ret
RNIC_END rnic_guarded_copy_avx

# (to, value)
RNIC_BEGIN rnic_guarded_store_1
    mov [rdi], sil
    mov eax, 1
    ret
RNIC_END rnic_guarded_store_1

RNIC_BEGIN rnic_guarded_store_4
    mov [rdi], esi
    mov eax, 1
    ret
RNIC_END rnic_guarded_store_4

RNIC_BEGIN rnic_guarded_store_8
    mov [rdi], rsi
    mov eax, 1
    ret
RNIC_END rnic_guarded_store_8

# (at, add, before)
RNIC_BEGIN rnic_guarded_add
    lock xadd [rdi], rsi
    mov [rdx], rsi
    mov eax, 1
    ret
RNIC_END rnic_guarded_add

# (at, compare, swap, before)
RNIC_BEGIN rnic_guarded_swap
    mov rax, rsi
    lock cmpxchg [rdi], rdx
    mov [rcx], rax
    mov eax, 1
    ret
RNIC_END rnic_guarded_swap

    .globl rnic_guarded_end
    .hidden rnic_guarded_end
rnic_guarded_end:

RNIC_BEGIN rnic_guarded_gone
    xor eax, eax
    ret
RNIC_END rnic_guarded_gone

    .purgem RNIC_BEGIN
    .purgem RNIC_END
