#include <cairo-pdf.h>
#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "report/gantt_rows.h"
#include "report/palette.h"
#include "rpeg/base/error.h"
#include "rpeg/base/units.h"
#include "rpeg/report/plots.h"

namespace rpeg {
namespace {

using report::Colour;
using report::Gantt;
using report::GanttBar;

// Points (1/72 inch).
constexpr double kWidth = 1000.0;
constexpr double kMargin = 18.0;
constexpr double kTitleHeight = 46.0;
constexpr double kRowHeight = 34.0;
constexpr double kBarHeight = 26.0;
constexpr double kAxisHeight = 40.0;
constexpr double kLegendHeight = 20.0;
constexpr double kLabelSize = 10.0;
constexpr double kNarrowestLabel = 7.0;
constexpr int kPeriods = 2;

struct DestroySurface {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
struct DestroyContext {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
};

cairo_status_t append(void* text, const unsigned char* data, unsigned int size) {
  for (unsigned int i = 0; i < size; ++i) {
    static_cast<std::string*>(text)->push_back(static_cast<char>(data[i]));
  }
  return CAIRO_STATUS_SUCCESS;
}

/// One drawing: its geometry and the pen.
class GanttPainter {
 public:
  GanttPainter(cairo_t* pen, const Evaluation& evaluation, const Gantt& gantt)
      : pen_(pen), evaluation_(evaluation), gantt_(gantt) {
    double widest = 60.0;
    for (std::size_t row = 0; row < gantt.rows.size(); ++row) {
      widest = std::max(widest, text_width(row_label(row), kLabelSize));
    }
    left_ = kMargin + std::min(widest, kWidth / 3) + 8.0;
    bottom_ = kTitleHeight + kRowHeight * static_cast<double>(gantt.rows.size());
  }

  /// Height of the whole drawing.
  double height() { return bottom_ + kAxisHeight + paint_legend() + kMargin; }

  void paint(const std::string& title) {
    write(kMargin, 22.0, title, 14.0, true);
    paint_grid();
    for (const GanttBar& bar : gantt_.bars) paint_bar(bar);
    paint_periods();
    paint_rows();
    paint_legend();
  }

 private:
  double x(double seconds) const {
    return left_ + (kWidth - kMargin - left_) * seconds / gantt_.end_s;
  }
  double y(std::size_t row) const { return kTitleHeight + kRowHeight * static_cast<double>(row); }
  const TimedTask& task(std::size_t id) const { return evaluation_.priced.tasks.tasks[id]; }
  bool is_transfer(std::size_t id) const { return task(id).vertex < 0; }
  std::string row_label(std::size_t row) const {
    const report::GanttRow& now = gantt_.rows[row];
    return now.gpus == 0
               ? now.label
               : fmt::format("{} ({} GPU{})", now.label, now.gpus, now.gpus > 1 ? "s" : "");
  }

