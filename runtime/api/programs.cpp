// The C interface of programs: kvjit_program_create, requests in the background, kvjit_warm, and the description of
// loaded kernels. runtime/kvjit.h is the manual.
// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "generator/resolve/layers.hpp"
#include "runtime/api/support.hpp"
#include "runtime/jit/warm.hpp"

using namespace kvjit::c_api;
using kvjit::Code;
using kvjit::Error;
using kvjit::fail;
using kvjit::Result;

struct kvjit_request {
  std::stop_source stop;
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false, is_returned = false;  // is_returned: the callback has returned as well
  Result<std::unique_ptr<kvjit_program>> outcome = fail(Code::internal, "not run");
};

namespace {

Result<std::shared_ptr<ServedSpec>> serve(const kvjit_context& context, const std::string& toml,
                                          const std::string& file, const char* arch) {
  KV_TRY(registry, registry(context));
  KV_TRY(specs, kvjit::parse_all(toml, file, *registry));
  if (specs.size() != 1)
    return fail(Code::unsupported,
                fmt::format("[matrix] and [layers] give {} specs; a program is one spec", specs.size()), {file},
                {"leave both out, or create one program for each combination and each group of layers"});
  const kvjit::DeviceInfo& info = context.context->backend()->info();
  KV_TRY(chosen, choose_arch(specs[0], arch, *context.context));
  KV_TRY(generated, generate(specs[0], *registry, chosen, info.is_gpu ? info.name : ""));
  auto served = std::make_shared<ServedSpec>();
  served->registry = std::move(registry);
  served->problem = std::move(generated.problem);
  served->source = std::make_shared<const kvjit::ProgramSource>(std::move(generated.source));
  return served;
}

Result<std::unique_ptr<kvjit_program>> make(kvjit_context& context, const std::string& toml, const std::string& file,
                                            const char* arch, std::stop_token stop) {
  if (stop.stop_requested()) return fail(Code::cancelled, "the request was cancelled");
  const std::string spec_key = Answers::key(toml.c_str(), arch).append(1, '\0').append(file);
  std::shared_ptr<ServedSpec> spec = context.specs.find(spec_key);
  if (!spec) {
    KV_TRY(served, serve(context, toml, file, arch));
    spec = std::move(served);
    context.specs.keep(spec_key, spec);
  }
  KV_TRY(created, kvjit::Program::create(context.context, spec->source, stop));
  auto handle = std::make_unique<kvjit_program>();
  handle->context = context.context;
  handle->spec = std::move(spec);
  handle->program = std::move(created);
  return handle;
}

// make() for threads of the context, which no exception may leave: an exception becomes an error. The texts fit a
// string without an allocation, because the exception may be bad_alloc.
Result<std::unique_ptr<kvjit_program>> make_guarded(kvjit_context& context, const std::string& toml,
                                                    const std::string& file, const char* arch,
                                                    std::stop_token stop) noexcept {
  try {
    return make(context, toml, file, arch, std::move(stop));
  } catch (const std::bad_alloc&) {
    return fail(Code::environment, "no memory");
  } catch (...) {
    return fail(Code::internal, "an exception");
  }
}

// The kernels that a program of the spec loads first. Errors that are no refusal, such as a compiler that is missing,
// are errors.
Result<std::shared_ptr<const FirstKernels>> first_kernels(kvjit_context& context, const std::string& key,
                                                          const char* toml, const char* arch) {
  if (auto kernels = context.readiness.find(key)) return kernels;
  auto kernels = std::make_shared<FirstKernels>();
  const auto served = serve(context, toml, "spec", arch);
  if (!served) {
    const Code code = served.error().code;
    if (code != Code::usage && code != Code::bad_input && code != Code::unsupported)
      return tl::unexpected(served.error());
    kernels->is_refused = true;
  } else {
    const kvjit::Program program(context.context, (*served)->source);
    KV_TRY(sources, program.first_kernels());
    for (const kvjit::Source* source : sources) {
      KV_TRY(places, context.context->places(*source));
      kernels->places.push_back(std::move(places));
    }
  }
  context.readiness.keep(key, kernels);
  return kernels;
}

int state_of(kvjit_context& context, const std::string& key, const FirstKernels& kernels) {
  if (kernels.is_refused) return KVJIT_REFUSED;
  bool is_here = true, is_being_made = context.readiness.is_requested(key);
  for (const kvjit::Context::KernelPlaces& places : kernels.places) {
    const kvjit::Presence presence = context.context->presence(places);
    is_here &= presence == kvjit::Presence::here;
    is_being_made |= presence == kvjit::Presence::being_made;
  }
  return is_here ? KVJIT_READY : is_being_made ? KVJIT_COMPILING : KVJIT_UNCOMPILED;
}

}  // namespace

