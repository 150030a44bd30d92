/* kvjit: attention over quantized KV caches, with kernels generated and compiled for exactly the cache at hand.
 *
 * This header is the manual of the C interface. It is C89 and names no CUDA type: a stream is `void*` (a CUstream or
 * cudaStream_t; NULL is the default stream), a device pointer is a plain pointer that only the device may follow.
 *
 *   kvjit_context      one device, its compiler and its kernel cache
 *     kvjit_program    the kernels for one spec: quantize, dequantize, attention
 *
 * Rules that hold everywhere
 *   - A function that can fail returns a kvjit_status and takes a kvjit_error last, which may be NULL. On failure
 * outputs are untouched. Nothing is thrown, nothing falls back to something that was not asked for.
 *   - Structs that may grow start with their size. Fill them with KVJIT_INIT, then set members; zero is every default.
 * kvjit_rows, kvjit_side and kvjit_pages are parts of others and will not change.
 *   - Strings that come out stay valid as long as the handle that they came from. Strings that go in are copied.
 *   - Handles may be used from several threads; a handle must not be destroyed while in use. A program keeps what it
 * needs of its context alive, so the two may be destroyed in any order.
 *   - Strides of tensors count elements, strides of the cache count bytes.
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

/* KVJIT_VERSION_NUMBER of the library that is loaded. */
KVJIT_API int kvjit_version(void);

/* Signed and 64 bits wide (the library supports 64-bit platforms only): counts of bytes and tokens, strides. */
typedef ptrdiff_t kvjit_index;

/* ---- Errors ---- */

typedef enum kvjit_status {
  KVJIT_OK = 0,
  KVJIT_INTERNAL = 1,    /* a bug of the library */
  KVJIT_USAGE = 2,       /* a call that makes no sense: NULL where a value is needed ... */
  KVJIT_BAD_INPUT = 3,   /* a broken spec; sizes, strides, alignments that no kernel could take */
  KVJIT_UNSUPPORTED = 4, /* understood, but nothing serves it; notes say what would */
  KVJIT_COMPILE = 5,     /* the kernel compiler refused the text; notes hold its words */
  KVJIT_DIFFERS = 6,     /* results are outside the promised error */
  KVJIT_ENVIRONMENT = 7, /* no GPU, no NVRTC, no memory ... */
  KVJIT_INTEGRITY = 8,   /* a damaged or foreign artefact; a bundle that is not signed as asked */
  KVJIT_CANCELLED = 9,   /* given up by who asked for it */
  KVJIT_SEALED = 10      /* would have to be compiled, after kvjit_seal */
} kvjit_status;

/* Owned by the caller, overwritten by each call that gets it (also by success: status 0, empty texts). Texts that are
 * too long end in "...". */
typedef struct kvjit_error {
  size_t size;
  int status;       /* a kvjit_status */
  int line, column; /* of the spec, from 1; 0: unknown */
  char file[256];   /* as given to kvjit_program_create */
  char message[1024];
  char notes[3072]; /* one a line: alternatives, refused candidates, a compiler's words */
} kvjit_error;

/* ---- Context ---- */

typedef struct kvjit_context kvjit_context;
typedef struct kvjit_program kvjit_program;

enum { KVJIT_DEVICE_AUTOMATIC = 0, KVJIT_DEVICE_GPU = 1, KVJIT_DEVICE_CPU = 2 };

/* Defaults come from the environment: KVJIT_DEVICE, KVJIT_CACHE_DIR, KVJIT_CACHE_MAX_BYTES, KVJIT_NVRTC,
 * KVJIT_CUDA, KVJIT_CXX, KVJIT_BUNDLES, KVJIT_TRUSTED_KEYS (lists with ':'), KVJIT_REMOTE, KVJIT_REMOTE_WRITES. Lists
 * given here come behind those of the environment. */
