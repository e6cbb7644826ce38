# Run as a script: of the constants in INPUT (planner/cost/calibration.json) writes the fields of Calibration and their
# names to FOLDER, so that the file alone lists them.
file(READ ${INPUT} text)
string(JSON count LENGTH "${text}")
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON name GET "${text}" ${i} name)
  string(APPEND fields "  double ${name} = 0.0;\n")
  string(APPEND members "    {\"${name}\", &Calibration::${name}},\n")
endforeach()
file(WRITE ${FOLDER}/calibration_fields.inc "${fields}")
file(WRITE ${FOLDER}/calibration_members.inc "${members}")
