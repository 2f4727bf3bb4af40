# The part that all trampolines share: %r11d is the function's number, all else is the caller's.

	.text
	.p2align 4
	.globl vgpu_trace_common
	.hidden vgpu_trace_common
	.type vgpu_trace_common, @function
vgpu_trace_common:
	.cfi_startproc
	subq $216, %rsp
	.cfi_adjust_cfa_offset 216
	movq %rdi, 0(%rsp)
	movq %rsi, 8(%rsp)
	movq %rdx, 16(%rsp)
	movq %rcx, 24(%rsp)
	movq %r8, 32(%rsp)
	movq %r9, 40(%rsp)
	movq %rax, 48(%rsp)
	movq %r10, 56(%rsp)
	movups %xmm0, 64(%rsp)
	movups %xmm1, 80(%rsp)
	movups %xmm2, 96(%rsp)
	movups %xmm3, 112(%rsp)
	movups %xmm4, 128(%rsp)
	movups %xmm5, 144(%rsp)
	movups %xmm6, 160(%rsp)
	movups %xmm7, 176(%rsp)
	movl %r11d, %edi
	movq %rsp, %rsi
	leaq 216(%rsp), %rdx
	call vgpu_trace_enter
	movq %rax, %r11
	movq 0(%rsp), %rdi
	movq 8(%rsp), %rsi
	movq 16(%rsp), %rdx
	movq 24(%rsp), %rcx
	movq 32(%rsp), %r8
	movq 40(%rsp), %r9
	movq 48(%rsp), %rax
	movq 56(%rsp), %r10
	movups 64(%rsp), %xmm0
	movups 80(%rsp), %xmm1
	movups 96(%rsp), %xmm2
	movups 112(%rsp), %xmm3
	movups 128(%rsp), %xmm4
	movups 144(%rsp), %xmm5
	movups 160(%rsp), %xmm6
	movups 176(%rsp), %xmm7
	addq $216, %rsp
	.cfi_adjust_cfa_offset -216
	jmp *%r11
	.cfi_endproc
	.size vgpu_trace_common, .-vgpu_trace_common

# Where a followed call returns to, instead of its caller. The word below the stack pointer was the return address.
	.p2align 4
	.globl vgpu_trace_return
	.hidden vgpu_trace_return
	.type vgpu_trace_return, @function
	.cfi_startproc
	.cfi_undefined rip
	nop
vgpu_trace_return:
	subq $64, %rsp
	movq %rax, 0(%rsp)
	movq %rdx, 8(%rsp)
	movups %xmm0, 16(%rsp)
	movups %xmm1, 32(%rsp)
	movq %rax, %rdi
	leaq 56(%rsp), %rsi
	call vgpu_trace_leave
	movq %rax, 56(%rsp)
	movq 0(%rsp), %rax
	movq 8(%rsp), %rdx
	movups 16(%rsp), %xmm0
	movups 32(%rsp), %xmm1
	addq $56, %rsp
	ret
	.cfi_endproc
	.size vgpu_trace_return, .-vgpu_trace_return

# What a function that no object has answers: the library's number for unknown errors.
	.p2align 4
	.globl vgpu_trace_absent
	.hidden vgpu_trace_absent
	.type vgpu_trace_absent, @function
vgpu_trace_absent:
	.cfi_startproc
	movl $999, %eax
	ret
	.cfi_endproc
	.size vgpu_trace_absent, .-vgpu_trace_absent

# dlsym: with a handle of an object it answers our function for one of a shim. RTLD_DEFAULT and RTLD_NEXT
# mean something else for each caller, whose return address the real one must see.
	.p2align 4
	.globl vgpu_trace_dlsym
	.hidden vgpu_trace_dlsym
	.type vgpu_trace_dlsym, @function
vgpu_trace_dlsym:
	.cfi_startproc
	endbr64
	subq $24, %rsp
	.cfi_adjust_cfa_offset 24
	movq %rdi, 0(%rsp)
	movq %rsi, 8(%rsp)
	leaq 1(%rdi), %rax
	cmpq $1, %rax
	jbe 1f
	call vgpu_trace_lookup
	addq $24, %rsp
	.cfi_remember_state
	.cfi_adjust_cfa_offset -24
	ret
1:
	.cfi_restore_state
	call vgpu_trace_real_dlsym
	movq 0(%rsp), %rdi
	movq 8(%rsp), %rsi
	addq $24, %rsp
	.cfi_adjust_cfa_offset -24
	jmp *%rax
	.cfi_endproc
	.size vgpu_trace_dlsym, .-vgpu_trace_dlsym
