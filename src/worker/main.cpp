#include "worker/program.hpp"

int main() { return kiln_worker_main(); }
