#include "cli/program.hpp"

int main(int argc, char** argv) { return kiln_command_main(argc, argv); }
