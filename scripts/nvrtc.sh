# shellcheck shell=bash
# Sourced by the other scripts: is there an NVRTC that Kiln will find, and if not, where can one come from.
# Kiln looks in the same places, in the same order.

nvrtc_folder=build/nvrtc # what fetch_nvrtc fills; ignored by git

has_nvrtc_in() { [[ -n "$1" ]] && compgen -G "$1/libnvrtc.so*" >/dev/null; }

find_nvrtc() {
  [[ -n "${KILN_NVRTC_LIBRARY:-}" && -e "$KILN_NVRTC_LIBRARY" ]] && return 0
  has_nvrtc_in "${KILN_NVRTC_DIR:-}" && return 0
  local folder folders
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${folders[@]}" "${CUDA_HOME:+$CUDA_HOME/lib64}" /usr/local/cuda/lib64; do
    has_nvrtc_in "$folder" && return 0
  done
  [[ "$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null)" == *libnvrtc.so* ]]
}

# Points Kiln to the NVRTC that was fetched earlier, when this machine has no other.
use_fetched_nvrtc() {
  find_nvrtc && return 0
  local folder
  for folder in "$PWD/$nvrtc_folder"/nvidia/*/lib; do
    if has_nvrtc_in "$folder"; then
      export KILN_NVRTC_DIR=$folder
      return 0
    fi
  done
  return 1
}

# The wheel is of the newest CUDA release whose machine code this machine's driver loads; without a driver, of the newest.
nvrtc_wheel() {
  local cuda
  cuda=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p')
  if [[ "$cuda" == 12 ]]; then echo nvidia-cuda-nvrtc-cu12; else echo "nvidia-cuda-nvrtc>=13,<14"; fi
}

# --target keeps the wheel out of the system's Python and needs no virtual environment.
fetch_nvrtc() {
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps \
    --target "$nvrtc_folder" "$(nvrtc_wheel)"
}