kvjit_status kvjit_readiness(kvjit_context* context, const kvjit_readiness_call* call, int* states,
                             kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_TRY(c, read_struct(call, "call"));
    if (c.spec_count < 0 || (c.spec_count > 0 && !c.specs))
      return fail(Code::usage, fmt::format("specs of {} entries", c.spec_count));
    if (c.spec_count > 0) KV_CHECK(need(states, "states"));
    for (int i = 0; i < c.spec_count; ++i) {
      KV_CHECK(need(c.specs[i], "a spec of the list"));
      const std::string key = Answers::key(c.specs[i], c.arch);
      KV_TRY(kernels, first_kernels(*context, key, c.specs[i], c.arch));
      states[i] = state_of(*context, key, *kernels);
    }
    return {};
  });
}

kvjit_status kvjit_program_create(kvjit_context* context, const char* toml, const char* file_name, const char* arch,
                                  kvjit_program** program, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(need(toml, "toml"));
    KV_CHECK(need(program, "program"));
    KV_TRY(new_program, make(*context, toml, file_name ? file_name : "spec", arch, {}));
    *program = new_program.release();
    return {};
  });
}

kvjit_status kvjit_program_request(kvjit_context* context, const char* toml, const char* file_name, const char* arch,
                                   void (*done)(void* user, kvjit_status status), void* user, kvjit_request** request,
                                   kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_CHECK(need(toml, "toml"));
    KV_CHECK(need(request, "request"));
    auto new_request = std::make_unique<kvjit_request>();
    kvjit_request* const job = new_request.get();
    const std::string key = Answers::key(toml, arch);
    context->readiness.begin_request(key);
    const auto end = [context, &key](kvjit_request*) { context->readiness.end_request(key); };
    std::unique_ptr<kvjit_request, decltype(end)> unqueued(job, end);  // if the task cannot be queued
    context->workers.run([job, key, done, user, context, text = std::string(toml),
                          file = std::string(file_name ? file_name : "spec"), named = arch != nullptr,
                          chosen = std::string(arch ? arch : "")] {
      auto outcome = make_guarded(*context, text, file, named ? chosen.c_str() : nullptr, job->stop.get_token());
      const auto status = outcome ? KVJIT_OK : static_cast<kvjit_status>(outcome.error().code);
      context->readiness.end_request(key);
      {
        const std::lock_guard lock(job->mutex);
        job->outcome = std::move(outcome);
        job->is_done = true;
        job->ended.notify_all();
      }
      if (done) done(user, status);
      const std::lock_guard lock(job->mutex);
      job->is_returned = true;
      job->ended.notify_all();
    });
    static_cast<void>(unqueued.release());
    *request = new_request.release();
    return {};
  });
}

kvjit_status kvjit_request_wait(kvjit_request* request, int timeout_ms, kvjit_program** program, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(request, "request"));
    KV_CHECK(need(program, "program"));
    std::unique_lock lock(request->mutex);
    const auto is_done = [&] { return request->is_done; };
    if (timeout_ms < 0)
      request->ended.wait(lock, is_done);
    else
      request->ended.wait_for(lock, std::chrono::milliseconds(timeout_ms), is_done);
    if (!request->is_done) {
      *program = nullptr;
      return {};
    }
    if (!request->outcome) return tl::unexpected(request->outcome.error());
    if (!*request->outcome) return fail(Code::usage, "the program of this request was handed out before");
    *program = request->outcome->release();
    return {};
  });
}

void kvjit_request_cancel(kvjit_request* request) {
  guarded([&] {
    if (request) request->stop.request_stop();
  });
}

void kvjit_request_destroy(kvjit_request* request) {
  guarded([&] {
    if (!request) return;
    request->stop.request_stop();
    {
      std::unique_lock lock(request->mutex);
      request->ended.wait(lock, [&] { return request->is_returned; });
    }
    delete request;
  });
}

