/* A small engine: makes the program of one spec, from a bundle if one is named, and lists its kernels.
 *   consumer SPEC.toml [BUNDLE.kvb [ARCH [shift]]]
 * With a bundle nothing may be compiled. shift: also shifts keys to other positions. The exit code is the status.
 * SPDX-License-Identifier: MIT */
#include <kvjit.h>
#include <stdio.h>
#include <stdlib.h>

static kvjit_error error;

static void check(kvjit_status status) {
  if (status == KVJIT_OK) return;
  fprintf(stderr, "consumer: %s\n%s\n", error.message, error.notes);
  exit((int)status);
}

static void say(void* user, const char* message) {
  (void)user;
  fprintf(stderr, "%s\n", message);
}

static void shift_keys(kvjit_context* context, kvjit_program* program) {
  kvjit_cache_tokens keys;
  kvjit_rope rope;
  kvjit_shift_call call;
  void* memory = NULL;
  size_t bytes = 0;
  KVJIT_INIT(keys);
  KVJIT_INIT(rope);
  KVJIT_INIT(call);
  check(kvjit_cache_layout(program, KVJIT_K, 1, 1, 64, NULL, NULL, &bytes, &error));
  check(kvjit_allocate(context, bytes, &memory, &error));
  check(kvjit_cache_layout(program, KVJIT_K, 1, 1, 64, memory, &keys.cache, NULL, &error));
  rope.dims = 32;
  rope.position = 5;
  call.cache = &keys;
  call.rope = &rope;
  call.sequences = call.tokens = call.heads = 1;
  check(kvjit_shift(program, KVJIT_K, &call, &error));
  check(kvjit_synchronize(context, NULL, &error));
  kvjit_release(context, memory);
  printf("shifted\n");
}

int main(int argc, char** argv) {
  static char toml[65536];
  kvjit_context_options options;
  kvjit_context* context = NULL;
  kvjit_program* program = NULL;
  kvjit_device_info device;
  const char* bundles[1];
  int count = 0, i;
  FILE* file = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (!file || fread(toml, 1, sizeof toml - 1, file) == 0) return KVJIT_USAGE;
  fclose(file);
  if (kvjit_version() != KVJIT_VERSION_NUMBER) return KVJIT_INTEGRITY;

  KVJIT_INIT(error);
  KVJIT_INIT(options);
  KVJIT_INIT(device);
  options.log = say;
  if (argc > 2) {
    bundles[0] = argv[2];
    options.bundles = bundles;
    options.bundle_count = 1;
  }
  check(kvjit_context_create(&options, &context, &error));
  check(kvjit_context_device(context, &device, &error));
  if (argc > 2) check(kvjit_seal(context, &error));
  check(kvjit_program_create(context, toml, argv[1], argc > 3 ? argv[3] : NULL, &program, &error));
  check(kvjit_program_kernel_count(program, &count, &error));
  printf("kvjit %d.%d.%d on %s\n", KVJIT_VERSION_MAJOR, KVJIT_VERSION_MINOR, KVJIT_VERSION_PATCH, device.name);
  for (i = 0; i < count; ++i) {
    kvjit_kernel_info kernel;
    KVJIT_INIT(kernel);
    check(kvjit_program_kernel(program, i, &kernel, &error));
    printf("%s %s from %s, %d registers\n", kernel.role, kernel.name, kernel.origin, kernel.registers);
  }
  if (argc > 4) shift_keys(context, program);
  kvjit_program_destroy(program);
  kvjit_context_destroy(context);
  return KVJIT_OK;
}
