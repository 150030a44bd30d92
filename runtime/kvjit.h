/* kvjit: attention over quantized KV caches, with kernels generated and compiled for exactly the cache at hand.
 *
 * This header is the manual of the C interface. It is C89 and names no CUDA type. A stream is a `void*` (a CUstream or
 * cudaStream_t; NULL is the default stream). A device pointer is a plain pointer that only the device may follow.
 *
 *   kvjit_context      one device, its compiler and its kernel cache
 *     kvjit_program    the kernels of one spec: quantize, dequantize, attention
 *
 * An engine creates a context, creates a program from a spec, lays out its caches (kvjit_cache_layout, or strides of
 * its own), stores tokens with kvjit_quantize and calls kvjit_attention.
 *
 * Rules that hold everywhere
 *   - A function that can fail returns a kvjit_status and takes a kvjit_error last. The error may be NULL. On failure
 *     the outputs are untouched. The library throws nothing across this interface, and never serves a request by
 *     something else than was requested.
 *   - Structs that may grow start with their size. Fill them with KVJIT_INIT, then set members; zero is the default of
 *     every member. kvjit_rows, kvjit_side, kvjit_pages and kvjit_merge_context have no size and will not change.
 *   - A NULL handle, a NULL struct or a NULL output is KVJIT_USAGE unless its description allows NULL. A NULL or
 *     misaligned device pointer that a kernel would follow is KVJIT_BAD_INPUT.
 *   - A string that the library returns stays valid as long as the handle that returned it. The library copies strings
 *     that callers pass.
 *   - Handles may be used from several threads. A handle must not be destroyed while it is in use. A program keeps
 *     what it needs of its context alive, so the two may be destroyed in any order.
 *   - Strides of tensors count elements. Strides of caches count bytes.
 *   - Numbers and strides are checked as the types that kernels use, before anything is launched. What a call writes
 *     must not overlap itself, nor anything else that the call reads or writes. The library compares tensors, merged
 *     contexts, `lse` and caches. Parts of one block of memory may take turns, if their strides from part to part are
 *     the same. A row that a call only reads may be the same for several sequences, heads or tokens.
 *   - Memory of tokens that a query row does not see, by length, window, causal, token_ranges or masks, may hold
 *     anything: its numbers never reach the row.
 *
 * What stays unchecked
 *   - The sizes of a caller's memory. Slots, page tables and lengths are checked on the device by programs with
 *     target.checks only; first_token and strides may lead outside a cache.
 *   - Overlaps that device memory decides: those of tokens behind the first query_length ones in a call with `lengths`,
 *     of other slots than slot 0, and of other pages than page 0. Programs with target.checks compare all pages of the
 *     pool. Copies by slots or pages compare nothing.
 *   - That workspaces, feature arrays, positions, factors, slots, page tables, lengths and check records overlap
 *     nothing that is written. That K and V of a cache, or codes and scales of a side, do not overlap each other. Other
 *     caches of the caller.
 *   - Values in device memory: positions, position_offsets, factors, slopes, sinks, masks.
 *   - `check` of programs without target.checks, strides of dimensions of size 1, and strides of masks that are NULL:
 *     they are not read.
 *
 * Experimental until 1.0: structs only grow, but functions may still change. Check KVJIT_VERSION_NUMBER.
 * SPDX-License-Identifier: MIT */
#ifndef KVJIT_H
#define KVJIT_H

#include <stddef.h>
#include <string.h> /* memset in KVJIT_INIT */

#define KVJIT_VERSION_MAJOR 0
#define KVJIT_VERSION_MINOR 1
#define KVJIT_VERSION_PATCH 0
#define KVJIT_VERSION_NUMBER (KVJIT_VERSION_MAJOR * 10000 + KVJIT_VERSION_MINOR * 100 + KVJIT_VERSION_PATCH)

#if defined(__GNUC__)
#define KVJIT_API __attribute__((visibility("default")))
#else
#define KVJIT_API
#endif

/* Clears a sized struct and sets its size:  kvjit_error error; KVJIT_INIT(error); */
#define KVJIT_INIT(variable) (memset(&(variable), 0, sizeof(variable)), (void)((variable).size = sizeof(variable)))

