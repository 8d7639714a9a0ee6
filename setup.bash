# Sourced, not run:  . ./setup.bash
#
# Brings this shell into the environment of simdist, building it on first use.
# Where a ROS 2 installation is sourced, the workspace is built against it with colcon; elsewhere
# ROS 2 comes as wheels from PyPI into .venv. Nothing outside this directory is changed.

if [ -z "${BASH_VERSION:-}" ]; then
  echo "simdist: setup.bash needs bash; use ./run COMMAND from other shells" >&2
  return 1 2>/dev/null || exit 1
fi

# Prints LIST (separated by ':') without the entries that lie in DIRECTORY.
_simdist_without() { # LIST DIRECTORY
  local entry kept=()
  while IFS= read -r -d : entry; do
    case $entry in '' | "$2" | "$2"/*) ;; *) kept+=("$entry") ;; esac
  done <<<"$1:"
  local IFS=:
  printf '%s' "${kept[*]}"
}

# A Python that can make the environment, printed; fails if there is none.
_simdist_python() {
  local candidate
  for candidate in ${SIMDIST_PYTHON:+"$SIMDIST_PYTHON"} python3 python3.12 python3.11; do
    if "$candidate" -I -S -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
      2>/dev/null; then
      printf '%s' "$candidate"
      return 0
    fi
  done
  echo "simdist: no Python 3.11 or 3.12 was found (tried ${SIMDIST_PYTHON:+$SIMDIST_PYTHON,}" \
    "python3, python3.12, python3.11). Install one, for example" \
    "'sudo apt install python3 python3-venv', or name it in SIMDIST_PYTHON." >&2
  return 1
}

# True when nothing that the environment is made from is newer than its last complete set-up.
_simdist_is_ready() { # ROOT PREFIX
  local ready=$2/.simdist/ready
  # The scripts of an environment name its path: one that was moved has to be looked at again.
  [ -x "$2/bin/python3" ] && [ -e "$ready" ] && [ "$(<"$ready")" = "$2" ] || return 1
  local kernel=$1/src/simdist/simdist/planning/backends/native
  [ -e "$kernel/build/plan_kernel_generic.so" ] || return 1
  [ -z "$(find "$1/requirements" "$1/launch" "$1/config" "$1/models" "$1/src/simdist_msgs" \
    "$1/src/simdist/package.xml" "$1/src/simdist/setup.py" "$1/src/simdist/setup.cfg" \
    "$1/src/simdist/scripts" "$1/tools/bootstrap.py" "$1/colcon.meta" \
    "$kernel/kernel" "$kernel/build_kernel.py" \
    -newer "$ready" -print -quit 2>/dev/null)" ]
}

_simdist_enter() { # ROOT
  local root=$1 kind=wheels prefix=$1/.venv python
  if [ -n "${ROS_DISTRO:-}" ]; then
    kind=ros
    prefix=$root/.venv-$ROS_DISTRO
    local missing=
    command -v ros2 >/dev/null || missing+=" ros2 (apt: ros-$ROS_DISTRO-ros2cli)"
    command -v colcon >/dev/null || missing+=" colcon (apt: python3-colcon-common-extensions)"
    python3 -c 'import launch_ros' 2>/dev/null || missing+=" launch_ros (apt: ros-$ROS_DISTRO-launch-ros)"
    if [ -n "$missing" ]; then
      echo "simdist: ROS 2 $ROS_DISTRO is sourced but lacks:$missing. Install what is missing, or" \
        "use a shell without ROS (unset ROS_DISTRO): then ROS 2 comes as wheels from PyPI." >&2
      return 1
    fi
  fi

  # Leave another checkout's environment first: its libraries must not be mixed with ours.
  if [ -n "${SIMDIST_PREFIX:-}" ] && [ "$SIMDIST_PREFIX" != "$prefix" ]; then
    unset _ROS_WHEELS_BOOTSTRAP_COMPLETE
    local list
    for list in PATH LD_LIBRARY_PATH AMENT_PREFIX_PATH CMAKE_PREFIX_PATH; do
      [ -n "${!list:-}" ] && export "$list=$(_simdist_without "${!list}" "$SIMDIST_PREFIX")"
    done
    case ${FASTRTPS_DEFAULT_PROFILES_FILE:-} in
      "$(dirname "$SIMDIST_PREFIX")"/*) unset FASTRTPS_DEFAULT_PROFILES_FILE ;;
    esac
  fi

  if ! _simdist_is_ready "$root" "$prefix" ||
    { [ "$kind" = ros ] && [ ! -e "$root/install/local_setup.bash" ]; }; then
    if [ "$kind" = ros ]; then
      python=python3 # the one that rclpy is built for
    else
      python=$(_simdist_python) || return 1
    fi
    "$python" -I -S "$root/tools/bootstrap.py" --kind "$kind" --prefix "$prefix" || return
  fi

  export SIMDIST_PREFIX=$prefix VIRTUAL_ENV=$prefix
  export PATH=$prefix/bin:$(_simdist_without "$PATH" "$prefix/bin")
  if [ "$kind" = ros ]; then
    . "$root/install/local_setup.bash" || return
    export PATH=$prefix/bin:$(_simdist_without "$PATH" "$prefix/bin")
  else
    local others
    others=$(_simdist_without "${AMENT_PREFIX_PATH:-}" "$prefix")
    export AMENT_PREFIX_PATH=$prefix${others:+:$others}
  fi

  # Larger shared memory and quick announcements; loopback only unless the user says otherwise.
  export FASTRTPS_DEFAULT_PROFILES_FILE=${FASTRTPS_DEFAULT_PROFILES_FILE:-$root/config/fastdds.xml}
  export ROS_AUTOMATIC_DISCOVERY_RANGE=${ROS_AUTOMATIC_DISCOVERY_RANGE:-LOCALHOST}
  # Busy-waiting OpenMP threads of two torch processes slow each other eightfold on two cores.
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE}
  export PYTHONUNBUFFERED=1
}

_simdist_enter "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
_simdist_status=$?
unset -f _simdist_without _simdist_python _simdist_is_ready _simdist_enter
if [ "$_simdist_status" -ne 0 ]; then
  eval "unset _simdist_status; return $_simdist_status 2>/dev/null || exit $_simdist_status"
fi
unset _simdist_status
