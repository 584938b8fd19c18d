# What the Python package needs: pybind11 and the headers of a Python. Sets TALON_HAS_PYTHON, and
# TALON_PYTHON to the interpreter.

option(TALON_WITH_PYTHON "Build the Python package where pybind11 and Python's headers are found" ON)

# The first Python that has NumPy and pytest, as Debian's has once they are installed, even if another
# one comes first on the PATH; else the first one.
function(talon_choose_python result)
  find_program(first_python python3 NO_CACHE)
  find_program(system_python python3 PATHS /usr/bin NO_DEFAULT_PATH NO_CACHE)
  set(${result} ${first_python} PARENT_SCOPE)
  foreach(python ${first_python} ${system_python})
    execute_process(COMMAND ${python} -c "import numpy, pytest"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed EQUAL 0)
      set(${result} ${python} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(TALON_HAS_PYTHON OFF)
if(TALON_WITH_PYTHON AND NOT TALON_SANITIZE)  # a sanitizer must be in the interpreter, too
  if(NOT TALON_PYTHON)  # -DTALON_PYTHON=... builds the package for another one
    talon_choose_python(TALON_PYTHON)
  endif()
  set(Python3_EXECUTABLE ${TALON_PYTHON})
  find_package(Python3 3.11 QUIET COMPONENTS Interpreter Development.Module)
  if(Python3_FOUND)
    find_package(pybind11 QUIET)
  endif()
  if(Python3_FOUND AND pybind11_FOUND)
    set(TALON_HAS_PYTHON ON)
  else()
    talon_lacks("pybind11 or Python's headers" "no Python package")
  endif()
endif()
