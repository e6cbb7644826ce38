// SPDX-License-Identifier: Apache-2.0
// Answers questions by the page's module in node: answer.js FOLDER; a question a line on stdin, an answer a line on stdout.
'use strict';
const path = require('path'), readline = require('readline');
const createPlanner = require(path.resolve(process.argv[2], 'planner.js'));

createPlanner({tell: () => {}}).then((planner) => {
  readline.createInterface({input: process.stdin}).on('line', (line) => {
    const size = planner.lengthBytesUTF8(line) + 1, at = planner._malloc(size);
    planner.stringToUTF8(line, at, size);
    const answer = planner._mpt_ask(at);
    process.stdout.write(planner.UTF8ToString(answer) + '\n');
    planner._mpt_free(answer);
    planner._free(at);
  });
});
