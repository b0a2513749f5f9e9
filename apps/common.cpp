#include "common.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/text.h"

namespace rpeg::apps {
namespace {

std::time_t now() {
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  std::time_t value = 0;
  if (epoch != nullptr &&
      std::from_chars(epoch, epoch + std::strlen(epoch), value).ec == std::errc()) {
    return value;
  }
  return std::time(nullptr);
}

int report(const std::string& tool, ErrorKind kind, std::string_view message) {
  std::cerr << fmt::format("{}: error: {}\n", tool, message);  // one write: ranks share stderr
  return exit_code(kind);
}

}  // namespace

int run_main(const std::string& tool, const std::function<void()>& body) {
  try {
    body();
    std::cout.flush();
    if (std::cout.bad()) {
      throw Error(ErrorKind::kRuntime,
                  fmt::format("writing to standard output failed: {}", std::strerror(errno)));
    }
    return 0;
  } catch (const Error& error) {
    return report(tool, error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return report(tool, ErrorKind::kRuntime, "out of memory");
  } catch (const std::exception& error) {
    return report(tool, ErrorKind::kInternal, fmt::format("internal error: {}", error.what()));
  }
}

bool parse_flags(CLI::App& app, int argc, const char* const* argv) {
  app.set_version_flag("--version", app.get_name() + " " + version());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::CallForVersion& answer) {
    std::cout << answer.what() << '\n';
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::kUsage, fmt::format("{} (see {} --help)", error.what(), app.get_name()));
  }
  return true;
}

std::string above_zero(const std::string& number) {
  double value = 0.0;
  const char* end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, value);
  constexpr double kMost = 1e15;  // far beyond any use, and inside every integer type
  const bool is_above = error == std::errc() && at == end && value > 0.0 && value <= kMost;
  return is_above ? "" : fmt::format("expected a number above 0, found {}", number);
}

std::string seed_of_a_file(const std::string& number) {
  std::int64_t value = -1;
  const char* end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, value);
  const bool is_seed = error == std::errc() && at == end && value >= 0;
  return is_seed ? "" : fmt::format("expected a whole number from 0 to 2^63 - 1, found {}", number);
}

void check_writable(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_other(status)) {
    return;  // a device or a pipe: nothing is created
  }
  if (std::filesystem::is_directory(status)) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("cannot write {}: it is a directory; name a file in it", path.string()));
  }
  ensure_directory(path.parent_path());
  const std::filesystem::path probe = path.string() + ".probe";
  const bool is_writable = std::ofstream(probe).good();
  std::filesystem::remove(probe, ignored);
  if (!is_writable) {
    throw Error(ErrorKind::kUsage,
                fmt::format("cannot write {}: no file can be created there", path.string()));
  }
}

void set_up_logging(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  auto terminal = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  // On a terminal a live line may be open: it makes way.
  terminal->set_pattern(is_interactive() ? "\r\033[K%^%l%$ %v" : "%^%l%$ %v");
  if (const char* no_color = std::getenv("NO_COLOR"); no_color != nullptr && *no_color != '\0') {
    terminal->set_color_mode(spdlog::color_mode::never);
  }
  terminal->set_level(options.quiet ? spdlog::level::warn
                                    : (options.debug ? spdlog::level::debug : spdlog::level::info));
  sinks.push_back(terminal);
  if (!options.log_file.empty()) {
    ensure_directory(std::filesystem::path(options.log_file).parent_path());
    try {
      auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.log_file, true);
      file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
      file->set_level(options.debug ? spdlog::level::debug : spdlog::level::info);
      sinks.push_back(file);
    } catch (const spdlog::spdlog_ex& error) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("cannot open log file {}: {}", options.log_file, error.what()));
    }
  }
  auto logger = std::make_shared<spdlog::logger>("rpeg", sinks.begin(), sinks.end());
  logger->set_level(options.debug ? spdlog::level::debug : spdlog::level::info);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

Provenance make_provenance(const std::string& tool,
                           int argc,
                           const char* const* argv,
                           const std::vector<std::string>& inputs) {
  Provenance result;
  result.tool = tool;
  result.version = version();
  result.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now()));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) {
    result.host = host.data();
  }
  for (int i = 0; i < argc; ++i) {
    result.command += (i == 0 ? "" : " ") + std::string(argv[i]);
  }
  for (const auto& input : inputs) {
    result.inputs.emplace_back(input, sha256(read_file(input)));
  }
  return result;
}

bool is_interactive() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr || ::isatty(STDERR_FILENO) == 1) {
    return ::isatty(STDERR_FILENO) == 1;
  }
  // A rank of Open MPI writes into a pipe of its parent, which passes it on to its own stderr.
  std::error_code ignored;
  const std::string end =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/2", ::getppid()), ignored).string();
  return end.starts_with("/dev/pts/") || end.starts_with("/dev/tty");
}

}  // namespace rpeg::apps
