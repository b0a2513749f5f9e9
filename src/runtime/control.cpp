#include "runtime/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rpeg/base/error.h"
#include "runtime/message.h"

namespace rpeg {
namespace {

constexpr int kReportTag = 1;
constexpr int kWordTag = 2;

std::int64_t largest_shift(const Job& job) {
  if (job.schedule.empty()) {
    return 0;
  }
  const auto [least, most] = std::ranges::minmax_element(job.schedule, {}, &ScheduleEntry::shift);
  return most->shift - least->shift;
}

}  // namespace

std::int64_t control_lead(const Job& job) {
  std::int64_t order = 0;  // iterations that an order edge lets its target run ahead
  for (const Edge& edge : job.graph.edges) {
    if (edge.kind == EdgeKind::kOrder) {
      order = std::max(order, edge.delta - 1);
    }
  }
  const Structure& structure = job.plan.structure;
  return 1 + structure.tau_actor + structure.tau_critic + order + largest_shift(job);
}

RunControl::RunControl(Comm& group,
                       std::int64_t lead,
                       std::int64_t planned,
                       const std::atomic<bool>* stop,
                       OnTotal on_total)
    : group_(group), lead_(lead), planned_(planned), stop_(stop), on_total_(std::move(on_total)) {
  check(lead >= 1, "ranks cannot wait for the end of an iteration before they begin it");
}

bool RunControl::start(std::int64_t iteration) {
  if (iteration < lead_) {
    return true;
  }
  group_.set_context(fmt::format("the start of iteration {}", iteration));
  Word word;
  if (group_.rank() == 0) {
    const auto given = words_.find(iteration);
    check(given != words_.end(), "rank 0 starts an iteration before it has ended an earlier one");
    word = given->second;
    words_.erase(given);
  } else {
    const Bytes message = group_.receive(0, kWordTag);
    word = MessageReader(message).take<Word>();
    check(word.iteration == iteration, "the word for another iteration");
  }
  longest_iteration_s_ = word.longest_iteration_s;
  stopped_ = !word.go;
  return word.go;
}

void RunControl::finish(std::int64_t iteration, Report mine) {
  mine.stop = stop_ != nullptr && stop_->load();
  if (group_.rank() != 0) {
    group_.send(0, kReportTag, encode_report(mine));
    return;
  }
  own_.emplace(iteration, std::move(mine));
  group_.set_context(fmt::format("the end of iteration {}", iteration));
  collect(lead_ == 1 ? iteration : iteration - lead_);
  give_word(iteration + lead_);
}

void RunControl::drain() {
  if (group_.rank() == 0) {
    group_.set_context("the end of the last iteration");
    collect(planned_);
  }
}

// Merged in rank order, whoever was first.
void RunControl::collect(std::int64_t needed) {
  for (auto own = own_.find(next_report_); own != own_.end(); own = own_.find(next_report_)) {
    for (int rank = 1; rank < group_.size() && next_report_ > needed; ++rank) {
      if (!group_.ready(rank, kReportTag)) {
        return;
      }
    }
    Report total;
    merge_report(total, own->second);
    for (int rank = 1; rank < group_.size(); ++rank) {
      merge_report(total, decode_report(group_.receive(rank, kReportTag)));
    }
    own_.erase(own);
    stop_wanted_ = stop_wanted_ || total.stop;
    longest_seen_s_ = std::max(longest_seen_s_, total.iteration_s);
    on_total_(next_report_++, std::move(total));
  }
}

void RunControl::give_word(std::int64_t iteration) {
  if (iteration >= planned_ || (last_word_.has_value() && !last_word_->go)) {
    return;
  }
  const bool stops = stop_wanted_ || (stop_ != nullptr && stop_->load());
  const Word word{iteration, longest_seen_s_, !stops};
  for (int rank = 1; rank < group_.size(); ++rank) {
    Bytes message;
    append_value(message, word);
    group_.send(rank, kWordTag, std::move(message));
  }
  last_word_ = word;
  words_[iteration] = word;
}

}  // namespace rpeg
