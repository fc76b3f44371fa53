// The page's parts, in its order. Each appends its own HTML, and is complete without a script.
#pragma once

#include <string>
#include <vector>

#include "cli/report/content.hpp"
#include "cli/report/series.hpp"

namespace kiln::cli::report {

void draw_summary(std::string& out, const Content& content);
void draw_records(std::string& out, const Content& content);
void draw_lengths(std::string& out, const Content& content, const std::vector<Series>& all);
void draw_candidates(std::string& out, const Content& content, const std::vector<Series>& all);
void draw_roofline(std::string& out, const Content& content);
void draw_attention(std::string& out, const Content& content);

/// The whole page: the same content gives the same bytes.
std::string page_of(const Content& content);

}  // namespace kiln::cli::report
