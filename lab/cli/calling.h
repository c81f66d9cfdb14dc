#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace keel::cli {

// How `keel` can be called from here: "keel" if that is this one on the PATH, else the path of it, as a shell takes it.
std::string keel_command();

// Makes every command in the help of `app` and its subcommands one that can be pasted.
void name_as_called(CLI::App& app);

// What opens a page: $BROWSER, xdg-open or open. Raises UsageError if there is none.
std::string page_opener();
void open_page(const std::string& opener, const std::string& path);

}  // namespace keel::cli
