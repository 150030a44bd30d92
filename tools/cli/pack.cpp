// The verb pack: compiles the kernels of specs into a bundle for machines without a compiler (tools/pack). It also
// creates signing keys (--new-key) and lists bundles (--list).
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>

#include "runtime/base/arch_name.hpp"
#include "runtime/base/temporary.hpp"
#include "runtime/store/bundle.hpp"
#include "tools/cli/ahead.hpp"
#include "tools/cli/usage.hpp"
#include "tools/io/files.hpp"
#include "tools/io/report.hpp"
#include "tools/io/terminal.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;

struct PackArgs {
  KernelsOf kernels;
  std::string output;                                                    // -o: FILE.kvb, FILE.h or DIR/
  std::string sign_file;                                                 // --sign: key file; empty: not signed
  std::string list_file;                                                 // --list: bundle to list
  std::string new_key_file;                                              // --new-key: key file to write
  bool has_ptx = false;                                                  // --ptx
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());  // -j
};

Result<int> list_bundle(const Cli& cli, const std::string& file) {
  KV_TRY(bundle, Bundle::open(file));
  Json kernels = Json::array();
  std::vector<std::vector<std::string>> rows;
  for (const Bundle::Item& item : bundle.items()) {
    KV_TRY(bytes, bundle.read(item));
    KV_TRY(entry, decode_entry(hex(item.key), bytes));
    kernels.push_back({{"name", entry.name},
                       {"arch", item.arch},
                       {"kind", to_string(item.kind)},
                       {"bytes", entry.artefact.bytes.size()},
                       {"registers", entry.artefact.registers},
                       {"compiler", entry.compiler},
                       {"key", entry.key.hex}});
    rows.push_back({entry.name, item.arch, to_string(item.kind), std::to_string(entry.artefact.bytes.size()),
                    std::to_string(entry.artefact.registers), entry.key.hex.substr(0, 12)});
  }
  const std::string signer = bundle.signer() ? hex(*bundle.signer()) : "";
  cli.print({{"file", file}, {"digest", hex(bundle.digest())}, {"signer", signer}, {"kernels", kernels}},
            info_text({{"digest", hex(bundle.digest())}, {"signed by", signer.empty() ? "nobody" : signer}}) +
                table_text({"kernel", "arch", "kind", "bytes", "registers", "key"}, rows));
  return 0;
}

Result<int> make_key_file(const Cli& cli, const std::string& file) {
  KV_TRY(key, SigningKey::make());
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return fail(Code::environment, fmt::format("{}: {}", file, std::strerror(errno)));
  const TemporaryMark mark(file);  // a signal may end the write, as SIGXFSZ does
  const std::string text = key.text() + "\n";
  const bool is_written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (const int error = errno; ::close(fd) != 0 || !is_written) {
    ::unlink(file.c_str());  // half a key would block the next try
    return fail(Code::environment,
                fmt::format("{}: cannot be written: {}", file, std::strerror(is_written ? errno : error)));
  }
  cli.print({{"file", file}, {"public_key", hex(key.public_key())}}, hex(key.public_key()) + "\n");
  return 0;
}

// Compiles through the cache on disk, so that the next call after an interrupted one compiles only the rest. It never
// takes kernels from bundles.
Result<std::vector<CacheEntry>> compile(const Cli& cli, const PackArgs& args, const std::vector<Source>& sources,
                                        ArtefactKind kind) {
  Options options = cli.options;
  options.bundles.clear();
  KV_TRY(store, open_store_ahead(cli, options, kind));
  auto kernels = compile_ahead(cli, *store, sources, args.threads, true);
  cli.talk(counted_text(kernels));
  if (Interrupts::is_requested())
    return fail(Code::cancelled, fmt::format("interrupted: {} of {} kernels done", done_of(kernels), kernels.size()),
                {}, {"go on with: " + line_with(cli.words, {})});
  return entries_of(std::move(kernels));
}