#ifdef __cplusplus
extern "C" {
#endif

/* Returns KVJIT_VERSION_NUMBER of the library that is loaded, which may differ from that of this header. */
KVJIT_API int kvjit_version(void);

/* A signed 64-bit number: counts of bytes and tokens, strides. The library supports 64-bit platforms only. */
typedef ptrdiff_t kvjit_index;

/* ---- Errors ---- */

typedef enum kvjit_status {
  KVJIT_OK = 0,
  KVJIT_INTERNAL = 1,    /* a bug of the library */
  KVJIT_USAGE = 2,       /* a call that makes no sense: NULL where a value is needed, an unknown enumerator */
  KVJIT_BAD_INPUT = 3,   /* a broken spec; sizes, strides or alignments that no kernel could take */
  KVJIT_UNSUPPORTED = 4, /* the request is valid, but no kernel serves it; the notes name alternatives */
  KVJIT_COMPILE = 5,     /* the kernel compiler refused the text; the notes hold its messages */
  KVJIT_DIFFERS = 6,     /* results are outside the promised error; no function of this header returns it */
  KVJIT_ENVIRONMENT = 7, /* something is missing: no GPU, no NVRTC, no memory ... */
  KVJIT_INTEGRITY = 8,   /* a stored kernel is damaged or foreign; a bundle is not signed by a trusted key */
  KVJIT_CANCELLED = 9,   /* the caller cancelled the request */
  KVJIT_SEALED = 10      /* a kernel would have to be compiled after kvjit_seal */
} kvjit_status;

/* Describes a failure. The caller owns it. Each call that receives it overwrites it; success leaves status 0 and empty
 * texts. A text that is too long for its array ends in "...". All texts show control characters and what is no UTF-8 as
 * escapes, so that a log or a terminal may print them. */
typedef struct kvjit_error {
  size_t size;
  int status;         /* a kvjit_status */
  int line,           /* line in the spec, from 1; 0: unknown */
      column;         /* column in that line, from 1; 0: unknown */
  char file[256];     /* the file_name that was passed to kvjit_program_create */
  char message[1024]; /* one sentence: what is wrong, and what would be possible */
  char notes[3072];   /* one note a line: alternatives, refused candidates, messages of a compiler */
} kvjit_error;

/* ---- Context ---- */

typedef struct kvjit_context kvjit_context;
typedef struct kvjit_program kvjit_program;

/* AUTOMATIC takes a GPU if there is one, else the CPU back-end. The CPU back-end is slow and meant for tests. */
enum { KVJIT_DEVICE_AUTOMATIC = 0, KVJIT_DEVICE_GPU = 1, KVJIT_DEVICE_CPU = 2 };

/* Options of a context. Defaults come from the environment: KVJIT_DEVICE, KVJIT_CACHE_DIR, KVJIT_CACHE_MAX_BYTES,
 * KVJIT_NVRTC, KVJIT_CUDA, KVJIT_CXX, KVJIT_BUNDLES, KVJIT_TRUSTED_KEYS (both are lists with ':'), KVJIT_REMOTE,
 * KVJIT_REMOTE_WRITES, KVJIT_ARCH, KVJIT_AS_PTX. Bundles and keys of this struct are appended to those of the
 * environment. */
typedef struct kvjit_context_options {
  size_t size;
  int device;            /* KVJIT_DEVICE_* */
  int ordinal;           /* number of the GPU; 0: KVJIT_DEVICE_ORDINAL, else GPU 0; not read on the CPU back-end */
  const char* cache_dir; /* absolute folder of compiled kernels; NULL: the user's cache folder; "off": memory only */
  /* Gets warnings and progress, from any thread, with escapes as in kvjit_error. NULL: silent. */
  void (*log)(void* user, const char* message);
  void* log_user; /* passed to `log` */
  /* Bundles made by `kvjit pack`: paths of files or folders, and bytes in memory. The bytes must stay in place while
   * the context or one of its programs lives. Bundles are searched before every other store and need no compiler. A
   * bundle that is damaged, or that other users could have written, is reported to `log` and left out. */
  const char* const* bundles;      /* `bundle_count` paths; NULL if there are none */
  int bundle_count,                /* paths in `bundles` */
      bundle_bytes_count;          /* entries of `bundle_bytes` and of `bundle_sizes` */
  const void* const* bundle_bytes; /* starts of the bundles in memory; NULL if there are none */
  const size_t* bundle_sizes;      /* their sizes in bytes; NULL if there are none */
  /* Ed25519 public keys, 64 hex digits each, as `kvjit pack --new-key` prints them. If there is any key, a bundle that
   * none of them has signed makes kvjit_context_create fail with KVJIT_INTEGRITY. Whoever can sign a bundle, or write
   * to a cache folder that is used, can run code on the GPU. */
  const char* const* trusted_keys; /* `trusted_key_count` keys; NULL if there are none */
  int trusted_key_count;
  int remote_writes;  /* 1: kernels that this context compiles are stored at `remote` too */
  const char* remote; /* http or https URL of a kernel server in the layout of bazel-remote; NULL: the environment's */
  /* The engine's own store of kernels, which the library searches after bundles and disk, from any thread. If cache_get
   * has the key (64 hex digits), it calls give(to, entry, bytes); the library checks the entry as it checks a file.
   * cache_put receives each kernel that this context compiles. Either may be NULL. */
  void (*cache_get)(void* user, const char* key, void (*give)(void* to, const void* entry, size_t bytes), void* to);
  void (*cache_put)(void* user, const char* key, const void* entry, size_t bytes);
  void* cache_user; /* passed to both as `user` */
  /* Folders with formats, rotations, archs, calibrations, policies, hooks and tuning of the caller's, in the structure
   * that `kvjit --specs` reads. A file replaces the built-in file of the same name. kvjit_context_create reads the
   * folders; they serve this context alone. */
  const char* const* specs_dirs; /* `specs_dir_count` paths; NULL if there are none */
  int specs_dir_count;
  /* "sm_80": the arch that kernels are for where a call names none, instead of the spec's and the device's. A GPU takes
   * its own, with or without suffix; other archs need as_ptx. The CPU back-end takes every arch. NULL: KVJIT_ARCH, else
   * the spec's or the device's. */
  const char* arch;
  /* 1: kernels are compiled to PTX for `arch`, and the driver compiles them for its GPU: to run the text for an older
   * GPU on a newer one. An arch must then have no suffix ("sm_80"; PTX of "sm_90a" is not portable) and be at most as
   * new as the GPU. 0: KVJIT_AS_PTX. */
  int as_ptx;
} kvjit_context_options;

/* Opens a device and the stores of its kernels. NVRTC is opened when the first kernel has to be compiled.
 * options may be NULL: every default. *context receives the handle, which kvjit_context_destroy frees. */
KVJIT_API kvjit_status kvjit_context_create(const kvjit_context_options* options, kvjit_context** context,
                                            kvjit_error* error);
/* Frees a context. Its requests must have been destroyed before. context may be NULL. */
KVJIT_API void kvjit_context_destroy(kvjit_context* context);

typedef struct kvjit_device_info {
  size_t size;
  const char* name;     /* "NVIDIA H200", "CPU back-end" */
  const char* arch;     /* "sm_90a": the arch that kernels are generated for */
  int is_gpu,           /* 0 on the CPU back-end */
      multiprocessors;  /* streaming multiprocessors of the device */
  int driver_version;   /* version of the CUDA driver, 13000 = 13.0; 0 on the CPU back-end */
  size_t memory_bytes;  /* memory of the device */
  const char* own_arch; /* "sm_90a": the GPU's own arch; "" on the CPU back-end */
  int runs_ptx;         /* 1: kernels for `arch` are PTX, which the driver compiles for own_arch (option as_ptx) */
} kvjit_device_info;
/* Describes the device of a context. */
KVJIT_API kvjit_status kvjit_context_device(const kvjit_context* context, kvjit_device_info* info, kvjit_error* error);

/* Forbids compiling from now on: a call that needs a kernel which no store has fails with KVJIT_SEALED, and the message
 * names the kernel. An engine calls it before it serves requests, so that no request waits for a compiler. */
KVJIT_API kvjit_status kvjit_seal(kvjit_context* context, kvjit_error* error);

/* Counts where kernels came from, and the machine code in memory. Contexts of one device in a process share the kernels
 * that are loaded. Counts start at the context's creation. */
typedef struct kvjit_stats {
  size_t size;
  kvjit_index memory_hits,    /* kernels that this context, or another one of the device, had loaded */
      disk_hits,              /* kernels from the cache folder */
      bundle_hits,            /* kernels from bundles */
      callback_hits,          /* kernels from cache_get */
      remote_hits;            /* kernels from the server */
  kvjit_index misses,         /* kernels that no store had */
      compiles;               /* compiles that succeeded */
  kvjit_index damaged;        /* stored kernels that could not be used */
  kvjit_index lock_waits,     /* waits for another process that compiled the same kernel */
      write_failures;         /* failed writes to the cache folder */
  kvjit_index kernels,        /* kernels that this context has loaded */
      code_bytes;             /* their machine code, bytes */
  kvjit_index shared_kernels; /* how many of `kernels` another context had loaded before */
  kvjit_index device_kernels, /* kernels of all contexts of the device in this process */
      device_code_bytes;      /* their machine code, bytes */
} kvjit_stats;
KVJIT_API kvjit_status kvjit_context_stats(kvjit_context* context, kvjit_stats* stats, kvjit_error* error);

/* ---- Memory: for programs that do not use CUDA themselves ---- */

/* Allocates `bytes` of device memory (host memory on the CPU back-end). 0 bytes are legal and give a NULL pointer. When
 * memory is short, the call fails with KVJIT_ENVIRONMENT, and the message states the bytes requested and free. */
KVJIT_API kvjit_status kvjit_allocate(kvjit_context* context, size_t bytes, void** pointer, kvjit_error* error);
/* Frees memory of kvjit_allocate. No work that uses it may be under way. context and pointer may be NULL. */
KVJIT_API void kvjit_release(kvjit_context* context, void* pointer);
/* Copies `bytes` from host memory `from` to device memory `to`, and waits until they have arrived. */
KVJIT_API kvjit_status kvjit_copy_to_device(kvjit_context* context, void* to, const void* from, size_t bytes,
                                            kvjit_error* error);
/* Copies `bytes` from device memory `from` to host memory `to`, and waits until they have arrived. */
KVJIT_API kvjit_status kvjit_copy_to_host(kvjit_context* context, void* to, const void* from, size_t bytes,
                                          kvjit_error* error);
/* Waits until all work on a stream has ended. stream may be NULL: the default stream. */
KVJIT_API kvjit_status kvjit_synchronize(kvjit_context* context, void* stream, kvjit_error* error);

/* ---- Program ---- */

/* Checks whether a spec could be served; no device is needed. Every combination of [matrix] and [layers] is checked.
 *   toml          NUL-terminated text of the spec
 *   arch          "sm_90a" ...; NULL: every arch of the spec's [target], which then must name one
 *   reasons       receives every refusal, one a line, cut with "..." at reasons_size bytes; may be NULL
 *   reasons_size  bytes of `reasons`; 0 with NULL
 * Returns KVJIT_OK, or the status of the first refusal. Nothing is generated: a question takes some 0.1 ms for each
 * combination and arch, and about a microsecond if it was asked before in this process (of a context: in the context).
 */
KVJIT_API kvjit_status kvjit_supported(const char* toml, const char* arch, char* reasons, size_t reasons_size);
/* Checks the same with the specs_dirs of a context, which must not be NULL. */
KVJIT_API kvjit_status kvjit_context_supports(const kvjit_context* context, const char* toml, const char* arch,
                                              char* reasons, size_t reasons_size);

/* What kvjit_program_create would have to do for a spec. */
enum {
  KVJIT_READY = 1,      /* load its kernels, which are in memory, in a bundle or in the cache folder */
  KVJIT_COMPILING = 2,  /* wait: a request for it is under way, or a program with one of its kernels is being created */
  KVJIT_UNCOMPILED = 3, /* compile at least one kernel */
  KVJIT_REFUSED = 4     /* refuse it, and say why */
};
typedef struct kvjit_readiness_call {
  size_t size;
  const char* const* specs; /* `spec_count` TOML texts, as kvjit_program_create takes them: one for each pair of
                               formats, head size and so on; NULL if there are none */
  int spec_count;
  const char* arch; /* "sm_90a" ...; NULL: the device's own */
} kvjit_readiness_call;
/* Says what is ready of a list of specs. It compiles nothing, loads nothing and waits for no compile. The first
 * question about a spec generates its text, which takes a millisecond or two; a later one looks up its keys, which
 * takes some microseconds. Callbacks of the engine and servers are not asked, so what only they have is
 * KVJIT_UNCOMPILED.
 *   states  receives `spec_count` numbers: KVJIT_READY .. KVJIT_REFUSED */
KVJIT_API kvjit_status kvjit_readiness(kvjit_context* context, const kvjit_readiness_call* call, int* states,
                                       kvjit_error* error);

/* Generates the kernels of a spec and loads those of attention: from memory, from a store, or compiled, which takes
 * fractions of a second.
 *   toml       NUL-terminated text; a spec whose [matrix] and [layers] give several combinations is KVJIT_UNSUPPORTED
 *   file_name  name of the spec in diagnostics; may be NULL
 *   arch       "sm_90a" ...; NULL: the device's own, if the spec's [target] allows it
 *   program    receives the handle, which kvjit_program_destroy frees
 * A second program of the same spec in the same context costs about a microsecond, because both share the generated
 * text and the loaded kernels. So an engine may create one for each layer of a model. */
KVJIT_API kvjit_status kvjit_program_create(kvjit_context* context, const char* toml, const char* file_name,
                                            const char* arch, kvjit_program** program, kvjit_error* error);
/* Frees a program. No call of it may be under way. program may be NULL. */
KVJIT_API void kvjit_program_destroy(kvjit_program* program);

/* A program that is created in the background, on threads of the context. */
typedef struct kvjit_request kvjit_request;
/* Starts kvjit_program_create in the background. `done` may be NULL; else a thread of the context calls done(user,
 * status) once kvjit_request_wait would not wait any more. `done` must not destroy anything. A request must be
 * destroyed before its context. */
KVJIT_API kvjit_status kvjit_program_request(kvjit_context* context, const char* toml, const char* file_name,
                                             const char* arch, void (*done)(void* user, kvjit_status status),
                                             void* user, kvjit_request** request, kvjit_error* error);
/* Waits for at most timeout_ms milliseconds; a negative number waits until the request has ended. If the request is
 * still running by then, the call returns KVJIT_OK and sets *program to NULL. Else the call returns what
 * kvjit_program_create would have returned. The program then belongs to the caller; a request hands it out once, and
 * another wait is KVJIT_USAGE. */
KVJIT_API kvjit_status kvjit_request_wait(kvjit_request* request, int timeout_ms, kvjit_program** program,
                                          kvjit_error* error);
/* Tells the request to end early and returns at once. kvjit_request_wait then returns KVJIT_CANCELLED, unless the
 * program was ready. A compile under way ends as soon as NVRTC allows. request may be NULL. */
KVJIT_API void kvjit_request_cancel(kvjit_request* request);
/* Cancels the request, waits until it has ended and `done` has returned, and frees it. request may be NULL. */
KVJIT_API void kvjit_request_destroy(kvjit_request* request);

/* A list of specs whose kernels are compiled ahead of time. */
typedef struct kvjit_warm_call {
  size_t size;
  const char* const* specs; /* `spec_count` TOML texts; [matrix] and [layers] are expanded; NULL if there are none */
  int spec_count;
  int threads;      /* threads that compile; 0: as many as the machine has */
  const char* arch; /* "sm_90a" ...; NULL: the device's own */
  /* Called after each kernel, from any thread, one call at a time: `done` of `count` kernels are ready. May be NULL. */
  void (*progress)(void* user, int done, int count, const char* kernel);
  void* progress_user; /* passed to `progress` */
  /* Kernels of operations, which no program carries from the start: some of "slots, rope, shift, copy". Copies are
   * those of K to K and of V to V, from each spec of the list to each. NULL: none of them, so a sealed context refuses
   * such calls. `kvjit pack --operations` puts the same kernels into a bundle. */
  const char* operations;
} kvjit_warm_call;
typedef struct kvjit_warm_report {
  size_t size;
  int kernels,      /* kernels of the list, each counted once */
      compiled;     /* how many of them this call compiled */
  int was_complete; /* 1: the list was marked as complete, and nothing was generated */
} kvjit_warm_report;
/* Compiles every kernel of a list that no store has, in parallel and each once. Compiled kernels go to the cache
 * folder, or to the context's memory if it has no folder. A complete list is marked in the folder, so the next process
 * returns at once. report may be NULL. */
KVJIT_API kvjit_status kvjit_warm(kvjit_context* context, const kvjit_warm_call* call, kvjit_warm_report* report,
                                  kvjit_error* error);

/* Element types of tensors. */
enum { KVJIT_F16 = 1, KVJIT_BF16 = 2, KVJIT_F32 = 3 };

typedef struct kvjit_program_info {
  size_t size;
  const char *id,       /* short name, from formats and sizes */
      *title,           /* the spec's title */
      *arch;            /* "sm_90a": the arch that the kernels are for */
  int is_planar;        /* 1: layout planar, 0: layout rows; of layout paged: what the pages hold */
  int head_dim,         /* elements of a head of K and of a query */
      q_heads_per_kv,   /* GQA group: query heads of a KV head */
      query_length,     /* queries of a sequence in one call; at most, if is_varlen */
      is_causal;        /* 1: query i sees tokens up to its own position */
  int q_type,           /* KVJIT_F16 ...: type of the queries */
      out_type;         /* KVJIT_F16 ...: type of the output */
  int tile_tokens;      /* tokens of a tile: blocks take whole tiles of a context */
  int appends;          /* 1: calls bring new_k and new_v */
  int head_dim_v;       /* elements of a head of V and of the output */
  const char* features; /* "causal, softcap 50, mask": names the members that the program reads of a call */
  int page_tokens;      /* of layout paged: tokens of a page, and calls bring page tables; else 0 */
  int checks,           /* 1: calls bring a check record */
      token_heads;      /* KV heads that each call must have, token-major (cache.token_heads); 0: any number */
  int is_varlen; /* 1: each call says how many queries it has (query_length = "any"), and may be a ragged batch */
} kvjit_program_info;
KVJIT_API kvjit_status kvjit_program_describe(const kvjit_program* program, kvjit_program_info* info,
                                              kvjit_error* error);

/* A loaded kernel of a program. Kernels of attention are loaded from the start, others from their first call on. */
typedef struct kvjit_kernel_info {
  size_t size;
  const char *name,       /* "decode.<formats>.d128.g4.sm_90a" */
      *role,              /* "decode", "prefill", "merge", "quantize_k" ... */
      *key;               /* key of the compiled kernel, 64 hex digits, for `kvjit cache inspect` */
  const char* origin;     /* "memory", "disk", "compiled", "bundle", "callback", "remote" */
  int registers,          /* registers of a thread; this and the next two are 0 of PTX, which the driver compiles */
      stack_bytes,        /* stack frame of a thread */
      spill_bytes,        /* bytes of spill stores and loads that the assembler reports */
      threads,            /* threads of a block */
      shared_bytes;       /* dynamic shared memory of a block */
  kvjit_index code_bytes; /* bytes of machine code, or of PTX */
  double ready_ms,        /* milliseconds that getting the kernel took this time */
      compile_ms;         /* milliseconds of its compile, on whichever machine that was; 0: unknown */
} kvjit_kernel_info;
/* Sets *count to the number of loaded kernels. */
KVJIT_API kvjit_status kvjit_program_kernel_count(const kvjit_program* program, int* count, kvjit_error* error);
/* Describes loaded kernel number `index`, from 0. */
KVJIT_API kvjit_status kvjit_program_kernel(const kvjit_program* program, int index, kvjit_kernel_info* info,
                                            kvjit_error* error);

/* The sides of a cache. */
enum { KVJIT_K = 0, KVJIT_V = 1 };

typedef struct kvjit_side_info {
  size_t size;
  const char* format;
  int is_rotated;              /* 1: the cache holds rotated, padded or scaled values instead of the caller's */
  double bits_per_value;       /* bits of cache for one value, scales included */
  kvjit_index row_bytes;       /* layout rows: bytes of one (token, KV head) */
  kvjit_index code_row_bytes;  /* layout planar: its bytes in the plane of codes */
  kvjit_index scale_row_bytes; /* layout planar: its bytes in the plane of scales; 0 if the format has no scales */
  int has_head_scales;         /* 1: the caller has a scale for each KV head, in kvjit_side.scales */
} kvjit_side_info;
/* side: KVJIT_K or KVJIT_V. */
KVJIT_API kvjit_status kvjit_program_side(const kvjit_program* program, int side, kvjit_side_info* info,
                                          kvjit_error* error);

/* ---- The cache ---- */

/* One side of a cache, in device memory.
 *   layout rows    `codes` points at the rows and `scales` is unused. Strides are free; pointer and strides are even.
 *   layout planar  `codes` and `scales` point at a plane each. The token stride is the bytes of a row of the plane;
 *                  pointers and other strides are multiples of 16. `scales` is unused if the format has no scales.
 * Formats with a scale for each KV head (has_head_scales) have `scales` elsewhere: floats of the caller in device
 * memory, in any layout, by which values are multiplied. Strides from head to head and from sequence to sequence are
 * multiples of 4, and may be 0. Those from token to token, and from page to page, are 0.
 * Strides count bytes. */
typedef struct kvjit_side {
  void* codes;
  void* scales;
  kvjit_index codes_sequence_stride, codes_head_stride, codes_token_stride;
  kvjit_index scales_sequence_stride, scales_head_stride, scales_token_stride;
} kvjit_side;

/* The page table of one side, for layout paged. A page holds page_tokens tokens of all heads. Entry i of a sequence's
 * row is the number of the page that holds its tokens from i * page_tokens on. Every sequence has at least one entry.
 *
 * An entry is a page number only if the call uses a token of its page. Operations use the tokens that they name, and
 * attention with `append` the new ones. Attention uses the tokens that some query of the call sees, as length, causal,
 * window, token_ranges and positions say. Every other entry may hold anything: 0, -1, numbers beyond the pool; so may
 * the bytes of its page. They are neither followed nor checked. So an engine may free the pages before a window, those
 * outside of token_ranges, and those of sequences of which no token is seen. Masks do not count: a page of which only
 * `mask` or `packed_mask` hides the tokens must exist.
 *
 * The members of kvjit_side get another meaning: `codes` and `scales` point into page 0 of the pool, and sequence
 * strides are the bytes from page to page. Head and token strides inside a page are free. So [token][head],
 * [head][token], slots that hold codes beside scales, and separate sections differ only in these strides.
 *   pages of rows    pointers and strides are even; the bytes from page to page are a multiple of 16.
 *   pages of planes  pointers and strides are multiples of the largest power of two, up to 16, that divides the
 *                    bytes of a row of the plane. They are multiples of 16 where the scales of
 *                    consecutive tokens are dense. */
typedef struct kvjit_pages {
  const int* table;       /* [sequences][row_stride] in device memory; NULL: no page table */
  kvjit_index row_stride; /* entries from one sequence to the next */
  kvjit_index pool_pages; /* pages of the pool; read for programs with target.checks only */
} kvjit_pages;

/* Lays out one side of a cache in one block of memory. An engine may use strides of its own instead.
 *   side             KVJIT_K or KVJIT_V
 *   sequences, heads, capacity_tokens
 *                    sizes of the cache, at least 1 each; heads are KV heads
 *   base             start of the memory; NULL: pointers of *cache stay NULL
 *   cache            receives pointers and strides; may be NULL
 *   bytes            receives the size of the memory; may be NULL
 * Layout paged: the memory is a pool of as many pages as all sequences need, each sequence's capacity rounded up to
 * whole pages. */
KVJIT_API kvjit_status kvjit_cache_layout(const kvjit_program* program, int side, kvjit_index sequences,
                                          kvjit_index heads, kvjit_index capacity_tokens, void* base, kvjit_side* cache,
                                          size_t* bytes, kvjit_error* error);

/* A tensor [sequences][tokens or queries][heads][head_dim] in device memory. Elements of a head are dense. Strides
 * count elements; query_stride is the token stride of tensors of tokens. */
typedef struct kvjit_rows {
  void* data;
  kvjit_index sequence_stride, query_stride, head_stride;
} kvjit_rows;

/* Types of slots. */
enum { KVJIT_INT64 = 0, KVJIT_INT32 = 1 };

/* Which two values of a head form rotary pair i: NEIGHBOURS 2 i and 2 i + 1 (ggml: normal), HALVES i and i + dims/2
 * (neox). */
enum { KVJIT_ROPE_NEIGHBOURS = 0, KVJIT_ROPE_HALVES = 1 };
/* Rotary positions (RoPE). Rotary pair i of the values first .. first + dims - 1 of a row is rotated by
 *   position * scale * base^(-2 i / dims) / factors[i]
 * radians and multiplied by `magnitude`. */
typedef struct kvjit_rope {
  size_t size;
  int pairs;            /* KVJIT_ROPE_NEIGHBOURS or KVJIT_ROPE_HALVES */
  int first,            /* first value of a head that is rotated */
      dims;             /* values that are rotated: even, 2 to 512 */
  double base,          /* above 1; 0: 10000 */
      scale,            /* above 0 (ggml: freq_scale); 0: 1 */
      magnitude;        /* 0: 1 */
  const float* factors; /* dims / 2 numbers above 0 in device memory; NULL: all 1 */
  const int* positions; /* [sequences][tokens] in device memory: the position of each token; NULL: `position` for all */
  int position;         /* read if `positions` is NULL */
  /* YaRN, if `extrapolation` is not 0 (ggml: ext_factor). Rotary pairs that make more than beta_fast rotations in
   * trained_tokens tokens keep their frequency. Those that make fewer than beta_slow rotations are scaled by `scale`.
   * Between the two there is a ramp. YaRN's factor for attention is `magnitude`. */
  double extrapolation, /* 0: no YaRN */
      beta_fast,        /* full rotations; 0: 32 */
      beta_slow;        /* full rotations; 0: 1 */
  int trained_tokens;   /* context length of the training (ggml: n_ctx_orig) */
} kvjit_rope;

typedef struct kvjit_codec_call {
  size_t size;
  kvjit_rows x; /* [sequences][tokens][heads][head_dim of the side]: quantize reads it, dequantize writes it */
  int x_type;   /* type of x: KVJIT_F16, KVJIT_BF16 or KVJIT_F32 */
  kvjit_side cache;
  /* [sequences][tokens] slots of type slot_type in device memory: the place in the cache of each token of the call.
   * Layouts planar and rows: the token's number in its sequence. Layout paged: page * page_tokens + place in the page.
   * For a negative slot quantize skips the token and dequantize writes zeros. NULL: the tokens are first_token,
   * first_token + 1 ... of each sequence. */
  const void* slots;
  kvjit_index first_token; /* 0 or more, the last token below 2^30; read if `slots` is NULL */
  int sequences,           /* at least 1 each */
      tokens,              /* tokens of each sequence */
      heads;               /* KV heads */
  int keep_rotated;        /* dequantize, 1: x receives the values of the rotated domain; quantize: 0 */
  void* stream;            /* NULL: the default stream */
  float tensor_scale;      /* formats with one scale for the whole tensor (fp8): value = number * scale; 0: 1 */
  kvjit_pages pages;       /* layout paged: the page table; with `slots` pool_pages alone, for target.checks */
  void* check;             /* programs with target.checks: the check record, in device memory; else not read */
  kvjit_index slot_count;  /* target.checks with `slots`: capacity of a sequence, tokens. Layout paged: pages.pool_pages
                            * states it; if that is 0, the slots of the pool */
  int slot_type;           /* KVJIT_INT64 or KVJIT_INT32 */
  const kvjit_rope* rope;  /* quantize: rows are rotated to their positions first; NULL: rows are stored unrotated */
} kvjit_codec_call;

/* Stores tokens in the cache (quantize) or reads them from it (dequantize). side: KVJIT_K or KVJIT_V. Both only queue
 * work on the stream. The first call of each kind and side also loads its kernel, or compiles it. */
KVJIT_API kvjit_status kvjit_quantize(kvjit_program* program, int side, const kvjit_codec_call* call,
                                      kvjit_error* error);
KVJIT_API kvjit_status kvjit_dequantize(kvjit_program* program, int side, const kvjit_codec_call* call,
                                        kvjit_error* error);

/* The tokens of a cache that an operation reads or writes: token t of sequence s is slots[s * tokens + t], or
 * first_token + t if `slots` is NULL. The members mean what they mean in kvjit_codec_call. */
typedef struct kvjit_cache_tokens {
  size_t size;
  kvjit_side cache;
  kvjit_pages pages;
  const void* slots;
  int slot_type;
  kvjit_index first_token;
  float tensor_scale;
  kvjit_index slot_count;
} kvjit_cache_tokens;

/* How a copy converts, best first.
 *   BYTES        stored bytes, if formats and tensor scales are the same, and scales of heads the same memory
 *   ROTATED      values in the rotated domain, if both formats rotate alike or neither rotates
 *   DEQUANTIZED  values in the caller's domain
 * ROTATED and DEQUANTIZED encode anew, with the error of the target format. */
enum { KVJIT_COPY_BYTES = 0, KVJIT_COPY_ROTATED = 1, KVJIT_COPY_DEQUANTIZED = 2 };
typedef struct kvjit_copy_call {
  size_t size;
  const kvjit_cache_tokens
      *from,     /* the tokens that are read; a token whose slot is negative at either end is skipped */
      *to;       /* the tokens that are written; they share no bytes with `from` */
  int sequences, /* at least 1 each */
      tokens,    /* tokens of each sequence */
      heads;     /* KV heads */
  void *stream,  /* NULL: the default stream */
      *check;    /* the check record, if either program has target.checks; else not read */
} kvjit_copy_call;
typedef struct kvjit_copy_report {
  size_t size;
  int kind;           /* KVJIT_COPY_* */
  const char* kernel; /* name of the kernel that copied */
} kvjit_copy_report;
/* Copies tokens of one cache to another, of any format and layout, in one kernel. `from` and `to` are programs of the
 * same context, head size and arch, or the same program. from_side and to_side: KVJIT_K or KVJIT_V. report may be NULL.
 * Only queues work on the stream; the first call of each kind also loads its kernel. */
KVJIT_API kvjit_status kvjit_copy(kvjit_program* from, int from_side, kvjit_program* to, int to_side,
                                  const kvjit_copy_call* call, kvjit_copy_report* report, kvjit_error* error);

typedef struct kvjit_shift_call {
  size_t size;
  const kvjit_cache_tokens* cache; /* the tokens that are rotated */
  const kvjit_rope* rope; /* the shift: its positions are added to those of the stored rows; magnitude 0 or 1 */
  int sequences,          /* at least 1 each */
      tokens,             /* tokens of each sequence */
      heads;              /* KV heads */
  void* stream;           /* NULL: the default stream */
  void* check;            /* programs with target.checks: the check record; else not read */
} kvjit_shift_call;
/* Moves keys that were stored with rotary positions to other positions, in place (llama.cpp: K-shift). Each row is
 * decoded, rotated by the position that `rope` gives for it, and encoded again. Rows with position 0 keep their bytes.
 * Any other magnitude than 0 (which means 1) and 1 scales the rows once more. Only queues work on the stream. */
KVJIT_API kvjit_status kvjit_shift(kvjit_program* program, int side, const kvjit_shift_call* call, kvjit_error* error);

/* ---- Attention ---- */

/* Most blocks of the attention kernel of one call. */
#define KVJIT_MOST_BLOCKS 512
/* Bytes of the split counters, which stand at the start of a workspace. */
#define KVJIT_COUNTER_BYTES 32768

typedef struct kvjit_attention_call {
  size_t size;
  kvjit_rows q; /* [sequences][query_length][kv_heads * q_heads_per_kv][head_dim], of the program's q type */
  kvjit_side k, /* the cache */
      v;
  kvjit_rows out;     /* [sequences][query_length][kv_heads * q_heads_per_kv][head_dim_v], of the program's out type */
  const int* lengths; /* tokens of each sequence, in device memory, at most `tokens` each; NULL: `tokens` for all */
  int tokens;         /* the largest length, 1 to 2^30 */
  int sequences,      /* 1 to 65535 */
      kv_heads;       /* at least 1; KV heads x query chunks (of up to 64 query rows each) are at most 65535 */
  int blocks;         /* most blocks that take the tokens, up to KVJIT_MOST_BLOCKS; 0: chosen for the device */
  double scale;       /* factor of the scores, a normal float; 0: 1/sqrt(head_dim) */
  /* Device memory of at least kvjit_workspace_bytes, 16-byte aligned. Its first KVJIT_COUNTER_BYTES must be zero before
   * the first call that uses it, and every call leaves them zero. The rest may hold anything. Calls that may run at the
   * same time need separate workspaces. */
  void* workspace;
  size_t workspace_bytes;
  void* stream;         /* NULL: the default stream */
  float k_tensor_scale, /* as in kvjit_codec_call; 0: 1 */
      v_tensor_scale;
  /* K and V of the new tokens of this call, query_length a sequence, for programs with attention.append and only for
   * those: [sequences][query_length][kv_heads][head_dim]; query_stride is the token stride. `tokens` and `lengths`
   * count them. Row i becomes token length - query_length + i of the cache, stored as kvjit_quantize would store it,
   * and attention sees it. kvjit_reference stores nothing: these tokens must be in the cache before it is called. */
  kvjit_rows new_k, new_v;
  int new_type; /* type of both: KVJIT_F16, KVJIT_BF16 or KVJIT_F32 */
  /* Inputs of features, in device memory. Each must be NULL or 0 unless the program has the feature that reads it
   * (kvjit_program_info.features). Query head h * q_heads_per_kv + i is query head i of KV head h. Strides count
   * elements; a dimension with stride 0 has one row for all. */
  const void* mask; /* "mask": f16 [sequence][query head][query][token], added to the scores; tokens are dense;
                       -infinity hides the token */
  kvjit_index mask_sequence_stride, mask_head_stride, mask_query_stride;
  /* "packed_mask": 32-bit words [sequence][query head][query][word]. Bit t % 32 of word t / 32 says whether the query
   * sees token t of the last packed_tokens tokens. The query sees every token before those. */
  const unsigned* packed_mask;
  kvjit_index packed_sequence_stride, packed_head_stride, packed_query_stride;
  int packed_tokens; /* tokens that packed_mask describes; 0: all; "packed_mask" only */
  /* "position_offset": query i stands at token length - query_length + i + position_offset, plus the entry of its
   * sequence in position_offsets. For a context that is split over devices, the offset is the number of tokens of the
   * sequence that follow those of the call. */
  int position_offset;         /* -2^29 to 2^29 */
  const int* position_offsets; /* one for each sequence; NULL: nothing is added */
  const float* slopes;         /* "alibi", "mask_slopes": one for each query head */
  const float* sinks; /* "sinks": one logit for each query head; exp(logit) is added to the softmax denominator only */
  int leaves_sinks; /* 1: another call, over another part of the context, counts the sinks; `sinks` may be NULL then */
  /* "lse", written: [sequence][query][query head], the natural logarithm of the sum of exp(score). Sinks are included
   * unless leaves_sinks is set. -infinity where the query sees no token. */
  float* lse;
  kvjit_pages k_pages, /* layout paged: the page tables; the two are usually the same */
      v_pages;
  void* check; /* programs with target.checks: the check record, in device memory; else not read */
  /* Programs with query_length = "any" (kvjit_program_info.is_varlen): queries of a sequence, at most, from 1 to the
   * program's query_length. Other programs: 0, or their query_length. */
  int queries;
  /* Ragged batches, for programs with query_length = "any"; [sequences + 1], in device memory, as cu_seqlens: ascending
   * from 0. Sequence s has rows query_starts[s] .. query_starts[s + 1] - 1 of q, out, lse and the masks: at most
   * `queries`, or none. Strides of sequences are not read for these. Query i of a sequence stands at token
   * length - (its queries) + i. NULL: every sequence has `queries`. */
  const int* query_starts;
  kvjit_index query_rows; /* rows of q and out, at least query_starts[sequences]; only with query_starts */
  /* Prefill in two passes: most bytes of the halves of K and V that the workspace has for a chunk of the context; at
   * least one tile of tokens is converted. 0: 128 MiB, on the CPU back-end 256 KiB. */
  size_t context_chunk_bytes;
  /* "token_ranges": [sequences] of two numbers: the first token that queries of the sequence see, and the token behind
   * the last. Tiles outside are not read. Numbers are clamped to 0 .. length; an empty range hides every token.
   * Positions stay those of the whole sequence. A batch with padding on the left has its lengths of padding here. */
  const int* token_ranges;
} kvjit_attention_call;

/* Writes the slopes that ggml uses for ALiBi.
 *   max_bias  0 to 126; 0: every slope is 1
 *   heads     query heads, 1 to 65536
 *   slopes    receives `heads` numbers, in host memory */
KVJIT_API kvjit_status kvjit_alibi_slopes(float max_bias, int heads, float* slopes, kvjit_error* error);

/* Bytes of a check record. A program with `checks = true` in [target] reads lengths, page tables and slots on the
 * device and checks them before it uses them; of page tables the entries that are page numbers (kvjit_pages). A call
 * with a value out of range writes that value to its check record. This call, and all calls after it with the same
 * record, then read and write nothing else until the record is set to zero again. The record is device memory, and zero
 * before the first call. */
#define KVJIT_CHECK_BYTES 64
/* What a check record says. */
typedef struct kvjit_check {
  size_t size;
  const char* array; /* "lengths", "k_pages", "v_pages", "pages", "slots" or "query_starts"; NULL: every value was in
                        range */
  kvjit_index index, /* index in that array of the first value out of range */
      value;         /* that value */
  kvjit_index least, /* smallest value in range */
      most;          /* largest value in range */
  kvjit_index count; /* values that are out of range */
} kvjit_check;
/* Waits for the stream, then reads the record into *check. stream may be NULL: the default stream. */
KVJIT_API kvjit_status kvjit_read_check(const kvjit_program* program, const void* record, void* stream,
                                        kvjit_check* check, kvjit_error* error);

/* What an attention call ran. */
typedef struct kvjit_report {
  size_t size;
  int kernel_count;            /* entries of `kernels` */
  const char* kernels[8];      /* names, in launch order; one that prefill in two passes repeats is named once */
  const char *k_reader,        /* format in which the kernel read K */
      *v_reader;               /* format in which the kernel read V */
  kvjit_index cache_bytes;     /* bytes of K and V that the call has to read, at `tokens` tokens for each sequence */
  kvjit_index converted_bytes; /* bytes of halves that the first pass of prefill in two passes made of the cache;
                                  0 for all other calls */
  int blocks;                  /* blocks of the attention kernel; 1 for kvjit_reference */
  const char* features;        /* features of the call, as in kvjit_program_info */
} kvjit_report;

/* Sets *bytes to the size of the workspace that a call needs. The function reads tokens, sequences, kv_heads, blocks,
 * queries and whether `lengths` is NULL, and no other member of the call. So an engine may call it before any memory
 * exists. With run-time query lengths more queries may need less: another kernel may serve them. */
KVJIT_API kvjit_status kvjit_workspace_bytes(const kvjit_program* program, const kvjit_attention_call* call,
                                             size_t* bytes, kvjit_error* error);

/* Computes attention of the queries over the cache. The call only queues work on the stream: it allocates no device
 * memory and does not synchronize, so it is safe in CUDA graphs. report may be NULL.
 *
 * A query row answers for itself: the bits of a row of `out` and of its lse follow from its own query, the cache and
 * the shape of the call (lengths, counts, blocks). They do not depend on the numbers of other rows, which may be
 * larger, infinite or NaN. attention.sparse_v is the exception: all rows of a KV head decide which tokens it passes
 * over. */
KVJIT_API kvjit_status kvjit_attention(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                                       kvjit_error* error);
/* Computes the same with the program's `reference` kernel: plain, slow and readable, to check kvjit_attention against.
 * The first call also loads that kernel. report may be NULL. */
KVJIT_API kvjit_status kvjit_reference(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                                       kvjit_error* error);

/* Finds the tokens that the mask of a call shows to any query, and writes token_ranges for calls with that mask, for
 * programs with the features "mask" and "token_ranges". Reads `mask` and its strides, `lengths`, `tokens`, `sequences`,
 * `kv_heads`, `queries` and `stream`, and no other member. token_ranges: [sequences] of two numbers in device memory; a
 * sequence that is shown nothing gets an empty range. An engine whose layers share a mask asks once a step. Ragged
 * batches are refused. Only queues work on the stream; the first call also loads its kernel. */
KVJIT_API kvjit_status kvjit_mask_ranges(kvjit_program* program, const kvjit_attention_call* call, int* token_ranges,
                                         kvjit_error* error);

/* Most outputs that one call merges. */
#define KVJIT_MOST_MERGE_CONTEXTS 16
/* The output of one call over a part of the context, in device memory. */
typedef struct kvjit_merge_context {
  kvjit_rows out;   /* [sequences][query_length][query heads], of the program's out type; f32 loses nothing */
  const float* lse; /* lse of that call; -infinity: the row saw nothing, and its output is not read */
} kvjit_merge_context;
typedef struct kvjit_merge_call {
  size_t size;
  const kvjit_merge_context* contexts; /* `context_count` outputs; the array is in host memory */
  int context_count;                   /* 1 to KVJIT_MOST_MERGE_CONTEXTS; merged outputs can be merged again */
  int sequences,                       /* at least 1 */
      kv_heads;                        /* at least 1 */
  kvjit_rows out;                      /* receives the output over the whole context, of the program's out type */
  float* lse;                          /* receives the lse over the whole context; NULL: it is not written */
  void* stream;                        /* NULL: the default stream */
  int queries; /* 0: the program's query_length. Programs with query_length = "any": queries of each sequence; a ragged
                  batch is one sequence with all its rows. */
} kvjit_merge_call;
/* Merges outputs over parts of a context into the output over all of it, for programs with the feature "lse". Uses: a
 * context that is split over devices (position_offset, leaves_sinks), or a prefix that several sequences share. Only
 * queues work on the stream; the first call also loads its kernel. */
KVJIT_API kvjit_status kvjit_merge(kvjit_program* program, const kvjit_merge_call* call, kvjit_error* error);

#ifdef __cplusplus
}
#endif
#endif
