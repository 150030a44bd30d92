// Loads a program's kernels: those of attention in create(), every other one at the first call that needs it.
// SPDX-License-Identifier: MIT
#include "runtime/launch/program.hpp"

#include <fmt/format.h>

#include <future>
#include <utility>

namespace kvjit {
namespace {

bool may_take_two_passes(const ProgramSource& source) {
  return source.least_two_pass_queries > 0 && source.query_length >= source.least_two_pass_queries;
}

}  // namespace

Result<std::shared_ptr<Program>> Program::create(std::shared_ptr<Context> context, ProgramSource source,
                                                 std::stop_token stop) {
  return create(std::move(context), std::make_shared<const ProgramSource>(std::move(source)), std::move(stop));
}

Result<std::shared_ptr<Program>> Program::create(std::shared_ptr<Context> context,
                                                 std::shared_ptr<const ProgramSource> source, std::stop_token stop) {
  auto program = std::make_shared<Program>(std::move(context), std::move(source));
  KV_CHECK(program->load(stop));
  return program;
}

Program::Program(std::shared_ptr<Context> context, std::shared_ptr<const ProgramSource> source)
    : context_(std::move(context)), shared_source_(std::move(source)), source_(*shared_source_) {
  for (const ProgramSource& bucket : source_.buckets)
    buckets_.push_back(
        std::make_unique<Program>(context_, std::shared_ptr<const ProgramSource>(shared_source_, &bucket)));
  for (const ProgramSource& pass : source_.second_pass)
    second_passes_.push_back(
        std::make_unique<Program>(context_, std::shared_ptr<const ProgramSource>(shared_source_, &pass)));
}

// The CPU back-end loads the second pass and each bucket at the first call that takes it.
Result<std::vector<const Program*>> Program::parts() const {
  std::vector<const Program*> all = {this};
  if (!context_->backend()->info().is_gpu) return all;
  if (may_take_two_passes(source_))
    for (const auto& pass : second_passes_) all.push_back(pass.get());
  if (buckets_.empty()) return all;
  KV_TRY(taken, buckets_of(nullptr));
  for (const BucketLengths& one : taken) {
    KV_TRY(own, one.bucket->parts());
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

Result<std::vector<const Source*>> Program::first_kernels() const {
  std::vector<const Source*> kernels;
  KV_TRY(all, parts());
  for (const Program* part : all)
    for (const Role role : part->roles_of_attention())
      if (const auto found = part->source_.kernels.find(role); found != part->source_.kernels.end())
        kernels.push_back(&found->second);
  return kernels;
}

Result<void> Program::load_own(std::stop_token stop) const {
  for (const Role role : roles_of_attention())
    if (source_.kernels.count(role)) KV_CHECK(kernel(role, stop));
  return {};
}

// All parts are loaded at the same time.
Result<void> Program::load(std::stop_token stop) const {
  KV_TRY(all, parts());
  std::vector<std::future<Result<void>>> others;
  for (const Program* part : all)
    if (part != this) others.push_back(std::async(std::launch::async, [part, stop] { return part->load_own(stop); }));
  Result<void> outcome = load_own(stop);
  for (auto& other : others)
    if (Result<void> one = other.get(); outcome && !one) outcome = one;
  return outcome;
}

Result<const KernelRecord*> Program::kernel(Role role, std::stop_token stop) const {
  const std::lock_guard lock(mutex_);
  if (const auto entry = kernels_.find(role); entry != kernels_.end()) return &entry->second;
  const auto source = source_.kernels.find(role);
  if (source == source_.kernels.end())
    return fail(Code::unsupported, fmt::format("program {} has no {} kernel", source_.id, to_string(role)));
  KV_TRY(record, context_->get(source->second, stop));
  return &kernels_.emplace(role, std::move(record)).first->second;
}

const KernelRecord* Program::record(Role role) const {
  const std::lock_guard lock(mutex_);
  const auto entry = kernels_.find(role);
  return entry == kernels_.end() ? nullptr : &entry->second;
}

std::vector<Program::LoadedKernel> Program::loaded_kernels() const {
  std::vector<LoadedKernel> loaded;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [role, record] : kernels_) loaded.push_back({role, &source_.kernels.at(role), &record});
  }
  for (const auto& pass : second_passes_)
    for (const LoadedKernel& one : pass->loaded_kernels()) loaded.push_back(one);
  for (const auto& bucket : buckets_)
    for (const LoadedKernel& one : bucket->loaded_kernels()) loaded.push_back(one);
  return loaded;
}

std::vector<Role> Program::roles_of_attention() const {
  std::vector<Role> roles;
  if (source_.checks) roles.push_back(Role::check);
  if (!buckets_.empty()) return roles;
  if (source_.k.is_transformed && !source_.rotates_queries) roles.push_back(Role::rotate_q);
  // On a GPU calls take prefill or decode, unless they ask for the other one. The CPU back-end serves tests of both.
  const bool is_gpu = context_->backend()->info().is_gpu, has_prefill = source_.kernels.count(Role::prefill) != 0;
  const bool may_take_two =
      source_.least_two_pass_queries > 0 && source_.query_length >= source_.least_two_pass_queries;
  const bool takes_prefill = has_prefill && (!is_gpu || source_.prefill_choice != PrefillChoice::never),
             takes_decode = !has_prefill || !is_gpu || source_.prefill_choice != PrefillChoice::always;
  if (is_gpu && source_.append && (may_take_two || takes_prefill)) {
    roles.push_back(Role::append_k);
    roles.push_back(Role::append_v);
  }
  if (is_gpu && may_take_two) {
    roles.push_back(Role::dequantize_chunk_k);
    roles.push_back(Role::dequantize_chunk_v);
    if (source_.k.stays_rotated) roles.push_back(Role::rotate_q);
    if (source_.v.stays_rotated) roles.push_back(Role::rotate_out);
    if (!source_.varlen) return roles;
  }
  if (takes_prefill) roles.push_back(Role::prefill);
  if (takes_decode) {
    roles.push_back(Role::decode);
    if (!source_.fuses_merge || source_.merge_steps > 1) roles.push_back(Role::merge);
  }
  if (source_.v.is_transformed && !source_.rotates_output) roles.push_back(Role::rotate_out);
  return roles;
}

}  // namespace kvjit
