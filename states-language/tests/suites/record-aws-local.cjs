// A setup file of jest: writes what aws-local-stepfunctions' own functions were asked by its tests, and answered.
const fs = require('fs')

const folder = `${process.env.CHECKOUT}/src/stateMachine`

function recorded (object, name, describe) {
  const original = object[name]
  const write = (asked, answer) => {
    const line = { test: expect.getState().currentTestName, ...asked, ...answer }
    fs.appendFileSync(process.env.RECORD, JSON.stringify(line) + '\n')
  }
  object[name] = function (...given) {
    const asked = describe(this, JSON.parse(JSON.stringify(given.map(one => one === undefined ? '\u0000' : one))))
    let result
    try {
      result = original.apply(this, given)
    } catch (problem) {
      write(asked, { error: problem.name })
      throw problem
    }
    if (result instanceof Promise) {
      result.then(value => write(asked, { result: value }), problem => write(asked, { error: problem.name }))
    } else {
      write(asked, { result })
    }
    return result
  }
}

const { BaseIntrinsicFunction } = require(`${folder}/intrinsicFunctions/BaseIntrinsicFunction.ts`)
recorded(BaseIntrinsicFunction.prototype, 'call', (self, [input, context, ...args]) =>
  ({ what: self.funcDefinition.name, input, context, args }))
const dataflow = require(`${folder}/InputOutputProcessing.ts`)
for (const name of Object.keys(dataflow)) recorded(dataflow, name, (_, args) => ({ what: name, args }))
const { ChoiceStateAction } = require(`${folder}/stateActions/ChoiceStateAction.ts`)
recorded(ChoiceStateAction.prototype, 'execute', (self, [input, context]) =>
  ({ what: 'Choice', input, context, state: self.stateDefinition }))
