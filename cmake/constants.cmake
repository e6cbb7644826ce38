# Run as a script: of the constants in INPUT (planner/cost/calibration.json) writes the fields of Calibration and their
# names to FOLDER, so that the file alone lists them.
include(${CMAKE_CURRENT_LIST_DIR}/write_if_changed.cmake)
file(READ ${INPUT} text)
string(JSON count LENGTH "${text}")
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON name GET "${text}" ${i} name)
  string(APPEND fields "  double ${name} = 0.0;\n")
  string(APPEND members "    {\"${name}\", &Calibration::${name}},\n")
endforeach()
# What has not changed is not written, so that nothing is compiled again.
write_if_changed(${FOLDER}/calibration_fields.inc "${fields}")
write_if_changed(${FOLDER}/calibration_members.inc "${members}")
