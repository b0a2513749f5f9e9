#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "rpeg/yaml/writer.h"

namespace CLI {
class App;
}

namespace rpeg::apps {

/// Runs a tool's body and maps what it throws to an exit code, in this one place: rpeg::Error by
/// its kind, anything else to 70. A result that stdout did not take is a runtime failure. Messages
/// go to stderr.
int run_main(const std::string& tool, const std::function<void()>& body);

/// Adds --version and parses the command line. Returns false when --help or --version was answered
/// (on stdout) and the tool should end with 0. Throws kUsage for a wrong command line.
bool parse_flags(CLI::App& app, int argc, const char* const* argv);

/// For CLI11's `check`: what is wrong with the number, or "".
std::string above_zero(const std::string& number);
/// The same for a seed, which must be one that the files can hold and read back.
std::string seed_of_a_file(const std::string& number);

/// Finds out before minutes of work that the file could not be written in the end; creates missing
/// parent directories. Throws kUsage.
void check_writable(const std::filesystem::path& path);

/// Sends spdlog to stderr (in colour on a terminal unless NO_COLOR is set; level info, or debug;
/// warnings only when quiet) and, when `log_file` is not empty, to that file with time stamps.
/// Throws kUsage when the file cannot be opened.
struct LogOptions {
  bool debug = false;
  bool quiet = false;
  std::string log_file;
};
void set_up_logging(const LogOptions& options);

/// Provenance of a file that this process writes: now (or SOURCE_DATE_EPOCH), this host, this
/// command line, and the SHA-256 of each input file.
Provenance make_provenance(const std::string& tool,
                           int argc,
                           const char* const* argv,
                           const std::vector<std::string>& inputs);

/// True when stderr is a terminal, or mpirun passes it on to one.
bool is_interactive();

}  // namespace rpeg::apps