typedef struct kvjit_context_options {
  size_t size;
  int device;            /* KVJIT_DEVICE_*; automatic: a GPU if there is one, else the CPU back-end (for tests: slow) */
  int ordinal;           /* which GPU */
  const char* cache_dir; /* of compiled kernels; NULL: the user's cache folder; "off": memory only */
  void (*log)(void* user, const char* message); /* warnings and progress, from any thread; NULL: silent */
  void* log_user;
  /* Bundles made by `kvjit pack`: files, and bytes in memory that must stay while the context or a program of it lives.
   * They are searched first and need no compiler. One that is damaged, or that others could have written, is said to
   * the log and left out. */
  const char* const* bundles;
  int bundle_count, bundle_bytes_count;
  const void* const* bundle_bytes;
  const size_t* bundle_sizes;
  /* Ed25519 public keys, 64 hex digits each, as `kvjit pack --new-key` prints them. With any, a bundle that none of
   * them has signed is KVJIT_INTEGRITY. Who can sign, or write a cache folder that is used, runs code on the GPU. */
  const char* const* trusted_keys;
  int trusted_key_count;
  int remote_writes;  /* kernels compiled here are stored at `remote` too */
  const char* remote; /* URL of a server of kernels in the layout of bazel-remote; NULL: none */
  /* The engine's own store, asked behind bundles and disk, from any thread. get calls give(to, entry, bytes) if it has
   * the key (64 hex digits); what it gives is checked as a file is. put gets what was compiled here. Both may be NULL.
   */
  void (*cache_get)(void* user, const char* key, void (*give)(void* to, const void* entry, size_t bytes), void* to);
  void (*cache_put)(void* user, const char* key, const void* entry, size_t bytes);
  void* cache_user;
  /* Folders with formats, rotations, archs, calibrations, policies, hooks and tuning beside those built in, as `kvjit
   * --specs` reads them; a file of a built-in one's name replaces it. They are read by kvjit_context_create, and serve
   * this context alone. */
  const char* const* specs_dirs;
  int specs_dir_count;
} kvjit_context_options;

/* options may be NULL: all defaults. */
KVJIT_API kvjit_status kvjit_context_create(const kvjit_context_options* options, kvjit_context** context,
                                            kvjit_error* error);
KVJIT_API void kvjit_context_destroy(kvjit_context* context); /* NULL is fine */

typedef struct kvjit_device_facts {
  size_t size;
  const char* name; /* "NVIDIA H200", "CPU back-end" */
  const char* arch; /* "sm_90a": what kernels are generated for */
  int is_gpu, multiprocessors;
  int driver_version; /* 13000 = 13.0; 0 on the CPU */
  size_t memory_bytes;
} kvjit_device_facts;
KVJIT_API kvjit_status kvjit_context_device(const kvjit_context* context, kvjit_device_facts* facts,
                                            kvjit_error* error);

/* From now on nothing is compiled: what would have to be is KVJIT_SEALED, and its message names the kernel. */
KVJIT_API kvjit_status kvjit_seal(kvjit_context* context, kvjit_error* error);

/* Where kernels came from, and the machine code in memory. Contexts of one device in a process share what is loaded. */
typedef struct kvjit_stats {
  size_t size;
  kvjit_index memory_hits, disk_hits, bundle_hits, callback_hits, remote_hits;
  kvjit_index misses, compiles;
  kvjit_index damaged; /* stored kernels that could not be used */
  kvjit_index lock_waits, write_failures;
  kvjit_index kernels, code_bytes;               /* of this context */
  kvjit_index shared_kernels;                    /* of those, loaded by another context before */
  kvjit_index device_kernels, device_code_bytes; /* of all contexts of the device in this process */
} kvjit_stats;
KVJIT_API kvjit_status kvjit_context_stats(kvjit_context* context, kvjit_stats* stats, kvjit_error* error);

/* ---- Memory: for programs that do not use CUDA themselves ---- */

KVJIT_API kvjit_status kvjit_allocate(kvjit_context* context, size_t bytes, void** pointer, kvjit_error* error);
KVJIT_API void kvjit_release(kvjit_context* context, void* pointer); /* NULL is fine */
KVJIT_API kvjit_status kvjit_copy_to_device(kvjit_context* context, void* to, const void* from, size_t bytes,
                                            kvjit_error* error);
KVJIT_API kvjit_status kvjit_copy_to_host(kvjit_context* context, void* to, const void* from, size_t bytes,
                                          kvjit_error* error);
