#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace keel::cli {

// Makes every command in the help of `app` and its subcommands one that can be pasted.
void name_as_called(CLI::App& app);

// What opens a page: $BROWSER, xdg-open or open. Raises UsageError if there is none.
std::string page_opener();
void open_page(const std::string& opener, const std::string& path);

}  // namespace keel::cli
