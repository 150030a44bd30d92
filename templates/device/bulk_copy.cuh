// Device layer (device/simt.cuh), bulk copies on sm_90 and later: one lane issues the copy of a contiguous range of
// memory, and a barrier in shared memory tells when its bytes have landed. PTX ISA 9.0, sections 9.7.9.25.4 and
// 9.7.13.15.
//
// A barrier goes through phases, which are numbered from 0 on. A phase is over when all arrivals that the barrier was
// opened for have come, and all bytes that they announced. wait_phase waits for the present phase if the parity of the
// phase's number is `parity`. So a wait for parity 1 passes at once if the barrier was just opened.
// SPDX-License-Identifier: MIT
#pragma once
#include "device/simt.cuh"

#if defined(__CUDACC__)
namespace kv {

#if __CUDA_ARCH__ >= 900
KV_DEVICE void open_barrier(SharedAddress at, u32 arrivals) {
#if __CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ == 0
  // The assembler of CUDA 12.0 crashes if the address in shared memory is a constant, so this one is generic.
  asm volatile("mbarrier.init.b64 [%0], %1;" ::"l"(shared_bytes() + at), "r"(arrivals) : "memory");
#else
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(staged_address(at)), "r"(arrivals) : "memory");
#endif
}
KV_DEVICE void close_barrier(SharedAddress at) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(staged_address(at)) : "memory");
}
// Makes opened barriers visible to copies. The lanes that opened them call it before copies use them.
KV_DEVICE void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Orders shared memory: what this lane did there comes before what bulk copies do there that are issued behind the next
// barrier of the block.
KV_DEVICE void yield_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// One arrival; arrive_and_announce also adds `bytes` to what the phase waits for.
KV_DEVICE void arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(staged_address(barrier)) : "memory");
}
KV_DEVICE void arrive_and_announce(SharedAddress barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(staged_address(barrier)), "r"(bytes)
               : "memory");
}
KV_DEVICE void wait_phase(SharedAddress barrier, u32 parity) {
  u32 is_over;
  do
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_over)
                 : "r"(staged_address(barrier)), "r"(parity)
                 : "memory");
  while (!is_over);
}
// Copies `bytes` bytes to shared memory; the barrier counts them. Both addresses and the size are multiples of 16.
KV_DEVICE void copy_bulk(SharedAddress to, const u8* from, u32 bytes, SharedAddress barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   staged_address(to)),
               "l"(from), "r"(bytes), "r"(staged_address(barrier))
               : "memory");
}
#else  // sm_90 and later only: planners do not use these elsewhere
KV_DEVICE void open_barrier(SharedAddress, u32) {}
KV_DEVICE void close_barrier(SharedAddress) {}
KV_DEVICE void publish_barriers() {}
KV_DEVICE void yield_to_copies() {}
KV_DEVICE void arrive(SharedAddress) {}
KV_DEVICE void arrive_and_announce(SharedAddress, u32) {}
KV_DEVICE void wait_phase(SharedAddress, u32) {}
KV_DEVICE void copy_bulk(SharedAddress, const u8*, u32, SharedAddress) {}
#endif

}  // namespace kv
#endif