KVJIT_API kvjit_status kvjit_synchronize(kvjit_context* context, void* stream, kvjit_error* error);

/* ---- Program ---- */

/* Whether a spec could be served, asked without a device. toml: NUL-terminated text. arch: "sm_90a" ..., or NULL: those
 * of the spec's [target]. Every combination of [matrix] and [layers] is asked. Returns KVJIT_OK, or the first refusal's
 * status with all reasons in `reasons` (one a line, cut with "..." at reasons_size bytes; may be NULL with size 0). */
KVJIT_API kvjit_status kvjit_supported(const char* toml, const char* arch, char* reasons, size_t reasons_size);
/* The same with the specs_dirs of a context. */
KVJIT_API kvjit_status kvjit_context_supports(const kvjit_context* context, const char* toml, const char* arch,
                                              char* reasons, size_t reasons_size);

/* Generates the kernels of a spec and makes those of attention ready: from memory, from disk, else compiled (fractions
 * of a second). file_name: for diagnostics, may be NULL. arch: NULL for the device's own. A spec whose [matrix] and
 * [layers] give more than one combination is KVJIT_UNSUPPORTED here. A spec that another program of the context is
 * made of costs about a microsecond: what it became is shared. */
KVJIT_API kvjit_status kvjit_program_create(kvjit_context* context, const char* toml, const char* file_name,
                                            const char* arch, kvjit_program** program, kvjit_error* error);
KVJIT_API void kvjit_program_destroy(kvjit_program* program); /* NULL is fine */

/* The same in the background, on threads of the context. done, which may be NULL, is called from there when wait would
 * not wait; it must not destroy anything. A request must be destroyed before its context; that cancels it. */
typedef struct kvjit_request kvjit_request;
KVJIT_API kvjit_status kvjit_program_request(kvjit_context* context, const char* toml, const char* file_name,
                                             const char* arch, void (*done)(void* user, kvjit_status status),
                                             void* user, kvjit_request** request, kvjit_error* error);
/* Up to timeout_ms (negative: for as long as it takes). KVJIT_OK with *program NULL: not yet. Else what
 * kvjit_program_create would have said; the program is the caller's, and is handed out once. */
KVJIT_API kvjit_status kvjit_request_wait(kvjit_request* request, int timeout_ms, kvjit_program** program,
                                          kvjit_error* error);
/* Only asks; wait then says KVJIT_CANCELLED, unless the program was ready. A compile under way ends where NVRTC allows.
 */
KVJIT_API void kvjit_request_cancel(kvjit_request* request);
KVJIT_API void kvjit_request_destroy(kvjit_request* request); /* NULL is fine */

/* Makes every kernel of a list of specs ([matrix] and [layers] expanded) in parallel, each once: in the cache folder,
 * or in memory if there is none. A list that is complete is marked in the folder, and the next process returns at once.
 */
typedef struct kvjit_warm_call {
  size_t size;
  const char* const* specs; /* TOML texts */
  int spec_count;
  int threads;      /* 0: all of the machine's */
  const char* arch; /* NULL: the device's own */
  /* From any thread, one at a time; may be NULL. */
  void (*progress)(void* user, int done, int count, const char* kernel);
  void* progress_user;
  /* Kernels too that only calls ask for: some of "slots, rope, shift, copy" (copies of K to K and of V to V, from each
   * spec of the list to each); NULL: none, and a sealed context refuses such calls. `kvjit pack --operations` puts them
   * into a bundle. */
  const char* operations;
} kvjit_warm_call;
typedef struct kvjit_warm_report {
  size_t size;
  int kernels, compiled;
  int was_complete; /* nothing was looked into: the list is marked */
} kvjit_warm_report;
KVJIT_API kvjit_status kvjit_warm(kvjit_context* context, const kvjit_warm_call* call, kvjit_warm_report* report,
                                  kvjit_error* error);

enum { KVJIT_F16 = 1, KVJIT_BF16 = 2, KVJIT_F32 = 3 };

