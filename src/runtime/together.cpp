#include "runtime/together.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/runtime/run.h"
#include "runtime/message.h"

namespace rpeg {
namespace {

constexpr int kRolloutsTag = 2;

/// What went wrong on a rank; an empty text is success.
struct Fault {
  ErrorKind kind = ErrorKind::kUsage;
  std::string text;
  bool operator==(const Fault&) const = default;
};

Bytes encode_fault(const Fault& fault) {
  Bytes bytes;
  append_value(bytes, fault.kind);
  append_bytes(bytes, std::span<const char>(fault.text));
  return bytes;
}

Fault decode_fault(const Bytes& bytes) {
  MessageReader reader(bytes);
  Fault fault;
  fault.kind = reader.take<ErrorKind>();
  fault.text.resize(reader.remaining());
  reader.take_into(std::span<char>(fault.text));
  return fault;
}

}  // namespace

void run_together(Comm& comm, const std::function<void()>& body) {
  Fault mine;
  try {
    body();
  } catch (const Error& error) {
    mine = {error.kind(), error.what()};
  }
  const std::vector<Bytes> all = comm.all_gather(encode_fault(mine));
  std::vector<Fault> faults;
  std::transform(all.begin(), all.end(), std::back_inserter(faults), decode_fault);
  const auto first = std::find_if(
      faults.begin(), faults.end(), [](const Fault& fault) { return !fault.text.empty(); });
  if (first == faults.end()) {
    return;
  }
  const bool everywhere = std::count(faults.begin(), faults.end(), *first) == comm.size();
  throw Error(
      first->kind,
      everywhere ? first->text : fmt::format("rank {}: {}", first - faults.begin(), first->text));
}

Report gather_reports(Comm& control, Report mine) {
  control.set_context("end of an iteration");
  std::string rollouts = std::move(mine.rollouts);
  mine.rollouts.clear();
  if (control.rank() != 0) {
    Bytes lines;
    append_bytes(lines, std::span<const char>(rollouts));
    control.send(0, kRolloutsTag, std::move(lines));
  }
  Report total;
  const std::vector<Bytes> reports = control.all_gather(encode_report(mine));
  for (const Bytes& report : reports) {
    merge_report(total, decode_report(report));
  }
  if (control.rank() == 0) {
    total.rollouts = std::move(rollouts);
    for (int rank = 1; rank < control.size(); ++rank) {
      const Bytes lines = control.receive(rank, kRolloutsTag);
      std::string text(lines.size(), '\0');
      MessageReader(lines).take_into(std::span<char>(text));
      total.rollouts += text;
    }
  }
  return total;
}

}  // namespace rpeg