Result<int> pack(const Cli& cli, const PackArgs& args) {
  if (!args.list_file.empty()) return list_bundle(cli, args.list_file);
  if (!args.new_key_file.empty()) return make_key_file(cli, args.new_key_file);
  if (args.kernels.specs.empty() || args.output.empty())
    return fail(Code::usage, "pack takes specs and -o: a file .kvb, a header .h, or a folder that ends in /");
  const fs::path output = args.output;
  const bool is_folder = args.output.back() == '/', is_header = output.extension() == ".h";
  if (!is_folder && !is_header && output.extension() != ".kvb")
    return fail(Code::usage, fmt::format("-o {}: neither .kvb, nor .h, nor a folder that ends in /", args.output));
  if (is_folder && !args.sign_file.empty())
    return fail(Code::usage, "--sign: a folder is not signed", {}, {"-o FILE.kvb or FILE.h is"});
  // Before the compiles: what would be refused after them.
  if (is_header) KV_CHECK(c_header_text(output.stem().string(), {}));
  KV_CHECK(is_folder ? make_folder(args.output) : check_writable(args.output));
  std::optional<SigningKey> signer;
  if (!args.sign_file.empty()) {
    KV_TRY(key, SigningKey::read_file(args.sign_file));
    signer = key;
  }
  if (args.has_ptx && !is_for_gpu(cli)) return fail(Code::usage, "--ptx: the CPU back-end has none");
  KV_TRY(sources, sources_of(cli, args.kernels));
  KV_TRY(entries, compile(cli, args, sources, is_for_gpu(cli) ? ArtefactKind::cubin : ArtefactKind::host_object));
  if (args.has_ptx) {
    std::vector<Source> later;
    std::copy_if(sources.begin(), sources.end(), std::back_inserter(later),
                 [](const Source& source) { return has_portable_ptx(source.arch); });
    if (later.empty())
      return fail(
          Code::usage, "--ptx: that of an arch that ends in a letter runs on no other GPU", {},
          {"add one that does not, such as --arch sm_90a,sm_89: sm_89 is then what programs for later GPUs ask for"});
    KV_TRY(more, compile(cli, args, later, ArtefactKind::ptx));
    entries.insert(entries.end(), more.begin(), more.end());
  }
  std::uint64_t bytes = 0;
  if (is_folder) {
    KV_CHECK(write_folder(args.output, entries));
    for (const CacheEntry& entry : entries) bytes += entry.artefact.bytes.size();
  } else {
    const auto file = write_bundle(entries, signer ? &*signer : nullptr);
    bytes = file.size();
    if (is_header) {
      KV_TRY(text, c_header_text(output.stem().string(), file));
      KV_CHECK(write_text(args.output, text));
    } else {
      KV_CHECK(write_bytes(args.output, file));
    }
  }
  cli.print({{"output", args.output}, {"kernels", entries.size()}, {"bytes", bytes}},
            fmt::format("{}: {} kernels, {}\n", args.output, entries.size(), byte_count(static_cast<double>(bytes))));
  return 0;
}

}  // namespace

void add_pack_verb(CLI::App& app, Cli& cli) {
  const auto args = std::make_shared<PackArgs>();
  CLI::App* verb = app.add_subcommand("pack", "compile kernels into a bundle for machines without a compiler");
  verb->add_option("SPEC", args->kernels.specs, "spec files")->type_name("SPEC.toml");
  verb->add_option("--arch", args->kernels.archs, "GPU architectures, instead of the spec's")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("A,B");
  verb->add_option("--operations", args->kernels.operations,
                   "also kernels that only some calls need: of slots,rope,shift,copy")
      ->type_name("LIST");
  verb->add_flag("--ptx", args->has_ptx, "PTX too, of archs that end in no letter: for GPUs that come later");
  whole_number(verb->add_option("-j", args->threads, "compile on N threads"), "N", 1, kMostThreads)
      ->default_str(kAllProcessors);
  verb->add_option("-o,--output", args->output, "FILE.kvb, FILE.h (bytes for C), or DIR/ (files and manifest.json)")
      ->type_name("FILE");
  verb->add_option("--sign", args->sign_file, "sign with this key")->type_name("KEYFILE");
  verb->add_option("--new-key", args->new_key_file, "make a key to sign with, and print its public half")
      ->type_name("KEYFILE");
  verb->add_option("--list", args->list_file, "what a bundle holds, each entry checked")->type_name("FILE.kvb");
  // A bundle is made of kernels of this compiler, never of those of another bundle.
  app.get_option("--bundle")->excludes(verb->get_option("--output"));
  verb->callback([&cli, args] { cli.action = [&cli, args] { return pack(cli, *args); }; });
}

}  // namespace kvjit