typedef struct kvjit_program_facts {
  size_t size;
  const char *id, *title, *arch;
  int is_planar; /* 0: layout rows; of layout paged: what pages hold */
  int head_dim, q_heads_per_kv, query_length, is_causal;
  int q_type, out_type;    /* KVJIT_F16 ... */
  int tile_tokens;         /* in which blocks share the tokens */
  int appends;             /* calls bring new_k and new_v */
  int head_dim_v;          /* of V and the output; head_dim is of K and of queries */
  const char* features;    /* "causal, softcap 50, mask": which of the call's arrays are read */
  int page_tokens;         /* of layout paged: calls bring page tables; else 0 */
  int checks, token_heads; /* calls bring a check record; as many KV heads, side by side (cache.token_heads), or 0 */
} kvjit_program_facts;
KVJIT_API kvjit_status kvjit_program_describe(const kvjit_program* program, kvjit_program_facts* facts,
                                              kvjit_error* error);

/* The kernels that are loaded: those of attention from the start, others from their first call on. */
typedef struct kvjit_kernel_facts {
  size_t size;
  const char *name, *role, *key; /* key: 64 hex digits, for `kvjit cache inspect` */
  const char* origin;            /* "memory", "disk", "compiled", "bundle", "callback", "remote" */
  int registers, stack_bytes, spill_bytes, threads, shared_bytes;
  kvjit_index code_bytes;
  double ready_ms, compile_ms; /* what getting it took; of the compile that made it, 0: not known */
} kvjit_kernel_facts;
KVJIT_API kvjit_status kvjit_program_kernel_count(const kvjit_program* program, int* count, kvjit_error* error);
KVJIT_API kvjit_status kvjit_program_kernel(const kvjit_program* program, int index, kvjit_kernel_facts* facts,
                                            kvjit_error* error);

enum { KVJIT_K = 0, KVJIT_V = 1 };

typedef struct kvjit_side_facts {
  size_t size;
  const char* format;
  int is_rotated;
  double bits_per_value;
  kvjit_index row_bytes;       /* of a (token, KV head) in layout rows */
  kvjit_index code_row_bytes;  /* the same in the planes of layout planar ... */
  kvjit_index scale_row_bytes; /* ... 0 if the format has no scales */
} kvjit_side_facts;
KVJIT_API kvjit_status kvjit_program_side(const kvjit_program* program, int side, kvjit_side_facts* facts,
                                          kvjit_error* error);

/* ---- The cache ---- */

/* One side of a cache, on the device. Layout rows: `codes` points at the rows, `scales` is unused, any strides, 2-byte
 * aligned. Layout planar: two planes; token stride = row bytes; pointers and other strides are multiples of 16. */
typedef struct kvjit_side {
  void* codes;
  void* scales;
  kvjit_index codes_sequence_stride, codes_head_stride, codes_token_stride;
  kvjit_index scales_sequence_stride, scales_head_stride, scales_token_stride;
} kvjit_side;

/* Layout paged: `codes` and `scales` of a kvjit_side point into page 0 of a pool, and its sequence strides are the
 * bytes from page to page. A page has page_tokens tokens of all heads; head and token strides are free, so that
 * [token][head], [head][token], slots that hold codes beside scales, and sections apart are only numbers. Pages of
 * whole blocks: even strides, pages a multiple of 16 bytes apart. Pages of planes: pointers and strides are multiples
 * of the largest power of two, up to 16, in the row bytes of the plane; of 16, where rows are dense from token to
 * token. Which page has the tokens of a sequence from i * page_tokens on is said by entry i of its row of a table of
 * 32-bit numbers on the device. Every sequence has an entry at least; entries behind its last token may be anything. */
typedef struct kvjit_pages {
  const int* table;       /* [sequences][row_stride] */
  kvjit_index row_stride; /* entries */
  kvjit_index pool_pages; /* how many there are: for target.checks only, else not looked at */
} kvjit_pages;

/* How this library would lay out one side in one block of memory: its size, and its description when it starts at
 * `base` (NULL: strides only). An engine may use strides of its own instead. Either output may be NULL. Layout paged: a
 * pool of as many pages as the sequences need, each sequence's capacity rounded up to whole pages. */