  void select_font(double size, bool bold) {
    cairo_select_font_face(pen_,
                           "sans-serif",
                           CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(pen_, size);
  }
  double text_width(const std::string& text, double size) {
    select_font(size, false);
    cairo_text_extents_t extents;
    cairo_text_extents(pen_, text.c_str(), &extents);
    return extents.x_advance;
  }
  void write(double at_x, double at_y, const std::string& text, double size, bool bold = false) {
    select_font(size, bold);
    cairo_set_source_rgb(pen_, 0.0, 0.0, 0.0);
    cairo_move_to(pen_, at_x, at_y);
    cairo_show_text(pen_, text.c_str());
  }
  void fill_box(double at_x, double at_y, double width, double height, std::size_t id) {
    const Colour colour = is_transfer(id)
                              ? Colour{0.93, 0.93, 0.93}
                              : report::vertex_colour(static_cast<std::size_t>(task(id).vertex));
    cairo_rectangle(pen_, at_x, at_y, width, height);
    cairo_set_source_rgb(pen_, colour.red, colour.green, colour.blue);
    cairo_fill(pen_);
    if (is_transfer(id)) hatch(at_x, at_y, width, height);
    cairo_rectangle(pen_, at_x, at_y, width, height);
    cairo_set_source_rgb(pen_, 0.25, 0.25, 0.25);
    cairo_set_line_width(pen_, std::min(0.7, width / 3));
    cairo_stroke(pen_);
  }
  void hatch(double at_x, double at_y, double width, double height) {
    cairo_save(pen_);
    cairo_rectangle(pen_, at_x, at_y, width, height);
    cairo_clip(pen_);
    cairo_set_source_rgb(pen_, 0.35, 0.35, 0.35);
    cairo_set_line_width(pen_, 0.6);
    for (double offset = -height; offset < width; offset += 4.0) {
      cairo_move_to(pen_, at_x + offset, at_y + height);
      cairo_line_to(pen_, at_x + offset + height, at_y);
    }
    cairo_stroke(pen_);
    cairo_restore(pen_);
  }

  void paint_grid();
  void paint_bar(const GanttBar& bar);
  void paint_periods();
  void paint_rows();
  double paint_legend();

  cairo_t* pen_;
  const Evaluation& evaluation_;
  const Gantt& gantt_;
  double left_ = 0.0;
  double bottom_ = 0.0;
};

void GanttPainter::paint_grid() {
  const double distance = report::tick_distance(gantt_.end_s, 12);
  for (int i = 0; i * distance <= gantt_.end_s * (1 + 1e-9); ++i) {
    const double at = x(i * distance);
    cairo_set_source_rgb(pen_, 0.85, 0.85, 0.85);
    cairo_set_line_width(pen_, 0.5);
    cairo_move_to(pen_, at, kTitleHeight);
    cairo_line_to(pen_, at, bottom_ + 4.0);
    cairo_stroke(pen_);
    const std::string label = fmt::format("{:.4g}", i * distance);
    write(at - text_width(label, kLabelSize) / 2, bottom_ + 16.0, label, kLabelSize);
  }
  const std::string unit = "time in the steady state (s)";
  write((left_ + kWidth - text_width(unit, kLabelSize)) / 2, bottom_ + 31.0, unit, kLabelSize);
}

void GanttPainter::paint_bar(const GanttBar& bar) {
  const double from = x(std::max(0.0, bar.start_s));
  const double width = x(std::min(gantt_.end_s, bar.end_s)) - from;
  const double top = y(bar.row) + (kRowHeight - kBarHeight) / 2;
  if (width <= 0.0) return;
  fill_box(from, top, width, kBarHeight, bar.task);
  const std::string& name = task(bar.task).name;
  for (double size = kLabelSize; size >= kNarrowestLabel; size -= 1.0) {
    const double needed = text_width(name, size);
    if (needed + 4.0 > width) continue;
    if (is_transfer(bar.task)) {  // legible on the hatching
      cairo_rectangle(
          pen_, from + (width - needed) / 2 - 1.5, top + 6.0, needed + 3.0, kBarHeight - 12.0);
      cairo_set_source_rgb(pen_, 1.0, 1.0, 1.0);
      cairo_fill(pen_);
    }
    write(from + (width - needed) / 2, top + kBarHeight / 2 + size * 0.35, name, size);
    return;
  }
}

void GanttPainter::paint_periods() {
  const std::vector<double> dashes{4.0, 3.0};
  for (int period = 0; period <= kPeriods; ++period) {
    const double at = x(period * evaluation_.steady.period_s);
    cairo_set_source_rgb(pen_, 0.7, 0.1, 0.1);
    cairo_set_line_width(pen_, 0.9);
    cairo_set_dash(pen_, dashes.data(), static_cast<int>(dashes.size()), 0.0);
    cairo_move_to(pen_, at, kTitleHeight - 8.0);
    cairo_line_to(pen_, at, bottom_);
    cairo_stroke(pen_);
  }
  cairo_set_dash(pen_, nullptr, 0, 0.0);
}

void GanttPainter::paint_rows() {
  for (std::size_t row = 0; row < gantt_.rows.size(); ++row) {
    std::string label = row_label(row);
    while (label.size() > 4 && text_width(label, kLabelSize) > left_ - kMargin - 8.0) {
      label = label.substr(0, label.size() - 4) + "...";
    }
    write(kMargin, y(row) + kRowHeight / 2 + 3.5, label, kLabelSize);
    cairo_set_source_rgb(pen_, 0.8, 0.8, 0.8);
    cairo_set_line_width(pen_, 0.5);
    cairo_move_to(pen_, kMargin, y(row) + kRowHeight);
    cairo_line_to(pen_, kWidth - kMargin, y(row) + kRowHeight);
    cairo_stroke(pen_);
  }
}

/// Names and durations: what is too short for a name in its bar is found here. Returns its height.
double GanttPainter::paint_legend() {
  double at_x = kMargin;
  double at_y = bottom_ + kAxisHeight + 4.0;
  for (std::size_t id = 0; id < evaluation_.priced.tasks.tasks.size(); ++id) {
    const std::string label =
        fmt::format("{}  {}", task(id).name, format_seconds(task(id).time.total_s));
    const double width = 18.0 + text_width(label, kLabelSize) + 18.0;
    if (at_x + width > kWidth - kMargin) {
      at_x = kMargin;
      at_y += kLegendHeight;
    }
    fill_box(at_x, at_y, 13.0, 11.0, id);
    write(at_x + 18.0, at_y + 9.5, label, kLabelSize);
    at_x += width;
  }
  return at_y + kLegendHeight - (bottom_ + kAxisHeight);
}

}  // namespace

std::string gantt_pdf(const Evaluation& evaluation,
                      const WorkloadConfig& config,
                      const std::string& title) {
  const Gantt gantt = report::lay_out_gantt(evaluation, kPeriods);
  std::string pdf;
  {
    const std::unique_ptr<cairo_surface_t, DestroySurface> surface(
        cairo_pdf_surface_create_for_stream(append, &pdf, kWidth, kWidth));
    const std::unique_ptr<cairo_t, DestroyContext> pen(cairo_create(surface.get()));
    GanttPainter painter(pen.get(), evaluation, gantt);
    cairo_pdf_surface_set_size(surface.get(), kWidth, painter.height());
    painter.paint(fmt::format("{} ({}): one iteration every {}{}",
                              title,
                              to_string(config.policy.algorithm),
                              format_seconds(evaluation.steady.period_s),
                              evaluation.fits() ? "" : " - does not fit into memory"));
    cairo_show_page(pen.get());
    cairo_surface_finish(surface.get());
    const cairo_status_t status = cairo_surface_status(surface.get());
    check(status == CAIRO_STATUS_SUCCESS,
          std::string("cairo draws the timeline: ") + cairo_status_to_string(status));
  }
  return pdf;
}

}  // namespace rpeg
