#include "report/table.h"

#include <gtest/gtest.h>

#include "rpeg/base/error.h"

namespace rpeg::report {
namespace {

TEST(FormatTable, AlignsUtf8ByWhatATerminalShows) {
  const Table table{{"a", "Δ (%)"}, {Align::kLeft, Align::kRight}, {{"x → y", "1"}, {"z", "12.5"}}};
  EXPECT_EQ(format_table(table, "  "),
            "  a      Δ (%)\n"
            "  ─────  ─────\n"
            "  x → y      1\n"
            "  z       12.5\n");
}

TEST(FormatTable, LeavesNoTrailingSpace) {
  const Table table{{"a", "b"}, {Align::kLeft, Align::kLeft}, {{"x", ""}}};
  EXPECT_EQ(format_table(table, ""), "a  b\n─  ─\nx\n");
}

TEST(FormatTable, RefusesARowOfAnotherLength) {
  const Table table{{"a", "b"}, {Align::kLeft, Align::kLeft}, {{"x"}}};
  EXPECT_THROW(format_table(table, ""), Error);
}

}  // namespace
}  // namespace rpeg::report