KVJIT_API kvjit_status kvjit_cache_layout(const kvjit_program* program, int side, kvjit_index sequences,
                                          kvjit_index heads, kvjit_index capacity_tokens, void* base, kvjit_side* cache,
                                          size_t* bytes, kvjit_error* error);

/* A tensor [sequences][tokens or queries][heads][head_dim] on the device; head_dim is dense. */
typedef struct kvjit_rows {
  void* data;
  kvjit_index sequence_stride, query_stride, head_stride;
} kvjit_rows;

enum { KVJIT_INT64 = 0, KVJIT_INT32 = 1 };

/* Rotary positions: pair i of the values first .. first + dims - 1 of a row turns by
 *   position * scale * base^(-2 i / dims) / factors[i]
 * radians, and is multiplied with `magnitude`. */
enum { KVJIT_ROPE_NEIGHBOURS = 0, KVJIT_ROPE_HALVES = 1 };
typedef struct kvjit_rope {
  size_t size;
  int pairs;       /* which values turn together: 2 i and 2 i + 1 (ggml: normal), or i and i + dims / 2 (neox) */
  int first, dims; /* dims: even, up to 512 */
  double base, scale, magnitude; /* 0: 10000, 1, 1; scale: ggml's freq_scale */
  const float* factors;          /* on the device, dims / 2 numbers above 0; NULL: all 1 */
  const int* positions; /* on the device, [sequences][tokens]: of each token of the call; NULL: `position` for all */
  int position;
  /* YaRN, where extrapolation is not 0: pairs that turn more than beta_fast times in trained_tokens tokens keep their
   * frequency, those below beta_slow have `scale`, with a ramp between (ggml: ext_factor, n_ctx_orig). What it
   * multiplies lengths with is `magnitude`. */
  double extrapolation, beta_fast, beta_slow; /* beta 0: 32 and 1 */
  int trained_tokens;
} kvjit_rope;

typedef struct kvjit_codec_call {
  size_t size;
  kvjit_rows x; /* quantize reads it, dequantize writes it; query_stride is the token's */
  int x_type;   /* of x: KVJIT_F16, KVJIT_BF16 or KVJIT_F32 */
  kvjit_side cache;
  const void* slots; /* on the device, of slot_type, [sequences][tokens]: the cache's token that each is; NULL: from
                        first_token on. Layout paged: page * page_tokens + place in the page. Negative: quantize stores
                        the token nowhere, dequantize gives zeros for it */
  kvjit_index first_token;
  int sequences, tokens, heads;
  int keep_rotated; /* dequantize: leave values in the rotated domain */
  void* stream;
  float tensor_scale;     /* of formats that have one scale for the whole tensor (fp8): value = number * scale; 0: 1 */
  kvjit_pages pages;      /* of layout paged; with slots no table is needed      */
  void* check;            /* of target.checks */
  kvjit_index slot_count; /* of target.checks, with slots, of other layouts: the tokens that a sequence has room for */
  int slot_type;          /* KVJIT_INT64 or KVJIT_INT32 */
  const kvjit_rope* rope; /* quantize: rows turn to their positions first; NULL: they are stored as they are */
} kvjit_codec_call;

/* Both only queue work on the stream; the first call of each kind and side also gets its kernel. */
KVJIT_API kvjit_status kvjit_quantize(kvjit_program* program, int side, const kvjit_codec_call* call,
                                      kvjit_error* error);
KVJIT_API kvjit_status kvjit_dequantize(kvjit_program* program, int side, const kvjit_codec_call* call,
                                        kvjit_error* error);

/* The tokens of a cache that an operation reads or writes: token t of sequence s is slots[s * tokens + t], or
 * first_token + t where slots are NULL; both as in kvjit_codec_call. */
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

/* How a copy is made, best first. BYTES: as they are stored, where formats and tensor scales are one. INNER: numbers
 * that stay rotated, where both formats rotate alike, or neither does. NUMBERS: by way of the caller's domain. Numbers
 * are coded anew, and lose what the format loses. */
