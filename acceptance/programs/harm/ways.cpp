// Changes files in the ways of C++'s library: `ways list` prints their names, `ways NAME FILE FOLDER` does one.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>

namespace fs = std::filesystem;
using Way = std::function<void(const fs::path &, const fs::path &)>;

static void put(const fs::path &file, std::ios::openmode mode) {
    std::ofstream out;
    out.exceptions(std::ios::failbit | std::ios::badbit);
    out.open(file, mode);
    out << "changed" << std::flush;
}

static const std::map<std::string, Way> ways = {
    {"stream", [](auto &file, auto &) { put(file, std::ios::out); }},
    {"stream_at_the_end", [](auto &file, auto &) { put(file, std::ios::app); }},
    {"stream_both_ways", [](auto &file, auto &) {
        std::fstream both;
        both.exceptions(std::ios::failbit | std::ios::badbit);
        both.open(file, std::ios::in | std::ios::out);
        both.seekp(2) << "XX" << std::flush;
    }},
    {"stream_of_a_thread", [](auto &file, auto &) { std::thread([&] { put(file, std::ios::trunc); }).join(); }},
    {"copy_file", [](auto &file, auto &) { fs::copy_file("/bin/sh", file, fs::copy_options::overwrite_existing); }},
    {"copy_a_tree", [](auto &, auto &folder) { fs::copy(folder, folder / "copy", fs::copy_options::skip_symlinks); }},
    {"rename", [](auto &file, auto &folder) { fs::rename(file, folder / "renamed"); }},
    {"rename_a_folder", [](auto &, auto &folder) { fs::rename(folder, fs::path(folder) += "-renamed"); }},
    {"remove", [](auto &file, auto &) { fs::remove(file); }},
    {"remove_all", [](auto &, auto &folder) { fs::remove_all(folder); }},
    {"resize_file", [](auto &file, auto &) { fs::resize_file(file, 1); }},
    {"permissions", [](auto &file, auto &) { fs::permissions(file, fs::perms::owner_all); }},
    {"last_write_time", [](auto &file, auto &) { fs::last_write_time(file, fs::file_time_type{} + std::chrono::seconds(1)); }},
    {"create_directories", [](auto &, auto &folder) { fs::create_directories(folder / "a/b/c"); }},
    {"create_symlink", [](auto &file, auto &folder) { fs::create_symlink(file, folder / "link"); put(folder / "link", std::ios::out); }},
    {"create_hard_link", [](auto &file, auto &folder) { fs::create_hard_link(file, folder / "hard"); put(folder / "hard", std::ios::out); }},
    {"rename_of_c", [](auto &file, auto &folder) { if (std::rename(file.c_str(), (folder / "x").c_str())) throw 1; }},
    {"system", [](auto &file, auto &) { if (std::system(("echo changed > '" + file.string() + "'").c_str())) throw 1; }},
};

int main(int count, char **words) try {
    if (count == 2) for (auto &[name, does] : ways) std::cout << name << '\n';
    if (count == 4) ways.at(words[1])(words[2], words[3]);
    return count != 2 && count != 4;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
} catch (...) {
    return 1;
}