kvjit_status kvjit_warm(kvjit_context* context, const kvjit_warm_call* call, kvjit_warm_report* report,
                        kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(context, "context"));
    KV_TRY(c, read_struct(call, "call"));
    if (report) KV_CHECK(check_output(report, "report"));
    if (c.spec_count < 0 || (c.spec_count > 0 && !c.specs))
      return fail(Code::usage, fmt::format("specs of {} entries", c.spec_count));
    if (c.threads < 0) return fail(Code::usage, fmt::format("{} threads", c.threads));
    const kvjit::DeviceInfo& info = context->context->backend()->info();
    const std::string device = info.is_gpu ? info.name : "";
    kvjit::Source none;
    none.arch = c.arch ? c.arch : info.arch;
    KV_TRY(toolchain, context->context->store()->key(none));
    const bool is_named = c.arch || !context->context->options().arch.empty();
    std::vector<std::string> list = {
        toolchain.hex,     none.arch, device, is_named ? "named" : "own", c.operations ? c.operations : "",
        context->own_specs};
    for (int i = 0; i < c.spec_count; ++i) {
      KV_CHECK(need(c.specs[i], "a spec of the list"));
      list.emplace_back(c.specs[i]);
    }
    const auto sources = [&]() -> Result<std::vector<kvjit::Source>> {
      std::vector<kvjit::Source> all;
      KV_TRY(registry, registry(*context));
      KV_TRY(operations, kvjit::read_operations(c.operations ? c.operations : ""));
      std::vector<kvjit::Problem> problems;
      for (int i = 0; i < c.spec_count; ++i) {
        KV_TRY(specs, kvjit::parse_all(c.specs[i], fmt::format("spec {}", i), *registry));
        for (const kvjit::Spec& spec : specs) {
          KV_TRY(arch, choose_arch(spec, c.arch, *context->context));
          KV_TRY(program, generate(spec, *registry, arch, device));
          kvjit::for_each_kernel(program.source,
                                 [&](kvjit::Role, kvjit::Source& source) { all.push_back(std::move(source)); });
          problems.push_back(std::move(program.problem));
        }
      }
      KV_TRY(more, kvjit::operation_kernels(problems, operations, *registry));
      std::move(more.begin(), more.end(), std::back_inserter(all));
      return all;
    };
    const auto progress = [&](const kvjit::WarmProgress& p) {
      if (c.progress) c.progress(c.progress_user, p.done, p.count, p.kernel.c_str());
    };
    const unsigned threads =
        c.threads ? static_cast<unsigned>(c.threads) : std::max(1u, std::thread::hardware_concurrency());
    KV_TRY(done, kvjit::warm(*context->context, list, sources, threads, progress));
    if (report) write_struct(report, {0, done.kernels, static_cast<int>(done.compiled), done.was_complete});
    return {};
  });
}

kvjit_status kvjit_program_kernel_count(const kvjit_program* program, int* count, kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_CHECK(need(count, "count"));
    *count = static_cast<int>(program->program->loaded_kernels().size());
    return {};
  });
}

kvjit_status kvjit_program_kernel(const kvjit_program* program, int index, kvjit_kernel_info* info,
                                  kvjit_error* error) {
  return guarded(error, [&]() -> Result<void> {
    KV_CHECK(need(program, "program"));
    KV_CHECK(check_output(info, "info"));
    const auto kernels = program->program->loaded_kernels();
    if (index < 0 || index >= static_cast<int>(kernels.size()))
      return fail(Code::usage, fmt::format("kernel {}; {} are loaded", index, kernels.size()));
    const auto& [role, source_of, record_of] = kernels[static_cast<std::size_t>(index)];
    const kvjit::KernelRecord& record = *record_of;
    const kvjit::Source& source = *source_of;
    write_struct(info,
                 {0, record.name.c_str(), kvjit::to_string(role), record.key.c_str(), kvjit::to_string(record.origin),
                  record.registers, record.stack_bytes, record.spill_bytes, source.threads, source.shared_bytes,
                  static_cast<kvjit_index>(record.code_bytes), record.ready_ms, record.compile_ms});
    return {};
  });
}

void kvjit_program_destroy(kvjit_program* program) {
  guarded([&] { delete program; });
}