enum { KVJIT_COPY_BYTES = 0, KVJIT_COPY_INNER = 1, KVJIT_COPY_NUMBERS = 2 };
typedef struct kvjit_copy_call {
  size_t size;
  const kvjit_cache_tokens *from, *to; /* tokens whose number is negative at either end are left out */
  int sequences, tokens, heads;
  void *stream, *check; /* check: of target.checks of either program */
} kvjit_copy_call;
typedef struct kvjit_copy_report {
  size_t size;
  int kind; /* KVJIT_COPY_* */
  const char* kernel;
} kvjit_copy_report;
/* Tokens of one cache to another, of any format and layout, by one kernel: `from` and `to` are programs of the same
 * context, head size and arch, or the same program; the tokens must not overlap. report may be NULL. Only queues work;
 * the first call of each kind gets its kernel. */
KVJIT_API kvjit_status kvjit_copy(kvjit_program* from, int from_side, kvjit_program* to, int to_side,
                                  const kvjit_copy_call* call, kvjit_copy_report* report, kvjit_error* error);

/* Keys that were stored with rotary positions, to other positions, in place (llama.cpp: K-shift): rows are decoded,
 * turned by `positions` more, and coded again. Rows with 0 keep their bytes. magnitude must be 0 or 1 for pure turns.
 */
typedef struct kvjit_shift_call {
  size_t size;
  const kvjit_cache_tokens* cache;
  const kvjit_rope* rope;
  int sequences, tokens, heads;
  void* stream;
  void* check; /* of target.checks */
} kvjit_shift_call;
KVJIT_API kvjit_status kvjit_shift(kvjit_program* program, int side, const kvjit_shift_call* call, kvjit_error* error);

/* ---- Attention ---- */

#define KVJIT_MOST_BLOCKS 512
#define KVJIT_COUNTER_BYTES 32768

typedef struct kvjit_attention_call {
  size_t size;
  kvjit_rows q; /* [sequences][query_length][kv_heads * q_heads_per_kv][head_dim] of the program's q type */
  kvjit_side k, v;
  kvjit_rows out;     /* shaped like q, of the program's out type */
  const int* lengths; /* on the device: tokens of each sequence; NULL: `tokens` for all */
  int tokens;         /* the largest length */
  int sequences, kv_heads;
  int blocks;   /* at most, that share the tokens; up to KVJIT_MOST_BLOCKS; 0: chosen for the device */
  double scale; /* of scores; 0: 1/sqrt(head_dim) */
  /* At least what kvjit_workspace_bytes says; 16-byte aligned. Its first KVJIT_COUNTER_BYTES must be zero before the
   * first call that uses it, and every call leaves them zero; the rest does not matter. Calls that may run at the same
   * time need workspaces of their own. */
  void* workspace;
  size_t workspace_bytes;
  void* stream;
  float k_tensor_scale, v_tensor_scale; /* as in kvjit_codec_call */
  /* Of programs with attention.append, and only of those: K and V of the query_length newest tokens,
   * [sequences][query_length] [kv_heads][head_dim]; query_stride is the token's. `tokens` and `lengths` count them: row
   * i becomes token length - query_length + i of the cache, stored as kvjit_quantize would, and attended to.
   * kvjit_reference stores nothing: the tokens must be in the cache by then. */
  kvjit_rows new_k, new_v;
  int new_type; /* KVJIT_F16, KVJIT_BF16 or KVJIT_F32 */
  /* What the features of a program read, on the device, and of no others (kvjit_program_facts.features). Query heads
   * count through all KV heads; strides count elements, and 0 makes one row serve all. */
  const void* mask; /* "mask": halves [sequence][query head][query][token], added to the scores; tokens are dense;
                       -infinity: the query does not see the token */
  kvjit_index mask_sequence_stride, mask_head_stride, mask_query_stride;
  const unsigned* packed_mask; /* "packed_mask": 32-bit words likewise; bit t % 32 of word t / 32 is whether the query
                                  sees token t of the newest packed_tokens ones (0: of all); it sees those before */
  kvjit_index packed_sequence_stride, packed_head_stride, packed_query_stride;
  int packed_tokens;
  int position_offset;         /* "position_offset": query i stands at token length - query_length + i + this ... */
  const int* position_offsets; /* ... plus this of its sequence; NULL: nothing more. A context that is split over
                                  devices: the tokens that stand behind those of the call */
  const float* slopes;         /* "alibi", "mask_slopes": of each query head */
  const float* sinks;          /* "sinks": a logit of each query head, with no value */
  int leaves_sinks; /* sinks are counted by another call, over another part of the context; `sinks` may be NULL */
  float* lse;       /* "lse", written: [sequence][query][query head] natural logarithm of the sum of exp(score), sinks
                       included       unless they are left; -infinity where no token is seen */
  kvjit_pages k_pages, v_pages; /* of layout paged; mostly the same table */
  void* check;                  /* of target.checks */
} kvjit_attention_call;

