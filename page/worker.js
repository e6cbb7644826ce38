// Runs the planner: one question at a time. What is at hand before is the factory `createPlanner` of the build.
'use strict';
let planner = null;

function ask(question) {
  const text = JSON.stringify(question), size = planner.lengthBytesUTF8(text) + 1;
  const at = planner._malloc(size);
  planner.stringToUTF8(text, at, size);
  const answer = planner._mpt_ask(at);
  planner._free(at);
  const said = planner.UTF8ToString(answer);
  planner._mpt_free(answer);
  return JSON.parse(said);
}

self.onmessage = async (event) => {
  const {module, question} = event.data;
  if (module) {
    planner = await createPlanner({
      instantiateWasm: (imports, done) => { WebAssembly.instantiate(module, imports).then((made) => done(made, module)); return {}; },
      tell: (text) => self.postMessage({progress: JSON.parse(text)}),
    });
    self.postMessage({ready: true});
  } else {
    self.postMessage({answer: ask(question)});
  }
};