/* ggml's slopes for ALiBi, of `heads` query heads; max_bias 0: all 1. */
KVJIT_API kvjit_status kvjit_alibi_slopes(float max_bias, int heads, float* slopes, kvjit_error* error);

/* Programs with `checks = true` in [target] look at lengths, page tables and slots on the device before they use them.
 * A call that has something out of range writes to its check record, of KVJIT_CHECK_BYTES in device memory, zero before
 * the first call; it, and all calls after it with that record, then read and write nothing else, until the record is
 * set to zero again. */
#define KVJIT_CHECK_BYTES 64
typedef struct kvjit_check {
  size_t size;
  const char* array;        /* "lengths", "k_pages", "v_pages", "pages", "slots"; NULL: all was in range */
  kvjit_index index, value; /* the first that was found, as counted in that array */
  kvjit_index least, most;  /* what it might have been */
  kvjit_index count;        /* how many there are */
} kvjit_check;
/* Waits for the stream, then reads the record. */
KVJIT_API kvjit_status kvjit_read_check(const kvjit_program* program, const void* record, void* stream,
                                        kvjit_check* check, kvjit_error* error);

/* What really ran. converted_bytes: bytes of cache that were converted outside the fused kernel; always 0. */
typedef struct kvjit_report {
  size_t size;
  int kernel_count;
  const char* kernels[8]; /* in launch order */
  const char *k_reader, *v_reader;
  kvjit_index cache_bytes; /* of K and V that the call has to read, at `tokens` for each sequence */
  kvjit_index converted_bytes;
  int blocks;           /* of the attention kernel */
  const char* features; /* that the call had, as in kvjit_program_facts */
} kvjit_report;

/* Looks at tokens, sequences, kv_heads, blocks, and whether there are lengths; at nothing else. */
KVJIT_API kvjit_status kvjit_workspace_bytes(const kvjit_program* program, const kvjit_attention_call* call,
                                             size_t* bytes, kvjit_error* error);

/* Only queues work on the stream: no device allocation, no synchronisation, safe in CUDA graphs. report may be NULL. */
KVJIT_API kvjit_status kvjit_attention(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                                       kvjit_error* error);
/* The same by one plain, slow, readable kernel: to check kvjit_attention against. */
KVJIT_API kvjit_status kvjit_reference(kvjit_program* program, const kvjit_attention_call* call, kvjit_report* report,
                                       kvjit_error* error);

/* Outputs over parts of a context, of calls with "lse", to the output over all of it: a context split over devices
 * (position_offset, leaves_sinks), or a prefix that sequences share. Rows are [sequences][query_length][query heads] of
 * the program's out type (f32 loses nothing). A part in which a row has seen nothing has lse -infinity, and its output
 * is not looked at. */
#define KVJIT_MOST_MERGE_PARTS 16
typedef struct kvjit_merge_part {
  kvjit_rows out;
  const float* lse;
} kvjit_merge_part;
typedef struct kvjit_merge_call {
  size_t size;
  const kvjit_merge_part* parts; /* on the host; what they point at is on the device */
  int part_count;                /* up to KVJIT_MOST_MERGE_PARTS; what is merged can be merged again */
  int sequences, kv_heads;
  kvjit_rows out;
  float* lse; /* of the whole; NULL: not wanted */
  void* stream;
} kvjit_merge_call;
KVJIT_API kvjit_status kvjit_merge(kvjit_program* program, const kvjit_merge_call* call, kvjit_error* error);

#ifdef __cplusplus
}
#endif
#endif
